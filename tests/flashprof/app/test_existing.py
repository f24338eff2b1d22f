"""Runs that were measured earlier: alike but for what is under test, and no failed one among them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import calibrations
import pytest
from launch_files import PHASES, cold_launch, write_counters

from flashprof.app.existing import compare_runs
from flashprof.contracts.comparison import DecisionRule, Method, StudyResult, Verdict
from flashprof.contracts.errors import FormatError, UnknownNameError, UsageError
from flashprof.store.calibration_file import write_calibration
from flashprof.store.run_folder import FORMAT, VERSION

RATES = (10_000.0, 10_020.0, 9_985.0)
FACTS = {**calibrations.FACTS, "toggles.swa": "off"}


@dataclass
class Shelf:
    """A reports folder with runs."""

    path: Path
    runs: dict[str, list[Path]] = field(default_factory=lambda: {"base": [], "candidate": []})

    def put(
        self,
        side: str,
        tok_per_s: float,
        *,
        facts: Mapping[str, str] | None = None,
        outcome: str = "completed",
        num_windows: int = 3,
        is_told: bool = False,
    ) -> Path:
        """One run of windows of 2 s each; of a trainer that prints its throughput, *is_told*."""
        path = self.path / f"{side}-{len(self.runs[side]) + 1}"
        path.mkdir(parents=True)
        swa = {"base": "off", "candidate": "on"}[side]
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "outcome": outcome,
            "reason": "" if outcome == "completed" else "RuntimeError: boom",
            "cell_facts": {**FACTS, "toggles.swa": swa, **(facts or {})},
            "cell": {"toggles": "swa" if side == "candidate" else "none"},
        }
        (path / "manifest.json").write_text(json.dumps(manifest))
        windows = [
            {
                "label": f"measure-{index}",
                "kind": "measure",
                "start_ns": (10 + 2 * index) * 10**9,
                "end_ns": (12 + 2 * index) * 10**9,
                "num_steps": 10,
                "num_tokens": round(2 * tok_per_s),
                "num_supervised_tokens": 0,
                "num_padding_tokens": 0,
                "length_s": 2.0,
                "tok_per_s": tok_per_s,
                **({"told_tok_per_s": tok_per_s} if is_told else {}),
            }
            for index in range(num_windows)
        ]
        (path / "summary.json").write_text(json.dumps({"windows": windows}))
        self.runs[side].append(path)
        return path

    def fill(self, *, factor: float, num_runs: int = 3) -> None:
        for rate in RATES[:num_runs]:
            self.put("base", rate)
            self.put("candidate", rate * factor)

    def compare(self, *allow: str) -> StudyResult:
        return compare_runs(self.runs["base"], self.runs["candidate"], DecisionRule(), allow=allow, reports=self.path)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_three_runs_a_side_show_their_own_spread(shelf: Shelf) -> None:
    shelf.fill(factor=0.83)
    result = shelf.compare()
    (comparison,) = result.comparisons

    assert (Verdict.REGRESSION, Method.EXISTING) == (result.verdict, comparison.method)
    assert -0.17 == pytest.approx(comparison.effect.estimate, abs=0.001)
    assert "Welch" in comparison.effect.method
    assert (6, 18) == (comparison.num_launches, comparison.num_windows)
    assert ("none", "swa", "lab-7") == (result.base, result.candidate, result.cell["machine"])


def test_printed_rates_are_compared_as_they_were_printed(shelf: Shelf) -> None:
    """Both sides have 3 whole tokens in each window of 2 s."""
    for rate in (1.51, 1.50, 1.52):
        shelf.put("base", rate, is_told=True)
        shelf.put("candidate", 0.987 * rate, is_told=True)
    (comparison,) = shelf.compare().comparisons

    assert -0.013 == pytest.approx(comparison.effect.estimate)


@pytest.mark.parametrize("rate", [-1.0, None, "fast"])
def test_a_printed_rate_that_is_none_is_damage(shelf: Shelf, rate: object) -> None:
    path = shelf.put("base", 1.5, is_told=True) / "summary.json"
    summary = json.loads(path.read_text())
    summary["windows"][0]["told_tok_per_s"] = rate
    path.write_text(json.dumps(summary))
    shelf.put("candidate", 1.5)

    with pytest.raises(FormatError, match="no summary that can be read"):
        shelf.compare()


def test_runs_with_events_say_where_they_differ(shelf: Shelf) -> None:
    shelf.fill(factor=0.94, num_runs=1)
    for (path,), phases in zip(shelf.runs.values(), (PHASES, {**PHASES, "backward": 36.0}), strict=True):
        cold_launch(phases).write(path)
    result = shelf.compare()

    assert result.localisation is not None
    assert ("none", "swa") == (result.localisation.base, result.localisation.candidate)
    assert "trainer backward" == result.localisation.parts[0].name


def test_runs_without_events_are_compared_all_the_same(shelf: Shelf) -> None:
    shelf.fill(factor=0.94)

    assert shelf.compare().localisation is None


def test_equal_runs_are_no_regression(shelf: Shelf) -> None:
    shelf.fill(factor=1.0)

    assert Verdict.NO_REGRESSION is shelf.compare().verdict


def test_one_run_a_side_says_nothing_unless_a_calibration_knows_the_spread(shelf: Shelf) -> None:
    shelf.fill(factor=0.83, num_runs=1)
    before = shelf.compare()
    folder = shelf.path / "calibration-1"
    folder.mkdir()
    write_calibration(folder, calibrations.quiet())
    after = shelf.compare()

    assert (Verdict.INCONCLUSIVE, math.inf) == (before.verdict, before.comparisons[0].deciding.high)
    assert "flashprof calibrate" in before.comparisons[0].reason
    assert Verdict.REGRESSION is after.verdict
    assert "calibrated" in after.comparisons[0].effect.method


def test_a_calibration_of_another_machine_is_none(shelf: Shelf) -> None:
    for side in ("base", "candidate"):
        shelf.put(side, 10_000.0 if side == "base" else 8_300.0, facts={"machine.host": "elsewhere"})
    folder = shelf.path / "calibration-1"
    folder.mkdir()
    write_calibration(folder, calibrations.quiet())

    assert Verdict.INCONCLUSIVE is shelf.compare().verdict


def test_unlike_cells_are_refused_by_name_and_allowed_by_name(shelf: Shelf) -> None:
    shelf.put("base", 10_000.0)
    shelf.put("candidate", 8_300.0, facts={"machine.cpu": "another"})
    with pytest.raises(UsageError, match="differ in more") as caught:
        shelf.compare()

    assert "machine.cpu: a CPU <of some kind> → another" == caught.value.offered
    assert "--allow machine.cpu" in str(caught.value.next_command)
    assert 2 == shelf.compare("machine.cpu").comparisons[0].num_launches
    with pytest.raises(UnknownNameError):
        shelf.compare("machine.gpuu")


def test_the_code_may_differ_and_gives_the_arms_their_names(shelf: Shelf) -> None:
    for side, commit in (("base", "1111111"), ("candidate", "2222222")):
        shelf.put(side, 10_000.0, facts={"toggles.swa": "on", "source.commit": commit})
    for path in (*shelf.runs["base"], *shelf.runs["candidate"]):
        manifest = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_text(json.dumps({**manifest, "cell": {"toggles": "swa"}}))
    result = shelf.compare()

    assert ("1111111", "2222222") == (result.base, result.candidate)


def test_runs_without_a_name_of_their_own_are_called_like_their_folder(shelf: Shelf) -> None:
    for side in ("base", "candidate"):
        path = shelf.put(side, 10_000.0, facts={"toggles.swa": "on"})
        manifest = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_text(json.dumps({**manifest, "cell": {}}))
    result = shelf.compare()

    assert ("base-1", "candidate-1") == (result.base, result.candidate)


def test_runs_of_one_side_must_be_of_one_cell(shelf: Shelf) -> None:
    shelf.fill(factor=1.0)
    shelf.put("base", 10_000.0, facts={"toggles.swa": "on"})
    with pytest.raises(UsageError, match="differ in more") as caught:
        shelf.compare()

    assert "toggles.swa: off → on" == caught.value.offered


def test_failed_runs_are_left_out_and_named(shelf: Shelf) -> None:
    shelf.fill(factor=0.83)
    shelf.put("candidate", 99_000.0, outcome="crashed")
    result = shelf.compare()

    assert 6 == result.comparisons[0].num_launches
    assert -0.17 == pytest.approx(result.comparisons[0].effect.estimate, abs=0.001)
    assert ("candidate-4: left out. Crashed. RuntimeError: boom",) == result.failures


def test_a_run_that_was_cut_off_before_its_summary_is_left_out_too(shelf: Shelf) -> None:
    shelf.fill(factor=0.83)
    path = shelf.put("base", 1.0, outcome="interrupted")
    (path / "summary.json").unlink()
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({key: manifest[key] for key in ("format", "version", "outcome")}))

    assert ("base-4: left out. Interrupted.",) == shelf.compare().failures


def test_a_side_without_a_measurement_is_wrong_input(shelf: Shelf) -> None:
    shelf.put("base", 10_000.0)
    shelf.put("candidate", 9_000.0, outcome="out of memory")
    shelf.put("candidate", 9_000.0, num_windows=0)
    with pytest.raises(UsageError, match="no run of this side") as caught:
        shelf.compare()

    assert "Out of memory. RuntimeError: boom No measure window holds a token." == caught.value.offered


def test_disturbed_windows_are_left_out_and_told(shelf: Shelf) -> None:
    shelf.fill(factor=0.83)
    write_counters(shelf.runs["base"][0] / "counters.jsonl", until_s=20, busy_s=[(12.5, 13.5)])
    result = shelf.compare()
    (note,) = result.notes

    assert 17 == result.comparisons[0].num_windows
    assert note.startswith("base-1: 1 of 3 windows were disturbed: other processes used 0.5 cores")


def test_a_disturbed_run_is_left_out_as_a_whole(shelf: Shelf) -> None:
    shelf.fill(factor=0.83)
    write_counters(shelf.runs["base"][0] / "counters.jsonl", until_s=20, busy_s=[(10.5, 15.5)])
    result = shelf.compare()

    assert 5 == result.comparisons[0].num_launches
    assert "base-1: left out. Disturbed: other processes used" in result.failures[0]


def test_a_run_of_an_older_flashprof_is_told_to_be_measured_again(shelf: Shelf) -> None:
    shelf.fill(factor=1.0)
    (shelf.runs["base"][0] / "manifest.json").write_text(
        json.dumps({"format": FORMAT, "version": VERSION, "outcome": "completed", "reason": ""})
    )
    with pytest.raises(FormatError, match="does not say what its cell was"):
        shelf.compare()


@pytest.mark.parametrize("content", ["{", "{}", '{"windows": [{"kind": "measure"}]}', '{"windows": 3}', "[]"])
def test_a_summary_that_cannot_be_read_is_named(shelf: Shelf, content: str) -> None:
    shelf.fill(factor=1.0)
    path = shelf.runs["candidate"][1] / "summary.json"
    path.write_text(content)
    with pytest.raises(FormatError, match="no summary") as caught:
        shelf.compare()

    assert str(path) == caught.value.where


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_tokens", "many"),
        ("num_tokens", -4),
        ("num_tokens", 10**30),
        ("end_ns", 0),
        ("start_ns", None),
        ("kind", "other"),
        ("label", 3),
    ],
)
def test_a_window_that_cannot_be_is_named(shelf: Shelf, name: str, value: object) -> None:
    shelf.fill(factor=1.0)
    path = shelf.runs["candidate"][1] / "summary.json"
    summary = json.loads(path.read_text())
    summary["windows"][1][name] = value
    path.write_text(json.dumps(summary))
    with pytest.raises(FormatError, match="no summary") as caught:
        shelf.compare()

    assert str(path) == caught.value.where
    assert caught.value.offered


def test_a_summary_that_is_nested_without_end_is_refused(shelf: Shelf) -> None:
    shelf.fill(factor=1.0)
    (shelf.runs["base"][0] / "summary.json").write_text("[" * 5000)
    with pytest.raises(FormatError, match="no summary"):
        shelf.compare()


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("outcome", "splendid", "a wrong outcome"),
        ("outcome", None, "a wrong outcome"),
        ("outcome", ["completed"], "a wrong outcome"),
        ("cell_facts", 10, "a wrong cell_facts"),
        ("cell_facts", "text", "a wrong cell_facts"),
        ("cell_facts", {"machine.host": 5}, "a wrong cell_facts.machine.host"),
        ("cell_facts", {"machine.host": ["a"]}, "a wrong cell_facts.machine.host"),
        ("cell", 10, "a wrong cell"),
    ],
)
def test_a_manifest_of_other_types_is_refused_by_file_and_field(
    shelf: Shelf, field: str, value: object, said: str
) -> None:
    shelf.fill(factor=1.0)
    path = shelf.runs["base"][1] / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(FormatError) as caught:
        shelf.compare()

    assert caught.value.what.endswith(said)
    assert str(path) == caught.value.where
    assert caught.value.offered in json.dumps(value)
    assert caught.value.next_command


def test_a_threads_table_with_bytes_that_are_no_text_is_refused_with_its_path(shelf: Shelf) -> None:
    shelf.fill(factor=0.94, num_runs=1)
    for (path,) in shelf.runs.values():
        cold_launch(PHASES).write(path)
    threads = shelf.runs["base"][0] / "samples" / "profile-1" / "threads.csv"
    threads.parent.mkdir(parents=True)
    threads.write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError) as caught:
        shelf.compare()

    assert str(threads) == caught.value.where
