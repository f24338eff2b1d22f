"""All suspects are ruled, in one order; nobody is named in noise, and none without a measured cause."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.localisation import Ruling
from flashprof.stats.suspects import RULES, suspects
from flashprof.windows.evidence import ArmEvidence
from flashprof.windows.evidence_items import AllocatorUse, Compilation, GaugeUse
from tests.support.suspect_cases import PHASES, arm, frame, gpu, part, ruled, steps, thread, use

NAMES = [f"{role} {phase}" for role, phase in PHASES]
CHARGES = st.floats(-300, 300)


@st.composite
def arms(draw: st.DrawFn) -> ArmEvidence:
    """Anything that may be recorded, and anything missing."""
    num = st.floats(0, 100)
    return arm(
        threads=tuple(thread(usr=draw(num), wait=draw(num)) for _ in range(draw(st.integers(0, 2)))),
        gpus=draw(st.sampled_from([(), (gpu(clock=draw(st.floats(200, 2000))),)])),
        uses=draw(st.sampled_from([(), (use(delay=draw(st.floats(0, 1))),)])),
        steps={"drafter": steps(mean=1e6 * draw(st.floats(1, 2)), spread=draw(st.floats(0, 1e6)))},
        num_ranks={"drafter": draw(st.integers(1, 2))},
        allocators={"drafter": AllocatorUse(num_retries=1, grown_gib=1, excess_ns=draw(st.floats(0, 1e9)))},
        compilations=(Compilation(role="drafter", rank=0, what="f", seconds=draw(st.floats(0, 1))),),
        gauges={("drafter", "gc_s"): GaugeUse(num_values=10, mean=draw(st.floats(0, 1)), median=0.0)},
        facts={"versions.torch": draw(st.sampled_from(["2.13", "2.14"]))},
    )


PARTS = st.lists(st.builds(part, st.sampled_from(NAMES), CHARGES, half=st.floats(0, 300)), max_size=6)
FRAMES = st.lists(
    st.builds(frame, st.sampled_from(["Tensor.item", "make_mask", "f"]), CHARGES, half=st.floats(0, 300)), max_size=4
)


@settings(max_examples=150, deadline=None)
@given(arms(), arms(), PARTS, FRAMES, st.floats(allow_nan=True, allow_infinity=True))
def test_every_suspect_is_ruled_once_and_covers_at_most_everything(
    base: ArmEvidence, candidate: ArmEvidence, parts: list, frames: list, difference_ns: float
) -> None:
    found = suspects(base, candidate, parts, frames, difference_ns)

    assert list(RULES) == [suspect.name for suspect in found]
    assert all(0 <= suspect.share <= 1 for suspect in found)
    assert all(suspect.evidence and not suspect.evidence.isspace() for suspect in found)
    assert all(suspect.share >= 0.5 for suspect in found if suspect.ruling is Ruling.NAMED)
    assert all("nan" not in suspect.evidence for suspect in found)


NOISE = st.lists(
    st.builds(part, st.sampled_from(NAMES), st.floats(-50, 50), half=st.floats(50.1, 300)), min_size=1, max_size=6
)


@settings(max_examples=150, deadline=None)
@given(arms(), arms(), NOISE, FRAMES, st.floats(-100, 100))
def test_nobody_is_named_in_noise(
    base: ArmEvidence, candidate: ArmEvidence, parts: list, frames: list, difference_ns: float
) -> None:
    found = suspects(base, candidate, parts, frames, difference_ns)

    assert [] == [suspect.name for suspect in found if suspect.ruling is Ruling.NAMED]


def test_a_part_whose_interval_is_wide_is_neither_named_nor_ruled_out() -> None:
    found = ruled("mask building", arm(), arm(), (part("drafter mask", 150.0, half=160.0),))

    assert found.ruling is Ruling.UNKNOWN
    assert "up to 100 % of the change" in found.evidence
    assert "--budget" in found.evidence


def test_a_part_that_explains_less_than_half_is_no_name() -> None:
    found = ruled("mask building", arm(), arm(), (part("drafter mask", 80.0), part("drafter forward", 110.0)))

    assert found.ruling is Ruling.PART


def test_a_part_that_went_the_other_way_is_ruled_out() -> None:
    found = ruled("mask building", arm(), arm(), (part("drafter mask", -80.0), part("drafter forward", 250.0)))

    assert found.ruling is Ruling.RULED_OUT
    assert found.share == 0


def test_a_candidate_that_is_faster_names_what_made_it_faster() -> None:
    found = ruled("mask building", arm(), arm(), (part("drafter mask", -150.0),), difference_ns=-200.0)

    assert found.ruling is Ruling.NAMED


def test_phases_that_were_not_compared_rule_nothing_out() -> None:
    assert ruled("mask building", arm(), arm()).ruling is Ruling.UNKNOWN


def test_without_a_change_there_is_nothing_to_rule_on() -> None:
    for difference_ns in (0.0, math.nan):
        found = suspects(arm(), arm(), (), (), difference_ns)

        assert {Ruling.UNKNOWN} == {suspect.ruling for suspect in found}
