"""A search looks where good and bad differ, if that is a better signal than tok/s, and only then."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flashprof.stats.basis import NoisePrior
from flashprof.stats.focus import End, Focus, Phases, find_focus

STEP: Phases = {"mask": 10.0, "forward": 50.0, "backward": 30.0, "optimizer": 10.0}
NOISE = NoisePrior()


def readings(
    rng: np.random.Generator, step: Phases, *, num_launches: int = 1, num_windows: int = 3, launch_sd: float = 0.03
) -> list[Phases]:
    """Every phase of a launch is slower or faster by one factor, and every window scatters by 1 %."""
    found = []
    for _ in range(num_launches):
        factor = math.exp(rng.normal(0, launch_sd))
        for _ in range(num_windows):
            found.append({name: ns * factor * math.exp(rng.normal(0, 0.01)) for name, ns in step.items()})
    return found


def focus_of(
    good: list[Phases], bad: list[Phases], *, num_launches: int = 1, others: list[Phases] | None = None
) -> Focus | None:
    """Of ends that were launched each by itself."""
    launches = (frozenset(f"{end}-{number}" for number in range(num_launches)) for end in ("good", "bad"))
    ends = (End(phases=found, launches=names) for found, names in zip((good, bad), launches, strict=True))
    return find_focus(*ends, everything=[*good, *bad, *(others or [])], noise=NOISE)


def focus_within(good: list[Phases], bad: list[Phases], *, others: list[Phases] | None = None) -> Focus | None:
    """Of ends that took turns in one launch."""
    ends = (End(phases=found, launches=frozenset({"hot-1"})) for found in (good, bad))
    return find_focus(*ends, everything=[*good, *bad, *(others or [])], noise=NOISE)


def test_the_phase_that_grew_is_where_to_look() -> None:
    rng = np.random.default_rng(0)
    good, bad = readings(rng, STEP), readings(rng, {**STEP, "mask": 25.0})

    focus = focus_of(good, bad)

    assert focus is not None
    assert focus.phases == ("mask",)
    assert focus.noise_share < 0.5
    assert focus.rest_ns == pytest.approx(90, rel=0.05)


def test_values_stay_on_the_scale_of_tok_per_s_and_lose_the_noise_of_the_rest() -> None:
    rng = np.random.default_rng(1)
    good, bad = readings(rng, STEP), readings(rng, {**STEP, "mask": 25.0})
    focus = focus_of(good, bad)
    assert focus is not None
    others = readings(rng, {**STEP, "mask": 25.0}, num_launches=200, num_windows=1)

    plain = [-math.log(sum(phases.values()) / 1e9) for phases in others]
    focused = [focus.log_tok_per_s(phases) for phases in others]
    drop = focus.log_tok_per_s(STEP) - np.mean(focused)

    assert np.std(focused) < 0.2 * np.std(plain)
    assert drop == pytest.approx(math.log(115 / 100), abs=0.02)


def test_what_slows_all_phases_alike_is_not_seen() -> None:
    focus = Focus(phases=("mask",), rest_ns=90.0, noise_share=0.2)

    assert focus.log_tok_per_s({name: 1.3 * ns for name, ns in STEP.items()}) == pytest.approx(
        focus.log_tok_per_s(STEP)
    )


def test_ends_whose_launches_differ_much_show_their_place_all_the_same() -> None:
    # As on a host with busy neighbours: the bad end's launch is slower by a fifth in everything.
    rng = np.random.default_rng(7)
    good = readings(rng, STEP, launch_sd=0.0)
    bad = readings(rng, {name: 1.2 * ns for name, ns in {**STEP, "mask": 60.0}.items()}, launch_sd=0.0)

    focus = focus_of(good, bad)

    assert focus is not None
    assert focus.phases == ("mask",)


def test_where_all_phases_grow_there_is_no_better_place() -> None:
    rng = np.random.default_rng(2)

    assert focus_of(readings(rng, STEP), readings(rng, {name: 1.5 * ns for name, ns in STEP.items()})) is None


def test_where_most_of_the_step_grows_little_is_won() -> None:
    rng = np.random.default_rng(3)

    assert focus_of(readings(rng, STEP), readings(rng, {**STEP, "forward": 90.0, "backward": 60.0})) is None


def test_a_phase_that_is_half_of_the_step_is_not_its_clock() -> None:
    rng = np.random.default_rng(8)
    good = {**STEP, "mask": 95.0}

    focus = focus_of(readings(rng, good), readings(rng, {**good, "mask": 160.0}))

    assert focus is not None
    assert focus.phases == ("mask",)


def test_a_change_of_the_rest_is_not_overlooked() -> None:
    # Too small in each phase to be clear there, and together as large as that of the phase in focus.
    rng = np.random.default_rng(4)
    bad = {"mask": 20.0, "forward": 57.0, "backward": 34.2, "optimizer": 11.4}

    assert focus_of(readings(rng, STEP, launch_sd=0.0), readings(rng, bad, launch_sd=0.0)) is None


def test_within_a_launch_a_quarter_of_the_drop_does_not_stand_for_all_of_it() -> None:
    # Ends of 13 toggles in one launch on an H200, ns a token: `mask` alone is clear beside the others. Cells in between
    # differ in the rest by what their toggles do, which is no chance.
    names = ("unpack", "mask", "forward", "loss", "backward", "clip", "optimizer", "(between phases)")
    good, bad = (
        [dict(zip(names, map(float, row), strict=True)) for row in rows]
        for rows in (
            [
                (988, 14, 10692, 10733, 25437, 1231, 2912, 405),
                (56, 16, 13299, 12622, 29331, 1541, 3695, 589),
                (22, 14, 11742, 10982, 25283, 1363, 3119, 519),
            ],
            [
                (2633, 6583, 15584, 8711, 38687, 556, 3423, 4242),
                (2499, 4374, 14532, 7859, 35944, 497, 3284, 1033),
                (1614, 5452, 14917, 8276, 36467, 534, 3376, 1175),
            ],
        )
    )
    between = [{name: (1 - part) * good[0][name] + part * bad[0][name] for name in names} for part in (0.3, 0.5, 0.7)]

    apart = focus_of(good, bad, others=between)

    assert apart is not None
    assert apart.phases == ("mask",)
    assert focus_within(good, bad, others=between) is None


def test_within_a_launch_the_phase_that_has_the_drop_is_still_where_to_look() -> None:
    rng = np.random.default_rng(12)
    good, bad = readings(rng, STEP, launch_sd=0.0), readings(rng, {**STEP, "mask": 25.0}, launch_sd=0.0)

    focus = focus_within(good, bad)

    assert focus is not None
    assert focus.phases == ("mask",)


def test_what_launches_scatter_by_is_no_noise_that_a_focus_within_one_could_take_out() -> None:
    # The mask scatters by a few percent, all else by nothing: what is left of the noise is the mask's.
    good, bad = ([{**STEP, "mask": mask * part} for part in (0.93, 1.0, 1.07)] for mask in (10.0, 40.0))
    apart, within = focus_of(good, bad), focus_within(good, bad)

    assert apart is not None
    assert within is not None
    both = math.hypot(NOISE.window_sd, NOISE.launch_sd)
    assert within.noise_share == pytest.approx(apart.noise_share * both / NOISE.window_sd)


def test_a_phase_that_a_gain_took_away_is_looked_at_as_well() -> None:
    rng = np.random.default_rng(5)
    focus = focus_of(readings(rng, STEP), readings(rng, {**STEP, "mask": 25.0, "optimizer": 2.0}))

    assert focus is not None
    assert focus.phases == ("mask", "optimizer")


def test_what_holds_the_gil_is_not_looked_for_in_two_tiny_phases() -> None:
    # As on a host with busy neighbours: everything is slower by a fifth, and what takes 0.1 % of the step by half.
    rng = np.random.default_rng(9)
    good = {**STEP, "control": 0.1}
    bad = {name: 1.2 * ns for name, ns in good.items()} | {"control": 0.2}

    assert focus_of(readings(rng, good), readings(rng, bad)) is None


def test_a_loss_that_a_gain_elsewhere_masks_is_looked_at_without_it() -> None:
    rng = np.random.default_rng(10)
    masked = {**STEP, "mask": 25.0, "optimizer": 1.0, "backward": 24.0}

    focus = focus_of(readings(rng, STEP, num_launches=3), readings(rng, masked, num_launches=3), num_launches=3)

    assert focus is not None
    assert (("mask",), ("backward", "optimizer")) == (focus.phases, focus.gained)
    assert focus.loss_between([STEP], [masked]) == pytest.approx(
        math.log((50 + 25 + 32.5) / (50 + 10 + 32.5)), abs=0.01
    )


def test_a_gain_alone_is_no_loss_to_look_for() -> None:
    rng = np.random.default_rng(11)

    assert focus_of(readings(rng, {**STEP, "mask": 25.0}), readings(rng, STEP)) is None


def test_one_reading_of_an_end_is_not_enough() -> None:
    assert focus_of([STEP, STEP], [{**STEP, "mask": 25.0}]) is None


def test_launches_that_are_alike_seldom_show_a_place() -> None:
    rng = np.random.default_rng(6)
    found = [focus_of(readings(rng, STEP), readings(rng, STEP)) for _ in range(1000)]

    assert sum(focus is not None for focus in found) <= 10
