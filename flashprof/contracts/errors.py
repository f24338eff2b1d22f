"""
Every error that a user can meet.

FlashProfError                 exit 4: the tool or the subject failed
├── UsageError                 exit 2: what the user asked for does not exist or does not fit
│   ├── UnknownNameError       a name that is not in a list; offers the nearest one
│   └── FormatError            a file that this version cannot read
├── SubjectError               exit 4: the measured program failed; carries the outcome
└── ToolError                  exit 4: FlashProf could not do its part (disk, permission, sampler)

A message says what happened, where, the value offered, what is allowed, and the next command.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from flashprof.contracts.outcome import Outcome


class FlashProfError(Exception):
    """Base of all expected failures; rendered once, in `flashprof.cli.main`."""

    exit_code = 4

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        offered: str | None = None,
        allowed: str | None = None,
        next_command: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.offered = offered
        self.allowed = allowed
        self.next_command = next_command

    def lines(self) -> list[str]:
        """The message, one line a fact, ready to print."""
        facts = [
            ("where", self.where),
            ("got", self.offered),
            ("allowed", self.allowed),
            ("try", self.next_command),
        ]
        return [f"error: {self.what}", *(f"  {name}: {text}" for name, text in facts if text)]

    def __str__(self) -> str:
        return "\n".join(self.lines())


class UsageError(FlashProfError):
    """The request cannot be met as it was written."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A name that is not in a closed list."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, next_command: str | None = None) -> None:
        self.known = tuple(known)
        # A list may offer what is not there yet, as HEAD of an empty repository: that is no other name.
        nearest = difflib.get_close_matches(name, [other for other in self.known if other != name], n=1)
        hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        super().__init__(
            f"unknown {kind} {name!r}{hint}",
            offered=name,
            allowed=", ".join(self.known) or "none",
            next_command=next_command,
        )


class FormatError(UsageError):
    """A file whose format or version this FlashProf does not know."""


class SubjectError(FlashProfError):
    """The measured program failed: never a number, always an outcome."""

    def __init__(
        self, what: str, *, outcome: Outcome, where: str | None = None, next_command: str | None = None
    ) -> None:
        super().__init__(what, where=where, next_command=next_command)
        self.outcome = outcome


class ToolError(FlashProfError):
    """FlashProf itself could not do its part."""
