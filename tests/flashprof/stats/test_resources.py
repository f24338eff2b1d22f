"""Figures of two arms: the launch is the unit, notable ones come first, noise is not clear."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from flashprof.contracts.localisation import ResourceChange
from flashprof.stats.resources import MAX_ROWS, resource_changes
from flashprof.windows.evidence import ArmEvidence
from flashprof.windows.evidence_items import Compilation, GaugeUse
from tests.support.suspect_cases import arm, gpu, thread, use


def launch(*, usr: float = 90.0, num_recompiles: int = 0, queue: float = 1.0, **fields: object) -> ArmEvidence:
    recompile = Compilation(role="drafter", rank=0, what="recompile f", seconds=0.5)
    gauges = {
        ("drafter", "queue"): GaugeUse(num_values=9, mean=queue, median=queue),
        ("drafter", "loss"): GaugeUse(num_values=9, mean=2.0, median=2.0),
    }
    given = {"threads": (thread(usr=usr),), "compilations": (recompile,) * num_recompiles, "gauges": gauges}
    return arm(**{**given, **fields})


def named(changes: tuple[ResourceChange, ...], place: str, name: str) -> ResourceChange:
    return next(item for item in changes if (item.place, item.name) == (place, name))


def test_one_launch_an_arm_has_no_interval_and_nothing_clear() -> None:
    changes = resource_changes([launch(usr=90)], [launch(usr=40)])

    usr = named(changes, "drafter 0/drafter-0", "%usr")

    assert (usr.base, usr.candidate, usr.unit, usr.difference) == (90, 40, "%", None)
    assert changes[0] == usr
    assert not any(item.is_clear for item in changes)


def test_several_launches_have_a_welch_interval() -> None:
    from scipy.stats import ttest_ind

    values = [88.0, 90.0, 92.0], [39.0, 40.0, 41.0]
    expected = ttest_ind(values[1], values[0], equal_var=False).confidence_interval(0.95)

    base, candidate = ([launch(usr=value) for value in arm_values] for arm_values in values)
    usr = named(resource_changes(base, candidate), "drafter 0/drafter-0", "%usr")

    assert usr.difference is not None
    assert (expected.low, expected.high) == pytest.approx((usr.difference.low, usr.difference.high))
    assert usr.is_clear


def test_counts_that_are_the_same_in_all_launches_of_an_arm_are_clear() -> None:
    changes = resource_changes([launch()] * 2, [launch(num_recompiles=3)] * 2)

    recompiles = named(changes, "drafter", "recompiles")

    assert (recompiles.base, recompiles.candidate, recompiles.unit) == (0, 3, "/1,000 steps")
    assert recompiles.is_clear
    assert all(item.is_clear for item in changes[:3])


def test_noise_is_clear_in_at_most_one_comparison_of_twenty() -> None:
    rng = np.random.default_rng(0)

    def noisy() -> list[ArmEvidence]:
        return [
            launch(
                threads=tuple(thread(f"t{index}", usr=rng.normal(50, 5), wait=rng.normal(9, 2)) for index in range(8)),
                queue=rng.normal(2, 0.1),
            )
            for _ in range(4)
        ]

    num_false = sum(any(item.is_clear for item in resource_changes(noisy(), noisy())) for _ in range(200))

    assert num_false <= 18


@pytest.mark.parametrize("jitter_mhz", [0.0, 0.05])
@pytest.mark.parametrize("num_launches", [2, 3, 4, 7])
def test_clocks_of_two_levels_are_clear_in_at_most_one_comparison_of_twenty(
    num_launches: int, jitter_mhz: float
) -> None:
    rng = np.random.default_rng(1)
    num_trials = 200

    def stepped() -> list[ArmEvidence]:
        clocks_mhz = rng.choice([1965.0, 1980.0], (num_launches, 8)) + rng.normal(0, jitter_mhz, (num_launches, 8))
        return [
            launch(gpus=tuple(replace(gpu(clock=float(mhz)), index=index) for index, mhz in enumerate(row)))
            for row in clocks_mhz
        ]

    num_false = sum(any(item.is_clear for item in resource_changes(stepped(), stepped())) for _ in range(num_trials))

    print(f"{num_launches} launches an arm: {num_false} of {num_trials} comparisons without a difference were clear")
    assert num_false <= 0.05 * num_trials


def test_a_thread_that_only_one_arm_has_used_nothing_in_the_other() -> None:
    hog = (thread(), thread("reader", usr=80.0))

    reader = named(resource_changes([launch()], [launch(threads=hog)]), "drafter 0/reader", "%usr")

    assert (reader.base, reader.candidate) == (0, 80)


def test_threads_that_were_not_read_are_no_zeros() -> None:
    changes = resource_changes([launch(threads=())], [launch()])

    assert [] == [item for item in changes if item.name == "%usr"]


def test_threads_of_one_name_are_told_apart() -> None:
    changes = resource_changes(
        [launch(threads=(thread(), thread(usr=3)))], [launch(threads=(thread(), thread(usr=33)))]
    )

    assert named(changes, "drafter 0/drafter-0 #2", "%usr").candidate == 33


def test_a_reason_for_lower_clocks_that_one_arm_has_is_none_in_the_other() -> None:
    hot = launch(gpus=(gpu(clock=1700, reasons={"hw slowdown": 0.5}),))

    changes = resource_changes([launch(gpus=(gpu(),))], [hot])

    assert named(changes, "GPU 0", "clocks lowered: hw slowdown").candidate == 50
    assert named(changes, "GPU 0", "SM clock").candidate == 1700


def test_what_is_learnt_is_no_resource_and_what_is_nowhere_is_left_out() -> None:
    changes = resource_changes([launch(queue=math.nan, uses=(use(),))], [launch(uses=(use(others=0.5),))])

    names = {item.name for item in changes}

    assert "cores used by others" in names
    assert not names & {"loss", "queue", "swapped pages", "recompiles"}


def test_a_small_figure_that_doubles_is_less_notable_than_a_large_one_that_falls() -> None:
    def pair(quiet: float, busy: float) -> ArmEvidence:
        return launch(threads=(thread("quiet", usr=quiet), thread("busy", usr=busy)))

    changes = resource_changes([pair(0.1, 90)], [pair(0.4, 60)])

    assert changes[0].place == "drafter 0/busy"


def test_a_page_of_figures_is_enough() -> None:
    many = tuple(thread(f"t{index}", usr=index + 1.0, wait=1.0) for index in range(30))

    assert len(resource_changes([launch(threads=many)], [launch(threads=many)])) == MAX_ROWS


def test_an_arm_without_launches_has_nothing_to_compare() -> None:
    assert resource_changes([], [launch()]) == ()
