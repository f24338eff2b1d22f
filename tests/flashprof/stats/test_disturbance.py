"""A burst disturbs a window, a constant load does not, and no judgement changes afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.machine import MachineUse
from flashprof.stats.disturbance import (
    DisturbanceLimits,
    arm_note,
    find_disturbances,
    judge_window,
    level_note,
    standing_load,
)

LIMITS = DisturbanceLimits()
QUIET = MachineUse(
    length_s=2.0,
    other_cores=0.02,
    stolen_cores=0.0,
    delay_share=0.01,
    num_swapped_pages=0,
    governors=("performance",),
    throttle_reasons=(),
    num_foreign_gpu_processes=0,
)
EARLIER = (QUIET,) * 8
USES = st.builds(
    MachineUse,
    length_s=st.just(2.0),
    other_cores=st.floats(0, 4),
    stolen_cores=st.floats(0, 1),
    delay_share=st.floats(0, 1),
    num_swapped_pages=st.integers(0, 3),
    governors=st.sampled_from([(), ("performance",), ("powersave",), ("performance", "powersave")]),
    throttle_reasons=st.sampled_from([(), ("gpu 0: hw slowdown",), ("gpu 0: sw power cap",)]),
    num_foreign_gpu_processes=st.integers(0, 2),
    is_foreign_gpu_steady=st.booleans(),
)


def loads(*cores: float) -> list[MachineUse]:
    return [replace(QUIET, other_cores=value) for value in cores]


def flags(found: Sequence[Sequence[str]]) -> str:
    """One letter a window: `x` for a disturbed one."""
    return "".join("x" if reasons else "." for reasons in found)


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (replace(QUIET, other_cores=0.83), "other processes used 0.8 cores (typically 0.0)"),
        (replace(QUIET, stolen_cores=0.3), "the hypervisor gave 0.30 cores to others (typically 0.00)"),
        (replace(QUIET, num_swapped_pages=1), "the machine swapped 1 pages (typically 0)"),
        (replace(QUIET, throttle_reasons=("gpu 1: hw slowdown",)), "gpu 1: hw slowdown (typically not)"),
        (replace(QUIET, governors=("powersave",)), "the CPU governor was powersave (typically another)"),
        (replace(QUIET, governors=("a", "b")), "the CPU governor changed: a, b"),
        (replace(QUIET, num_foreign_gpu_processes=2), "2 processes of others on the GPUs (typically 0)"),
        (
            replace(QUIET, is_foreign_gpu_steady=False, num_foreign_gpu_processes=1),
            "processes of others came to the GPUs or left them",
        ),
    ],
)
def test_each_disturbance_says_what_it_was_and_what_is_typical(use: MachineUse, sentence: str) -> None:
    assert (sentence,) == judge_window(use, EARLIER, LIMITS)


@pytest.mark.parametrize(
    "use",
    [
        replace(QUIET, other_cores=0.2),
        replace(QUIET, stolen_cores=0.05),
        replace(QUIET, delay_share=0.9),
        replace(QUIET, throttle_reasons=("gpu 0: sw power cap", "gpu 0: sync boost")),
        replace(QUIET, governors=()),
        replace(QUIET, length_s=20.0),
    ],
)
def test_a_small_excess_and_what_the_subject_brings_about_itself_disturb_nothing(use: MachineUse) -> None:
    assert () == judge_window(use, EARLIER, LIMITS)


def test_a_constant_competitor_disturbs_no_window_but_is_noted() -> None:
    uses = loads(*[1.0, 1.02, 0.98] * 8)

    assert "." * 24 == flags(find_disturbances(uses, LIMITS))
    [note] = standing_load(uses, LIMITS)
    assert "1.0 cores half of the time" in note


def test_a_burst_beside_a_constant_competitor_is_found() -> None:
    assert "." * 8 + "x" + "..." == flags(find_disturbances(loads(*[1.0] * 8, 1.5, *[1.0] * 3), LIMITS))


def test_less_load_than_typical_disturbs_nothing() -> None:
    assert "." * 12 == flags(find_disturbances(loads(*[1.0] * 8, *[0.0] * 4), LIMITS))


def test_load_that_always_varies_is_how_the_machine_is() -> None:
    rng = Random(1)
    uses = loads(*(rng.gauss(20.0, 2.0) for _ in range(200)))
    count = flags(find_disturbances(uses, LIMITS)).count("x")

    assert count <= 4
    assert ["other processes used"] == [note[:20] for note in standing_load(uses, LIMITS)]


@pytest.mark.parametrize(("num_seen", "windows"), [(1, "x"), (2, ".")])
def test_a_state_of_a_quarter_of_the_earlier_windows_is_typical(num_seen: int, windows: str) -> None:
    slowed = replace(QUIET, throttle_reasons=("gpu 0: hw slowdown",))
    earlier = [slowed] * num_seen + [QUIET] * (8 - num_seen)

    assert windows == flags([judge_window(slowed, earlier, LIMITS)])


def test_load_that_follows_an_arm_becomes_typical() -> None:
    # Where a competitor takes what the subject leaves, an arm that uses fewer cores would disturb all its windows.
    blocks = [0.5, 1.0, 1.0, 0.5] * 8
    found = flags(find_disturbances(loads(*blocks), LIMITS, before=loads(*[0.5] * 8)))

    assert "." * 20 == found[12:]


def test_a_level_that_changes_for_good_is_noted_and_then_typical() -> None:
    found = find_disturbances(loads(*[0.0] * 32, *[1.0] * 12), LIMITS)

    assert "." * 32 + "x" * 8 + "." * 4 == flags(found)
    assert None is level_note(found[:32])
    assert "8 of the last 12 windows" in str(level_note(found[28:40]))


@pytest.mark.parametrize(
    ("windows", "has_note"), [("xxx", False), ("xx..", False), ("xxx.", True), ("x" * 9 + "." * 16, False)]
)
def test_more_than_half_of_the_last_windows_make_a_note(windows: str, has_note: bool) -> None:
    found = [("a reason",) if letter == "x" else () for letter in windows]

    assert has_note == (level_note(found) is not None)


def test_the_first_window_is_judged_where_the_warm_up_says_what_is_typical() -> None:
    uses = loads(1.0, 0.0)

    assert ".." == flags(find_disturbances(uses, LIMITS))
    assert "x." == flags(find_disturbances(uses, LIMITS, before=EARLIER))


def test_a_window_without_readings_passes_and_is_no_reference() -> None:
    uses = [*loads(0.0, 0.0), None, *loads(1.0, 1.0)]

    assert "....x" == flags(find_disturbances([*uses[:3], *loads(0.0), *loads(1.0)], LIMITS))
    assert "....." == flags(find_disturbances(uses, LIMITS))


@given(st.lists(st.none() | USES, max_size=20), st.data())
def test_no_later_window_changes_a_judgement(uses: list[MachineUse | None], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(uses)))

    assert find_disturbances(uses, LIMITS)[:cut] == find_disturbances(uses[:cut], LIMITS)


@given(st.lists(USES, min_size=1, max_size=20))
def test_live_and_replayed_judgements_agree(uses: list[MachineUse]) -> None:
    live = tuple(judge_window(use, uses[:index], LIMITS) for index, use in enumerate(uses))

    assert live == find_disturbances(uses, LIMITS)


def test_a_quiet_machine_has_no_notes() -> None:
    assert () == standing_load(EARLIER, LIMITS)
    assert () == standing_load((), LIMITS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stolen_cores": 0.4}, "gave 0.40 cores"),
        ({"delay_share": 0.12}, "12 % of the time"),
        ({"throttle_reasons": ("gpu 0: sw power cap",)}, "gpu 0: sw power cap in 60 % of the windows"),
        ({"num_foreign_gpu_processes": 1}, "not recognised as the subject's"),
    ],
)
def test_what_most_windows_show_is_noted(change: dict[str, object], words: str) -> None:
    [note] = standing_load([replace(QUIET, **change)] * 6 + [QUIET] * 4, LIMITS)

    assert words in note


def test_load_that_comes_and_goes_is_noted() -> None:
    [note] = standing_load(loads(*[0.0] * 6, *[1.0] * 4), LIMITS)

    assert "1.0 or more a quarter of it" in note


@pytest.mark.parametrize(
    ("base", "candidate", "arm"),
    [
        ((0, 8), (7, 8), "candidate"),
        ((7, 8), (0, 8), "base"),
        ((0, 8), (5, 8), None),
        ((0, 12), (6, 12), None),
        ((4, 8), (4, 8), None),
        ((8, 8), (8, 8), None),
        ((0, 0), (0, 0), None),
        ((0, 40), (0, 40), None),
    ],
)
def test_disturbances_that_follow_an_arm_are_noted(
    base: tuple[int, int], candidate: tuple[int, int], arm: str | None
) -> None:
    windows = [[("a reason",)] * count + [()] * (size - count) for count, size in (base, candidate)]
    note = arm_note(*windows)

    assert arm == (note and note.removeprefix("disturbances follow the ").partition(":")[0])


def test_the_arms_are_noted_falsely_at_most_as_often_as_stated() -> None:
    rng = Random(2)
    num_notes = 0
    for _ in range(2000):
        found = [("a reason",) if rng.random() < 0.2 else () for _ in range(40)]
        num_notes += arm_note(found[::2], found[1::2]) is not None

    assert num_notes <= 30
