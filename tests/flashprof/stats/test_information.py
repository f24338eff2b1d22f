"""A cell is worth what its next reading tells hypotheses apart: nothing, a bit, or something in between."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.stats.information import information, predictions
from flashprof.stats.posterior import Evidence, NoisePrior, Posterior, infer
from flashprof.stats.terms import Terms, commit_terms

SHARP = NoisePrior(window_sd=0.002, launch_sd=0.0, drift_sd=0.0, scale_sd=0.0)
NEW = -1


def searched(
    cells: list[int], values: list[float], noise: NoisePrior, *, step_s: float = 10.0, num: int = 16
) -> Posterior:
    """Commits of a line, read in launches of their own."""
    return infer(
        commit_terms([str(number) for number in range(num)]),
        Evidence(
            rows=row(cells, num),
            values=np.array(values),
            launches=np.arange(len(cells)),
            at_s=step_s * np.arange(len(cells)),
        ),
        noise,
    )


def row(cells: list[int], num: int = 16) -> np.ndarray:
    return (np.arange(num) < np.array(cells)[:, None]).astype(float)


def gained(posterior: Posterior, cells: list[int], at_s: float = 1e4) -> np.ndarray:
    return information(posterior, row(cells, len(posterior.terms.names)), np.full(len(cells), NEW), at_s)


def test_the_middle_of_a_sharp_search_is_worth_one_bit() -> None:
    posterior = searched([0, 16, 0, 16], [9.0, 8.8, 9.0, 8.8], SHARP)

    gains = gained(posterior, list(range(17)))

    assert 8 == int(np.argmax(gains))
    assert math.log(2) == pytest.approx(gains[8], rel=0.1)
    assert gains[0] < 0.02
    assert gains[16] < 0.02


def test_halving_holds_for_more_commits_than_hypotheses_that_are_told_apart() -> None:
    posterior = searched([0, 400, 0, 400], [9.0, 8.8, 9.0, 8.8], SHARP, num=400)

    gains = gained(posterior, [50, 100, 200, 300, 350])

    assert 2 == int(np.argmax(gains))


def test_a_cell_that_tells_nothing_is_worth_nothing() -> None:
    terms = Terms(
        names=(("a",), ("b",)),
        priors=np.array([0.2, 0.2]),
        spike_sd=np.zeros(2),
        slab_sd=0.1,
        max_active=2,
    )
    evidence = Evidence(
        rows=np.zeros((6, 2)), values=np.full(6, 9.0), launches=np.zeros(6, dtype=int), at_s=np.arange(6.0)
    )
    posterior = infer(terms, evidence, SHARP)

    gains = information(posterior, np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([0, 0]), 6.0)

    assert 0.0 == pytest.approx(gains[0], abs=1e-6)
    assert gains[1] > 0.2


def test_before_the_first_reading_no_cell_is_worth_much() -> None:
    gains = gained(searched([], [], SHARP), [0, 8, 16])

    assert np.all(gains < 0.01)


def test_an_end_becomes_worth_a_window_again_as_drift_forgets() -> None:
    noise = NoisePrior(window_sd=0.004, launch_sd=0.0, drift_sd=0.05, drift_s=300.0, scale_sd=0.0)
    cells, values = [0, 16, 0, 16, 8], [9.0, 8.9, 9.0, 8.9, 8.95]
    posterior = searched(cells, values, noise)

    soon, late = (gained(posterior, [4], at_s=at_s)[0] for at_s in (50.0, 5000.0))

    assert soon > 2 * late


def test_the_launch_at_hand_tells_more_than_a_new_one() -> None:
    noise = NoisePrior(window_sd=0.004, launch_sd=0.05, drift_sd=0.0, scale_sd=0.0)
    posterior = infer(
        commit_terms([str(number) for number in range(16)]),
        Evidence(
            rows=row([0, 16, 0, 16]),
            values=np.array([9.0, 8.9, 9.0, 8.9]),
            launches=np.zeros(4, dtype=int),
            at_s=np.arange(4.0),
        ),
        noise,
    )

    here, new = information(posterior, row([8, 8]), np.array([0, NEW]), 5.0)

    assert here > 2 * new


def test_predictions_are_where_the_readings_were() -> None:
    posterior = searched([0, 16] * 4, [9.0, 8.8] * 4, SHARP)
    single = posterior.hypotheses.index((7,))

    means, variances = predictions(posterior, np.array([single]), row([0, 7, 8, 16]), np.full(4, NEW), 100.0)

    assert [9.0, 9.0, 8.8, 8.8] == pytest.approx(means[:, 0].tolist(), abs=0.003)
    assert np.all(variances > SHARP.window_sd**2)


@settings(max_examples=25, deadline=None)
@given(
    cells=st.lists(st.integers(0, 16), min_size=1, max_size=8),
    seed=st.integers(0, 1000),
    window_sd=st.sampled_from([1e-4, 0.01, 0.2]),
)
def test_it_is_never_negative_nor_more_than_all_that_is_unknown(cells: list[int], seed: int, window_sd: float) -> None:
    values = 9 + np.random.default_rng(seed).normal(0, 0.05, len(cells))
    posterior = searched(cells, values.tolist(), NoisePrior(window_sd=window_sd))

    gains = gained(posterior, list(range(17)))

    assert np.all(np.isfinite(gains))
    assert np.all((gains >= 0) & (gains <= math.log(128)))
