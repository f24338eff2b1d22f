"""Which phase a change lies in: along the chain of waits, summing to the change, and honest in noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.localisation import AWAITED, BETWEEN, Part
from flashprof.stats.localise import Charges, charge_phases
from flashprof.windows.costs import LaneCosts

WALL_NS = 100.0

Lanes = Mapping[tuple[str, str], Mapping[str, float]]


def window(
    lanes: Lanes, *, wall_ns: float = WALL_NS, launch: str = "r1", trains: frozenset[str] = frozenset({"drafter"})
) -> LaneCosts:
    """Phases that begin with `wait` or end with `sync` are waits."""
    return LaneCosts(
        launch=launch,
        wall_ns_per_token=wall_ns,
        trains=trains,
        lanes={
            lane: {
                (phase, "wait" if "wait" in phase or "sync" in phase else "work"): ns for phase, ns in phases.items()
            }
            for lane, phases in lanes.items()
        },
    )


def lanes(
    drafter: Mapping[str, float],
    target: Mapping[str, float] | None = None,
    dispatcher: Mapping[str, float] | None = None,
) -> Lanes:
    found = {"drafter": drafter, "target": target, "dispatcher": dispatcher}
    return {(role, "main"): phases for role, phases in found.items() if phases is not None}


def localise(base: Sequence[LaneCosts], candidate: Sequence[LaneCosts]) -> Charges:
    charges = charge_phases(base, candidate, np.random.default_rng(0))

    assert charges is not None
    return charges


def charged(charges: Charges, *, at_least: float = 0.01) -> dict[str, float]:
    return {part.name: round(part.charge.estimate, 6) for part in charges.parts if abs(part.charge.estimate) > at_least}


def exact(base: Lanes, candidate: Lanes, *, wall_ns: float) -> Charges:
    return localise([window(base)] * 2, [window(candidate, wall_ns=wall_ns)] * 2)


def test_a_phase_of_the_training_lane_that_grew_has_the_change() -> None:
    charges = exact(lanes({"mask": 10, "forward": 90}), lanes({"mask": 30, "forward": 90}), wall_ns=120)

    assert charged(charges) == {"drafter mask": 20}
    assert charges.difference.estimate == pytest.approx(20)
    assert charges.base_ns_per_token == pytest.approx(100)
    assert charges.parts[0].share == pytest.approx(1)
    assert charges.parts[0].is_clear
    assert charges.explained_share == pytest.approx(1)


def test_a_wait_for_the_target_is_charged_to_what_the_target_does_longer() -> None:
    base = lanes({"forward": 80, "wait_hidden": 20}, {"forward": 60, "pack": 20, "wait_room": 20})
    candidate = lanes({"forward": 80, "wait_hidden": 60}, {"forward": 60, "pack": 80})

    charges = exact(base, candidate, wall_ns=140)

    assert charged(charges) == {"target pack": 40}
    assert charges.parts[0].through == ("drafter wait_hidden",)


def test_slack_of_the_awaited_lane_hides_part_of_its_growth() -> None:
    # The target grew by 60 and had 50 to spare: only 10 cost anything.
    base = lanes({"forward": 100}, {"pack": 20, "forward": 30, "wait_room": 50})
    candidate = lanes({"forward": 100, "wait_hidden": 10}, {"pack": 65, "forward": 45})

    assert charged(exact(base, candidate, wall_ns=110)) == {"target pack": 7.5, "target forward": 2.5}


def test_a_chain_of_waits_ends_at_the_dispatcher() -> None:
    base = lanes({"forward": 100}, {"forward": 50, "wait_room": 50}, {"batch": 10, "wait_targets": 90})
    candidate = lanes(
        {"forward": 100, "wait_hidden": 50}, {"forward": 50, "wait_work": 100}, {"batch": 150, "wait_targets": 0}
    )

    charges = exact(base, candidate, wall_ns=150)

    assert charged(charges) == {"dispatcher batch": 50}
    assert charges.parts[0].through == ("drafter wait_hidden", "target wait_work")


def test_a_wait_that_nobodys_work_explains_keeps_its_charge() -> None:
    base = lanes({"forward": 100}, {"forward": 60, "wait_room": 40})
    candidate = lanes({"forward": 100, "wait_hidden": 30}, {"forward": 60, "wait_room": 70})

    charges = exact(base, candidate, wall_ns=130)

    assert charged(charges) == {"drafter wait_hidden": 30}


def test_a_wait_for_peers_is_its_own() -> None:
    charges = exact(lanes({"forward": 90, "grad_sync": 10}), lanes({"forward": 90, "grad_sync": 40}), wall_ns=130)

    assert charged(charges) == {"drafter grad_sync": 30}


def test_time_that_no_phase_accounts_for_is_a_part_too() -> None:
    charges = exact(lanes({"forward": 95}), lanes({"forward": 95}), wall_ns=125)

    assert charged(charges) == {f"drafter {BETWEEN}": 25}


def test_what_became_faster_is_ranked_in_the_direction_of_the_change() -> None:
    charges = exact(lanes({"mask": 40, "forward": 60}), lanes({"mask": 10, "forward": 65}), wall_ns=75)

    assert [part.name for part in charges.parts] == ["drafter mask", "drafter forward"]
    assert charges.difference.estimate == pytest.approx(-25)
    assert charges.parts[1].share == pytest.approx(-0.2)


def test_a_busy_device_stream_is_followed_instead_of_the_thread_that_feeds_it() -> None:
    def cell(mask: float, wall: float) -> LaneCosts:
        device = {"mask": mask, "forward": 70}
        return window(
            {("drafter", "main"): {"metrics": wall - 5, "log": 5}, ("drafter", "main:cuda0"): device}, wall_ns=wall
        )

    charges = localise([cell(30, 100)] * 2, [cell(60, 130)] * 2)

    assert charged(charges) == {"drafter mask": 30}
    assert charges.parts[0].thread == "main:cuda0"


def test_an_idle_device_stream_is_not_followed() -> None:
    def cell(clip: float, wall: float) -> LaneCosts:
        return window(
            {("drafter", "main"): {"clip": clip, "log": 90}, ("drafter", "main:cuda0"): {"forward": 70}}, wall_ns=wall
        )

    assert charged(localise([cell(10, 100)] * 2, [cell(40, 130)] * 2)) == {"drafter clip": 30}


@pytest.mark.parametrize("num", [0, 1])
def test_fewer_than_two_windows_say_nothing(num: int) -> None:
    cell = window(lanes({"forward": 100}))

    assert charge_phases([cell] * num, [cell] * 2, np.random.default_rng(0)) is None


def test_a_trainer_without_events_cannot_be_localised() -> None:
    cell = window({}, trains=frozenset())

    assert charge_phases([cell] * 2, [cell] * 2, np.random.default_rng(0)) is None


costs = st.floats(0.0, 1e6)
WORK = ("mask", "forward")
WAITS = tuple(AWAITED)


@st.composite
def any_window(draw: st.DrawFn) -> LaneCosts:
    found = {
        (role, "main"): draw(st.dictionaries(st.sampled_from([*WORK, *WAITS]), costs, max_size=6))
        for role in draw(st.sets(st.sampled_from(["target", "dispatcher"]))) | {"drafter"}
    }
    longest = max(sum(phases.values()) for phases in found.values())
    return window(found, wall_ns=longest + draw(costs), launch=draw(st.sampled_from("ab")))


@given(st.lists(any_window(), min_size=2, max_size=4), st.lists(any_window(), min_size=2, max_size=4))
def test_parts_always_sum_to_the_change(base: list[LaneCosts], candidate: list[LaneCosts]) -> None:
    charges = localise(base, candidate)
    change = np.mean([w.wall_ns_per_token for w in candidate]) - np.mean([w.wall_ns_per_token for w in base])

    assert sum(part.charge.estimate for part in charges.parts) == pytest.approx(change, abs=1e-6 * 1e6)
    assert charges.difference.estimate == pytest.approx(change, abs=1e-6 * 1e6)


TINY = 1.1125369292536007e-308


def test_a_lane_that_grew_by_next_to_nothing_explains_next_to_nothing_of_a_wait() -> None:
    waits = lanes({"wait_hidden": 2}, {"mask": TINY, "wait_room": 2})
    charges = exact(lanes({}, {}), waits, wall_ns=WALL_NS + 2)

    assert charged(charges) == {"drafter wait_hidden": 2}


def test_phases_that_cancel_out_but_for_rounding_have_no_shares() -> None:
    charges = exact(lanes({"mask": WALL_NS}), lanes({"forward": WALL_NS, "loss": TINY}), wall_ns=WALL_NS)

    assert charged(charges) == {"drafter forward": WALL_NS, "drafter mask": -WALL_NS}
    assert {0.0} == {part.share for part in charges.parts}


def noisy(rng: np.random.Generator, mask: float, launch: str, launch_factor: float) -> LaneCosts:
    factor = launch_factor * np.exp(rng.normal(0, 0.02))
    drafter = {"mask": mask * factor, "forward": 60 * factor * np.exp(rng.normal(0, 0.01)), "loss": 20 * factor}
    wall = sum(drafter.values())
    return window(lanes(drafter, {"forward": 50, "wait_room": wall - 50}), wall_ns=wall, launch=launch)


def arm(rng: np.random.Generator, mask: float, *, num_launches: int, launch_sd: float = 0.0) -> list[LaneCosts]:
    return [
        noisy(rng, mask, f"r{launch}", factor)
        for launch in range(num_launches)
        for factor in [float(np.exp(rng.normal(0, launch_sd)))]
        for _ in range(12 // num_launches)
    ]


def first(charges: Charges) -> Part:
    return charges.parts[0]


def test_the_phase_that_grew_ranks_first_and_says_how_sure_that_is() -> None:
    rng = np.random.default_rng(1)
    charges = localise(arm(rng, 20, num_launches=1), arm(rng, 30, num_launches=1))

    assert first(charges).name == "drafter mask"
    assert first(charges).first_share > 0.95
    assert charges.explained_share > 0.8
    assert not charges.is_by_launch


@pytest.mark.parametrize(("num_launches", "launch_sd"), [(1, 0.0), (4, 0.03)])
def test_intervals_cover_the_true_charge(num_launches: int, launch_sd: float) -> None:
    num_held = num_clear = 0
    num_trials = 120
    for seed in range(num_trials):
        rng = np.random.default_rng(seed)
        base = arm(rng, 20, num_launches=num_launches, launch_sd=launch_sd)
        candidate = arm(rng, 24, num_launches=num_launches, launch_sd=launch_sd)
        by_name = {part.name: part.charge for part in localise(base, candidate).parts}
        true = 4 * np.exp((0.02**2 + launch_sd**2) / 2)
        num_held += by_name["drafter mask"].low <= true <= by_name["drafter mask"].high
        loss = by_name["drafter loss"]
        num_clear += not loss.low <= 0 <= loss.high

    # 2.5 binomial standard errors of 95 % of 120 are 5 %.
    assert num_held / num_trials >= 0.90
    assert num_clear / num_trials <= 0.10
