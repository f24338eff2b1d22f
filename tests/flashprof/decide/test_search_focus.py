"""Where a search looks: its readings' phases decide, and one reading without them rules a focus out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from search_worlds import cold_plan, line_of_commits

from flashprof.contracts.search import Reading, Stage
from flashprof.decide.observations import CallBegan
from flashprof.decide.search_focus import find_search_focus, focused_noise, focused_values
from flashprof.decide.search_observations import Measured
from flashprof.decide.search_state import SearchState, observe, replay
from flashprof.stats.basis import NoisePrior

PLAN = cold_plan(line_of_commits(8))
STEP = {"mask": 10.0, "forward": 70.0, "loss": 20.0}


def window(cell: str, launch: str, position: int, *, mask: float, factor: float = 1.0) -> Reading:
    phases = {name: ns * factor for name, ns in {**STEP, "mask": mask}.items()}
    return Reading(
        cell=cell,
        launch=launch,
        stage=Stage.SEARCH,
        position=position,
        at_s=1.8e9 + position,
        length_s=3.0,
        log_tok_per_s=-math.log(sum(phases.values()) / 1e9),
        num_tokens=1000,
        phases=phases,
    )


def begun(*readings: Reading) -> SearchState:
    state = observe(replay(PLAN, []), CallBegan())
    for item in readings:
        state = observe(state, Measured(reading=item))
    return state


GOOD = [window("base", "cold-1", place, mask=10.0, factor=1.03) for place in range(3)]
BAD = [window("c7", "cold-2", place, mask=30.0, factor=0.98) for place in range(3)]


def test_the_phase_in_which_the_ends_differ_is_looked_at() -> None:
    focus = find_search_focus(begun(*GOOD, *BAD))

    assert focus is not None
    assert focus.phases == ("mask",)


def test_what_is_looked_at_no_longer_has_the_launchs_own_speed() -> None:
    slow, fast = (window("c3", f"cold-{3 + place}", 0, mask=30.0, factor=1 + place / 10) for place in range(2))
    state = begun(*GOOD, *BAD, slow, fast)
    values = focused_values([slow, fast], find_search_focus(state))
    plain = focused_values([slow, fast], None)

    assert plain[0] - plain[1] == pytest.approx(math.log(1.1))
    assert values[0] - values[1] < 0.03


@pytest.mark.parametrize("readings", [[], GOOD, [*GOOD, *BAD, replace(BAD[0], position=9, phases={})]])
def test_without_both_ends_or_without_phases_it_is_tok_per_s(readings: list[Reading]) -> None:
    assert find_search_focus(begun(*readings)) is None


def test_disturbed_readings_do_not_count() -> None:
    disturbed = [replace(item, disturbances=("a neighbour",)) for item in BAD]

    assert find_search_focus(begun(*GOOD, *disturbed)) is None


def test_noise_shrinks_with_the_focus_but_never_to_nothing() -> None:
    noise = NoisePrior()
    focus = find_search_focus(begun(*GOOD, *BAD))
    assert focus is not None

    assert focused_noise(noise, None) == noise
    assert focused_noise(noise, focus).launch_sd == pytest.approx(focus.noise_share * noise.launch_sd)
    assert focused_noise(noise, replace(focus, noise_share=0.001)).window_sd == pytest.approx(0.1 * noise.window_sd)
