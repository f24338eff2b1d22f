"""Many phases, one verdict each: few false ones, and intervals that say the same as the flags."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.stats.multiplicity import SHARE_FALSE, PhaseKey, e_bh, phase_changes

LOG_E = st.floats(-3, 12)


def of_phases(differences: np.ndarray) -> tuple[dict[PhaseKey, list[float]], dict[PhaseKey, float]]:
    """One phase a row."""
    keys = [("drafter", f"phase {row}", "work") for row in range(len(differences))]
    return dict(zip(keys, differences.tolist(), strict=True)), dict.fromkeys(keys, 1_000.0)


@pytest.mark.parametrize(
    ("e_values", "rejected"),
    [
        ([], ()),
        ([19.0], ()),
        ([20.0], (0,)),
        # Two of two need 20 each, one of two 40.
        ([21.0, 20.5], (0, 1)),
        ([39.0, 1.0], ()),
        ([1.0, 41.0], (1,)),
        # The third is carried by nothing: 3 of 4 need 26.7.
        ([50.0, 26.0, 50.0, 0.0], (0, 2)),
    ],
)
def test_e_bh_rejects_the_most_that_each_carry_their_share(e_values: list[float], rejected: tuple[int, ...]) -> None:
    logs = [math.log(value) if value else -math.inf for value in e_values]

    assert rejected == e_bh(logs, 0.05)


@given(logs=st.lists(LOG_E, max_size=12))
def test_what_is_rejected_carries_more_evidence_than_what_is_not(logs: list[float]) -> None:
    rejected = e_bh(logs, 0.05)
    kept = [logs[index] for index in range(len(logs)) if index not in rejected]

    assert sorted(set(rejected)) == list(rejected)
    assert all(logs[index] >= math.log(len(logs) / (0.05 * len(rejected))) for index in rejected)
    assert not rejected or max(kept, default=-math.inf) < math.log(len(logs) / (0.05 * len(rejected)))


def test_of_twenty_changed_and_unchanged_phases_at_most_five_percent_are_false() -> None:
    """Dependent on purpose: all phases of a block share a part of its noise, with either sign."""
    rng = np.random.default_rng(31)
    signs = np.where(np.arange(20) % 2, 1.0, -1.0)
    truths = np.where(np.arange(20) < 4, 60.0, 0.0)
    shares_false: list[float] = []
    shares_found: list[float] = []
    for _ in range(600):
        noise = 8 * rng.standard_normal((20, 7)) + 8 * signs[:, None] * rng.standard_normal(7)
        changes = phase_changes(*of_phases(truths[:, None] + noise))
        changed = [int(change.phase.split()[1]) for change in changes if change.is_changed]
        shares_false.append(sum(index >= 4 for index in changed) / max(1, len(changed)))
        shares_found.append(sum(index < 4 for index in changed) / 4)
    print(f"false among changed: {np.mean(shares_false):.4f}; found: {np.mean(shares_found):.3f}")

    assert np.mean(shares_false) <= 0.05
    assert np.mean(shares_found) >= 0.9


@given(
    differences=st.lists(
        st.lists(st.integers(-20, 20).map(float), min_size=6, max_size=6), min_size=1, max_size=8
    ).filter(lambda rows: all(len(set(row)) > 1 for row in rows))
)
def test_an_interval_excludes_zero_exactly_where_the_phase_changed(differences: list[list[float]]) -> None:
    changes = phase_changes(*of_phases(np.array(differences)))

    assert len(differences) == len(changes)
    for change in changes:
        assert change.is_changed == (not change.difference.low <= 0 <= change.difference.high)


def test_changed_phases_come_first_and_large_ones_before_small() -> None:
    noise = np.array([-1.0, 1.0, -2.0, 2.0, 0.5, -0.5])
    changes = phase_changes(*of_phases(np.stack([3 + 9 * noise, noise - 50, noise + 90, noise])))

    assert ["phase 2", "phase 1", "phase 0", "phase 3"] == [change.phase for change in changes]
    assert [True, True, False, False] == [change.is_changed for change in changes]
    assert ("drafter", "work", 1_000.0) == (changes[0].role, changes[0].kind, changes[0].base_ns_per_token)
    assert changes[0].difference.level == pytest.approx(1 - SHARE_FALSE * 2 / 4)


def test_a_phase_that_is_not_there_in_either_arm_did_not_change() -> None:
    (change,) = phase_changes(*of_phases(np.zeros((1, 5))))

    assert not change.is_changed
    assert (0.0, 0.0) == (change.difference.low, change.difference.high)


def test_what_cannot_be_judged_is_left_out() -> None:
    key, single, broken = (("target", name, "work") for name in ("forward", "once", "broken"))
    differences = {key: [1.0, 2.0], single: [1.0], broken: [1.0, math.nan]}
    changes = phase_changes(differences, dict.fromkeys(differences, 5.0))

    assert ["forward"] == [change.phase for change in changes]
