"""The planted brake takes the share of throughput that it is set to, in whatever steps, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.brake import Brake, make_hold, no_brake
from pipeline.toggles import REGISTRY

MS_NS = 1_000_000
LOOK_NS = 100_000
"""What a look at the fake clock takes."""


class FakeClock:
    """Goes on by itself with every look, and by the work between the brake's calls."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += LOOK_NS
        return self.now_ns


def run(brakes: Sequence[int], works_ms: Sequence[float], synchronize_ms: float = 0) -> list[int]:
    """The length in ns of each step, from one forward phase's end to the next one's."""
    clock = FakeClock()

    def synchronize() -> None:
        clock.now_ns += round(synchronize_ms * MS_NS)

    hold = Brake(synchronize, clock)
    hold({"brake": brakes[0]})
    ends_ns = [clock.now_ns]
    for brake, work_ms in zip(brakes, works_ms, strict=True):
        clock.now_ns += round(work_ms * MS_NS)
        hold({"brake": brake})
        ends_ns.append(clock.now_ns)
    return [end_ns - start_ns for start_ns, end_ns in pairwise(ends_ns)]


@given(st.integers(0, 900), st.lists(st.floats(50, 500), min_size=1, max_size=8))
def test_throughput_falls_by_the_share_that_it_is_set_to(brake: int, works_ms: list[float]) -> None:
    lengths_ns = run([brake] * len(works_ms), works_ms)

    assert sum(works_ms) * MS_NS / sum(lengths_ns) == pytest.approx(1 - brake / 1000, rel=5e-3)


def test_a_new_value_holds_from_its_step_on() -> None:
    lengths_ns = run([0, 0, 500, 500, 0], [10] * 5)

    assert [10, 10, 20, 20, 10] == [round(length_ns / MS_NS) for length_ns in lengths_ns]


def test_waiting_for_the_device_belongs_to_the_step() -> None:
    lengths_ns = run([500] * 3, [10] * 3, synchronize_ms=2)

    assert [24] * 3 == [round(length_ns / MS_NS) for length_ns in lengths_ns]


def test_the_first_step_is_not_held_up() -> None:
    clock = FakeClock()
    clock.now_ns = 10**12

    Brake(lambda: None, clock)({"brake": 900})

    assert 10**12 + LOOK_NS == clock.now_ns


def test_only_a_run_that_plants_it_has_one() -> None:
    cpu = torch.device("cpu")

    assert make_hold({"swa": True}, cpu) is no_brake
    assert isinstance(make_hold({"brake": 0}, cpu), Brake)
    assert "brake" not in {toggle.name for toggle in REGISTRY}
