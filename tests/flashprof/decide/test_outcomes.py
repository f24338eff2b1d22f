"""Rules for launches that fail: tried again as often as makes sense, then skipped, given up, or stopped."""

from __future__ import annotations

import pytest

from flashprof.contracts.outcome import Outcome
from flashprof.decide.outcomes import HANDLING, Step, failure_sentence, next_step

FAILURES = [outcome for outcome in Outcome if not outcome.is_measurement]


def test_every_outcome_but_a_measurement_has_a_rule() -> None:
    assert set(FAILURES) == set(HANDLING)


@pytest.mark.parametrize(
    ("outcome", "num_tries", "then"),
    [
        (Outcome.KILLED, 3, Step.SKIP_BLOCK),
        (Outcome.HUNG, 2, Step.SKIP_BLOCK),
        (Outcome.TIMED_OUT, 2, Step.SKIP_BLOCK),
        (Outcome.CRASHED, 2, Step.SKIP_BLOCK),
        (Outcome.OUT_OF_MEMORY, 2, Step.GIVE_UP_ARM),
        (Outcome.LOAD_FAILED, 2, Step.GIVE_UP_ARM),
        (Outcome.ENDED_EARLY, 1, Step.GIVE_UP_ARM),
        (Outcome.WRONG_NUMBERS, 1, Step.GIVE_UP_ARM),
        (Outcome.NO_PERMISSION, 1, Step.GIVE_UP_ARM),
        (Outcome.INTERRUPTED, 1, Step.STOP_STUDY),
        (Outcome.TOOL_FAILED, 1, Step.STOP_STUDY),
    ],
)
def test_a_launch_is_tried_so_often_and_then(outcome: Outcome, num_tries: int, then: Step) -> None:
    steps = [next_step(outcome, number, max_retries=9) for number in range(1, num_tries + 1)]

    assert [Step.RETRY] * (num_tries - 1) + [then] == steps


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_study_may_forbid_retries(outcome: Outcome) -> None:
    assert HANDLING[outcome].then is next_step(outcome, 1, max_retries=0)


def test_a_sentence_names_launch_outcome_deed_and_reason() -> None:
    sentence = failure_sentence("cold-3-base-2", Outcome.OUT_OF_MEMORY, "the subject ran out.", Step.GIVE_UP_ARM)

    assert (
        "cold-3-base-2: out of memory; not launched any more, it does not fit, unless another program held the memory. "
        "The subject ran out."
    ) == sentence
    assert "hot-1: hung; to be launched again." == failure_sentence("hot-1", Outcome.HUNG, "", Step.RETRY)
