"""
What each function of a role's threads costs a token more or less, and which changes are more than chance. Pure.

The list of functions and the boxes of a flamegraph ask this both, and must not contradict each other: a box that has
the samples of a function has its verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flashprof.contracts.profiles import ProfiledWindow
from flashprof.stats.frame_table import RoleTable, helper_threads, helper_windows, main_windows, role_table
from flashprof.stats.stack_noise import Changes, Noise, changes, clear_of_chance, noise_of, questions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChanges:
    """All functions of one role; rows as in its table."""

    table: RoleTable
    noise: Noise
    own: Changes
    inclusive: Changes
    is_own_clear: Bools
    is_inclusive_clear: Bools

    def verdicts(self) -> dict[bytes, bool]:
        """Question → whether it is clear."""
        own, inclusive = _asked(self.table)
        answers = np.concatenate([self.is_own_clear, self.is_inclusive_clear]).tolist()
        return dict(zip((*own, *inclusive), answers, strict=True))


def role_changes(base: Sequence[ProfiledWindow], candidate: Sequence[ProfiledWindow]) -> tuple[RoleChanges, ...]:
    """
    Compare the functions of all roles that both arms have, with all of them in mind.

    Args:
        base: Profile windows of one arm; main threads and all of their samples are used.
        candidate: Of the other.
    """
    old, new = main_windows(base), main_windows(candidate)
    return _compared([role_table(role, old[role], new[role]) for role in old if role in new])


def helper_changes(base: Sequence[ProfiledWindow], candidate: Sequence[ProfiledWindow]) -> tuple[RoleChanges, ...]:
    """
    Compare the functions in which other threads held the GIL, with all of these in mind.

    Args:
        base: Profile windows of one arm; those of which the view GIL was taken are used.
        candidate: Of the other.
    """
    threads = helper_threads([*base, *candidate])
    if not threads:
        return ()
    old, new = helper_windows(base, threads), helper_windows(candidate, threads)
    asked = [place for place in sorted(threads) if old[place] and new[place]]
    return _compared([role_table(place[0], old[place], new[place], thread=place[1]) for place in asked])


def _compared(tables: Sequence[RoleTable]) -> tuple[RoleChanges, ...]:
    noises = [noise_of(table.arms, table.own.base, table.own.candidate) for table in tables]
    parts = [
        changes(table.arms, counts.base, counts.candidate, noise)
        for table, noise in zip(tables, noises, strict=True)
        for counts in (table.own, table.inclusive)
    ]
    names = [[(table.role, table.thread, name) for name in asked] for table in tables for asked in _asked(table)]
    clear = clear_of_chance(parts, names)
    return tuple(
        RoleChanges(
            table=table,
            noise=noises[place],
            own=parts[2 * place],
            inclusive=parts[2 * place + 1],
            is_own_clear=clear[2 * place],
            is_inclusive_clear=clear[2 * place + 1],
        )
        for place, table in enumerate(tables)
    )


def _asked(table: RoleTable) -> tuple[list[bytes], list[bytes]]:
    """Of own times and of inclusive ones: those of a function that calls nothing are the same."""
    own, inclusive = table.own, table.inclusive
    return questions(own.base, own.candidate), questions(inclusive.base, inclusive.candidate)
