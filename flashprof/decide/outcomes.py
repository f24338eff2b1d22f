"""
What is done about a launch that failed: again, skip its block, give its arm up, or stop (design §4.7). Pure.

No rule turns a failure into a number. What a bad moment of the machine can cause is tried again; what the cell
itself causes is not, since the next launch would end the same way and cost as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from flashprof.contracts.outcome import Outcome


class Step(StrEnum):
    """What is done about one failure."""

    RETRY = "to be launched again"
    KEEP_BLOCKS = "its complete blocks count"
    SKIP_BLOCK = "its block is skipped"
    GIVE_UP_ARM = "not launched any more"
    STOP_STUDY = "the study stops and keeps what it has"


@dataclass(frozen=True, slots=True)
class Handling:
    """The rule of one outcome."""

    num_retries: int
    """Further launches of the same arm in the same block."""
    then: Step
    """What is done when they are used up."""
    why: str
    """Half a sentence for the report."""


HANDLING: Mapping[Outcome, Handling] = MappingProxyType(
    {
        Outcome.KILLED: Handling(2, Step.SKIP_BLOCK, "a signal comes from outside and says nothing about the cell"),
        Outcome.HUNG: Handling(1, Step.SKIP_BLOCK, "a hang costs its whole limit each time"),
        Outcome.TIMED_OUT: Handling(1, Step.SKIP_BLOCK, "it did not end in time"),
        Outcome.CRASHED: Handling(1, Step.SKIP_BLOCK, "the same crash twice is no accident"),
        Outcome.OUT_OF_MEMORY: Handling(1, Step.GIVE_UP_ARM, "it does not fit, unless another program held the memory"),
        Outcome.LOAD_FAILED: Handling(1, Step.GIVE_UP_ARM, "it never trained a step"),
        # It would run out of data at the same step again.
        Outcome.ENDED_EARLY: Handling(0, Step.GIVE_UP_ARM, "it trains too few steps for the planned windows"),
        Outcome.WRONG_NUMBERS: Handling(0, Step.GIVE_UP_ARM, "fast but wrong is wrong: nothing of this study counts"),
        Outcome.NO_PERMISSION: Handling(0, Step.GIVE_UP_ARM, "what is forbidden stays forbidden"),
        Outcome.INTERRUPTED: Handling(0, Step.STOP_STUDY, "the same command goes on from here"),
        Outcome.TOOL_FAILED: Handling(0, Step.STOP_STUDY, "the same command goes on once the cause is gone"),
    }
)
"""Every outcome but `COMPLETED`, the only one that is a measurement."""

MAX_SKIPS_IN_A_ROW = 2
"""An arm that fails in this many blocks without a measurement between is given up, or it would eat the budget."""


def next_step(outcome: Outcome, num_failures: int, *, max_retries: int) -> Step:
    """
    Apply the rule of *outcome*.

    Args:
        outcome: How the launch ended.
        num_failures: Failures so far at the same place, this one included.
        max_retries: The study's own limit; the stricter of both holds.
    """
    handling = HANDLING[outcome]
    return Step.RETRY if num_failures <= min(handling.num_retries, max_retries) else handling.then


def failure_sentence(run_id: str, outcome: Outcome, reason: str, step: Step) -> str:
    """What failed, what was done about it and why, for the report."""
    why = "" if step in (Step.RETRY, Step.KEEP_BLOCKS) else f", {HANDLING[outcome].why}"
    return f"{run_id}: {outcome}; {step}{why}. {reason[:1].upper()}{reason[1:]}".strip()
