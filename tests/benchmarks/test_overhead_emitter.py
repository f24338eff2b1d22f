"""The emitter's part of the overhead study runs on today's trainer; its numbers are not judged here."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.overhead_emitter import EMITTER_GOAL_PCT, interleave_emitter, time_calls_of_a_step
from flashprof.contracts.events import decode

NUM_PAIRS = 4


def test_both_arms_train_and_one_records(tmp_path: Path) -> None:
    taken = interleave_emitter(tmp_path, NUM_PAIRS, torch.device("cpu"))
    (path,) = tmp_path.glob("events/*.jsonl")
    log = decode(path.read_text().splitlines(), where=str(path))

    assert taken.low_us < taken.cost_us < taken.high_us
    assert NUM_PAIRS == len(log.steps)
    assert NUM_PAIRS == len([span for span in log.spans if span.phase == "backward"])


def test_the_calls_of_a_step_are_far_from_the_goal_in_a_step_of_100_ms(tmp_path: Path) -> None:
    assert 0 < time_calls_of_a_step(tmp_path, num_steps=50) < EMITTER_GOAL_PCT / 100 * 100_000
