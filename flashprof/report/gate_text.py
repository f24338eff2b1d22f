"""
Texts of a run within the markup of those who read a gate: GitHub's and GitLab's Markdown, and lines of a terminal.

What a branch can name, it can name `@everyone`, `#1`, or `<img>`: no text from a run may notify, link, or run anything.
"""

from __future__ import annotations

import re

from flashprof.report.site_text import clip

MAX_TEXT = 600
"""Characters of one text of a run."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff\ud800-\udfff]")
_MARKUP = re.compile(r"[\\`*_\[\]~$]")
_AUTOLINK = re.compile(r"(?i)(?<=ww)w(?=\.)|:(?=//)")
_REFERENCE = re.compile(r"(?i)[@#!%&](?=[\w\"'])|(?<=\bGH)-(?=\d)")
_LEADING = re.compile(r"^(\d*)(-(?=[-\s]*$)|(?:[-+.)]|#+)(?=\s|$))")
_RUN_OF_BACKQUOTES = re.compile(r"`+")
BREAK = "&#8203;"
"""A space of no width: names and numbers are looked for after entities are read, so that `&#64;` is of no use."""


def plain(text: object, length: int = MAX_TEXT) -> str:
    """One line without control characters, clipped."""
    return " ".join(clip(_CONTROL.sub("", str(text)), length).split())


def inline(text: object, length: int = MAX_TEXT) -> str:
    """Text that stays text in a paragraph, a list, or a cell of `pipe_table`, which escapes `|` itself."""
    line = _REFERENCE.sub(lambda found: f"\0{found.group()}\0", plain(text, length))
    line = _MARKUP.sub(lambda found: f"\\{found.group()}", line.replace("&", "&amp;"))
    line = _AUTOLINK.sub(lambda found: f"{found.group()}{BREAK}", line)
    line = line.replace("<", "&lt;").replace(">", "&gt;")
    # What a list item begins with could be a heading, or a list in it, or a rule: `- --`.
    line = _LEADING.sub(r"\1\\\2", line)
    return re.sub("\0(.*?)\0", rf"\1{BREAK}", line)


def code(text: object, length: int = MAX_TEXT) -> str:
    """Text as code, to be copied: services look for no names or numbers in it. Empty for nothing."""
    line = plain(text, length)
    if not line:
        return ""
    fence = "`" * (_longest_run(line) + 1)
    # A space on both sides is not shown, and keeps backquotes at the ends apart from the fence.
    pad = " " if line[0] in "` " or line[-1] in "` " else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def sentence(text: str) -> str:
    """A headline: what it has between backquotes is code, the rest is text."""
    pieces = text.split("`")
    # The bars keep spaces at the ends.
    return "".join(code(piece) if place % 2 else inline(f"|{piece}|")[1:-1] for place, piece in enumerate(pieces))


def fenced(lines: list[str]) -> str:
    """Lines of text as they are, in a block of code."""
    body = "\n".join(_CONTROL.sub("", line).replace("\n", " ").replace("\r", " ") for line in lines)
    fence = "`" * max(3, _longest_run(body) + 1)
    return f"{fence}text\n{body}\n{fence}"


def printable(text: str) -> str:
    """Without control characters, which XML 1.0 cannot hold; line ends stay, each as LF."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def _longest_run(text: str) -> int:
    return max(map(len, _RUN_OF_BACKQUOTES.findall(text)), default=0)
