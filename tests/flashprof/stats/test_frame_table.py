"""Samples of a role, counted by frame: every sample belongs to one, and counts once for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.profiles import PHASE_FILE, FrameId, ProfiledWindow
from flashprof.stats.frame_match import is_own_code
from flashprof.stats.frame_table import main_windows, role_table

OWN = [FrameId(name, "pipeline/train/step.py") for name in ("run", "_forward", "_update")]
OTHERS = [FrameId("linear", "torch/nn/functional.py"), FrameId("poll", "selectors.py"), FrameId("mask", PHASE_FILE)]
STACKS = st.dictionaries(
    st.lists(st.sampled_from([*OWN, *OTHERS]), max_size=6).map(tuple), st.integers(1, 50), min_size=1, max_size=8
)
Stacks = Mapping[tuple[FrameId, ...], int]


def window(stacks: Stacks, **fields: object) -> ProfiledWindow:
    given_fields = {"launch": "a", "label": "profile-1", "role": "drafter", "ns_per_token": 1000.0} | fields
    return ProfiledWindow(num_ranks=1, stacks=stacks, **given_fields)


@settings(deadline=None)
@given(base=STACKS, candidate=STACKS)
def test_every_sample_is_somebodys_own(base: Stacks, candidate: Stacks) -> None:
    table = role_table("drafter", [window(base), window(base)], [window(candidate)])

    assert [sum(base.values())] * 2 == table.own.base.sum(axis=0).tolist()
    assert [sum(candidate.values())] == table.own.candidate.sum(axis=0).tolist()
    assert [sum(base.values())] * 2 == table.own_phases.base.sum(axis=0).tolist()
    assert np.isclose(table.own.change(table.arms).sum(), 0.0)  # Both arms take 1,000 ns a token.


@settings(deadline=None)
@given(base=STACKS, candidate=STACKS)
def test_inclusive_holds_own_and_own_holds_self(base: Stacks, candidate: Stacks) -> None:
    table = role_table("drafter", [window(base)], [window(candidate)])
    innermost: Counter[FrameId] = Counter()
    for stack, num in candidate.items():
        functions = [frame for frame in stack if not frame.is_phase]
        innermost[functions[-1] if functions else FrameId("", "")] += num

    assert (table.inclusive.candidate >= table.own.candidate).all()
    assert (table.inclusive.base >= table.own.base).all()
    for frame, row in table.inclusive.keys.items():
        if is_own_code(frame):
            assert table.own.candidate[row, 0] >= innermost[frame] >= 0


@settings(deadline=None)
@given(stacks=STACKS)
def test_frames_are_one_whatever_object_they_are(stacks: Stacks) -> None:
    copied = {tuple(FrameId(frame.name, frame.file) for frame in stack): num for stack, num in stacks.items()}

    assert main_windows([window(stacks)]) == main_windows([window(copied)])
    table = role_table("drafter", [window(stacks)], [window(copied)])
    assert np.array_equal(table.inclusive.base, table.inclusive.candidate)


def test_windows_come_in_the_order_of_their_names() -> None:
    first, second = window({(OWN[0],): 1}), window({(OWN[0],): 1}, label="profile-2")

    assert {"drafter": [first, second]} == main_windows([second, first])


def test_ranks_are_pooled_into_their_mean() -> None:
    table = role_table("drafter", [window({(OWN[0],): 30, (OWN[1],): 10})], [window({(OWN[0],): 30})])

    assert [25.0] == table.arms[0].ns_per_sample.tolist()
    assert [250.0, -250.0] == pytest.approx(table.own.change(table.arms).tolist())


def test_the_line_that_most_windows_saw_is_shown() -> None:
    lines = [window({(OWN[0],): 1}, label=str(number), lines={OWN[0]: line}) for number, line in enumerate((7, 9, 9))]

    assert {OWN[0]: 9} == role_table("drafter", lines[:1], lines[1:]).lines
