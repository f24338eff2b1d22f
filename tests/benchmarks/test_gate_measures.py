"""The gate study's numbers: what counts as false, caught and seen, and the file that they go to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from benchmarks.gate import main
from benchmarks.gate_drift import Course
from benchmarks.gate_measures import SEEN, drift_measures, real_measures, simulated_measures
from benchmarks.gate_noise import MIN_GATES
from benchmarks.gate_simulation import SimulatedGate
from benchmarks.gate_trials import Pair, Trial, write_lane
from benchmarks.results_file import Measure
from flashprof.contracts.comparison import Verdict

LOUD, CALM = -0.05, 0.01


def trial(kind: str, verdict: Verdict, first: float = CALM, **fields: object) -> Trial:
    pairs = tuple(
        Pair(order=order, difference=step, base_log_tok_per_s=9.0, length_s=50.0)
        for order, step in (("AB", first), ("BA", CALM))
    )
    return replace(
        Trial(
            kind=kind,
            number=0,
            lane=0,
            num_lanes=1,
            budget_s=1200.0,
            started="",
            hardware="2x fake",
            commit="abc",
            status=0,
            verdict=str(verdict),
            change=(first, -0.1, 0.1),
            pairs=pairs,
            spent_s=120.0,
        ),
        **fields,  # type: ignore[arg-type]
    )


TRIALS = [
    *[trial("aa-docs", Verdict.NO_REGRESSION, LOUD, number=number) for number in range(3)],
    trial("aa-docs", Verdict.REGRESSION, number=3),
    trial("aa-busy", Verdict.INCONCLUSIVE, number=4),
    trial("planted-5", Verdict.REGRESSION, LOUD, number=5),
    trial("planted-5", Verdict.INCONCLUSIVE, number=6),
    trial("planted-17", Verdict.REGRESSION, LOUD, number=7),
    trial("planted-17", Verdict.INCONCLUSIVE, number=8, is_failed=True, status=4),
    replace(trial("aa-docs", Verdict.NO_REGRESSION, number=9), verdict="", status=2, pairs=(), change=None),
]


def by_name(measures: list[Measure]) -> dict[str, Measure]:
    return {measure.name: measure for measure in measures}


def test_real_gates_are_counted_by_what_they_should_have_said() -> None:
    found = by_name(list(real_measures(TRIALS)))

    assert {
        "false_fail_real_num": 5.0,
        "unanswered_real_num": 2.0,
        "false_fail_real_docs": 25.0,
        "false_fail_real_busy": 0.0,
        "false_fail_real_all": 20.0,
        "caught_real_5_pct": 50.0,
        "caught_real_17_pct": 100.0,
        "fixed_threshold_false_fail_real_docs": 75.0,
        "fixed_threshold_false_fail_real_busy": 0.0,
        "fixed_threshold_false_fail_real_all": 60.0,
        "fixed_threshold_caught_real_5_pct": 50.0,
        "fixed_threshold_caught_real_17_pct": 100.0,
    } == {name: measure.value for name, measure in found.items()}
    assert [False, True] == [found[f"false_fail_real_{kind}"].met for kind in ("docs", "busy")]
    assert [False, True] == [found[f"caught_real_{loss}_pct"].met for loss in (5, 17)]
    assert found["false_fail_real_num"].met is False


def test_how_a_gate_ended_and_what_it_took_is_told_beside() -> None:
    note = by_name(list(real_measures(TRIALS)))["caught_real_5_pct"].note

    assert "1 regression, 1 inconclusive" in note
    assert "2 pairs, at most 2, 2.0 min of 20" in note
    assert "measured change -2.0 %" in note


def test_kinds_that_were_not_recorded_have_no_measure() -> None:
    found = by_name(list(real_measures(TRIALS[:4])))

    assert "caught_real_5_pct" not in found
    assert found["false_fail_real_all"].value == found["false_fail_real_docs"].value


def test_simulated_gates_may_never_be_false_and_catch_what_was_planted() -> None:
    gate = SimulatedGate(verdict=Verdict.INCONCLUSIVE, num_pairs=18, first_difference=CALM, covers=True)
    caught = replace(gate, verdict=Verdict.REGRESSION, first_difference=LOUD)
    gates = {0.0: [gate] * 99 + [caught], -0.05: [gate, caught]}
    found = by_name(list(simulated_measures("gaussian", 0.02, gates)))

    assert (1.0, True) == (found["false_fail_simulated_gaussian"].value, found["false_fail_simulated_gaussian"].met)
    assert (50.0, False) == (
        found["caught_simulated_gaussian_5_pct"].value,
        found["caught_simulated_gaussian_5_pct"].met,
    )
    assert 50.0 == found["fixed_threshold_caught_simulated_gaussian_5_pct"].value
    assert "pair sd 2.0 %" in found["caught_simulated_gaussian_5_pct"].note


def test_what_the_history_tells_stands_beside_the_threshold() -> None:
    courses = [Course(is_told=True, is_called=False)] * 19 + [Course(is_told=False, is_called=True)]
    told, called = drift_measures("seen_noise", courses, SEEN)

    assert ("drift_seen_noise", 95.0, True) == (told.name, told.value, told.met)
    assert ("fixed_threshold_drift_seen_noise", 5.0, None) == (called.name, called.value, called.met)


def test_the_study_writes_its_file(tmp_path: Path) -> None:
    more = [trial("aa-busy", Verdict.NO_REGRESSION, number=10 + number) for number in range(MIN_GATES)]
    write_lane(tmp_path / "lane-0.jsonl", [*TRIALS, *more])
    done = CliRunner().invoke(main, ["--from", str(tmp_path), "--num", "2", "--results", str(tmp_path / "results")])
    (path,) = (tmp_path / "results").iterdir()
    document = json.loads(path.read_text())
    names = [measure["name"] for measure in document["measures"]]

    assert done.exception is None
    assert path.name.startswith("gate_2x-fake_")
    assert len([*TRIALS, *more]) == len(document["data"]["trials"])
    assert {"false_fail_real_docs", "false_fail_simulated_recorded_gates", "drift_false_odd_runs"} < set(names)
    assert {"drift_seen_noise_1_pct_1_runs", "fixed_threshold_drift_seen_recorded_gates_4_runs"} < set(names)
    assert all(name.startswith(("false_fail", "unanswered", "caught", "drift", "fixed_threshold")) for name in names)
