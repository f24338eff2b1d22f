"""What console reports are drawn with: a Rich console that the environment cannot change, lines, headings, tables."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NO_BREAK_SPACE = "\u00a0"
_GLUE = re.compile(r"[\w,.−]+ (?:%|tok/s|steps?|s)(?!\w)|\w+ \d+ (?:never )?(?:waits|limits)(?: [\d.]+ %)?")


def make_console(*, color: bool, width: int) -> Console:
    """A console that writes to memory; read it with `text_of`."""
    from rich.console import Console

    return Console(
        file=StringIO(),
        width=width,
        force_terminal=color,
        color_system="256" if color else None,
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        # An empty environment: COLUMNS, NO_COLOR and FORCE_COLOR were decided by the caller.
        _environ={},
    )


def text_of(console: Console) -> str:
    """All that was printed, without spaces at the ends of lines."""
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def print_lines(console: Console, lines: Iterable[str], *, style: str) -> None:
    """Print lines wrapped between words; empty ones are left out."""
    for line in lines:
        # A number stays with its unit, a lane with its rank and what it does.
        glued = _GLUE.sub(lambda pair: pair.group().replace(" ", NO_BREAK_SPACE), line)
        for part in textwrap.wrap(glued, console.width, break_long_words=False, break_on_hyphens=False):
            console.print(part.replace(NO_BREAK_SPACE, " "), style=style, soft_wrap=True)


def print_paths(console: Console, paths: Iterable[tuple[str, str]]) -> None:
    """One line a path, never wrapped: a path is there to be copied."""
    pairs = list(paths)
    width = max((len(name) for name, _ in pairs), default=0)
    for name, path in pairs:
        console.print(f"{name.ljust(width)}  {path}", soft_wrap=True)


def heading(console: Console, title: str, explanation: str) -> None:
    """An empty line, then what follows and how to read it."""
    from rich.text import Text

    console.print()
    console.print(Text.assemble((title, "bold"), "  ", (explanation, "dim")))


def plain_table(*columns: tuple[str, str]) -> Table:
    """A table without lines; *columns* are titles, each with `left` or `right`."""
    from rich.table import Table

    table = Table(box=None, header_style="dim", padding=(0, 0, 0, 2), pad_edge=True)
    for title, justify in columns:
        # Numbers keep their width where the terminal is narrow; names give way.
        right = justify == "right"
        table.add_column(title, no_wrap=True, justify="right" if right else "left", min_width=6 if right else 4)
    return table
