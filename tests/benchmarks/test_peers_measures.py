"""What the study concludes from its parts: ratios, goals, and only what both sides have been measured for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.measures import table, to_measures
from benchmarks.peers.page import BEGIN, END, with_numbers
from benchmarks.peers.picture import draw
from benchmarks.peers.record import Parts
from benchmarks.peers.work import FULL
from benchmarks.results_file import Measure, write_results


def timing(step_ms: float, num_tokens: float = 6144, num_compiled: int = 0) -> dict[str, Any]:
    return {
        "step_ms": step_ms,
        "tok_per_s": num_tokens / step_ms * 1e3,
        "peak_gib": 40.0,
        "num_compiled": num_compiled,
    }


def found() -> dict[str, Parts]:
    return {
        "flashprof": {
            "setup": {"differences": ["toggles: all"]},
            "warmup": {"warmup_s": 48.0, "loss": 12.0, "num_compiled": 9},
            "fixed": timing(220),
            "varying": timing(225, num_tokens=6000) | {"first_pass": timing(300, num_compiled=2)},
            "target": timing(150) | {"varying": timing(148, num_tokens=5900)},
            "both": timing(375),
        },
        "speculators": {
            "warmup": {"warmup_s": 130.0, "loss": 12.003, "num_compiled": 2},
            "fixed": timing(323),
            "labels": timing(29),
            "both": timing(540),
        },
        "specforge": {
            "warmup": {"warmup_s": 20.0, "loss": 12.2, "num_compiled": 1},
            "fixed": timing(394),
            "both": timing(600),
        },
        "transformers": {"target_logits": timing(210), "target_stop": timing(186)},
    }


def by_name(measures: list[Measure]) -> dict[str, Measure]:
    return {measure.name: measure for measure in measures}


def test_the_drafter_is_compared_with_the_faster_peer() -> None:
    measure = by_name(to_measures(found(), FULL))["drafter_ratio"]

    assert 323 / 220 == pytest.approx(measure.value)
    assert measure.met
    assert "speculators" in measure.note


def test_labels_given_for_nothing_can_take_the_lead_away() -> None:
    measure = by_name(to_measures(found(), FULL))["drafter_ratio_equal_labels"]

    assert (323 - 29) / 220 == pytest.approx(measure.value)
    assert measure.met is False


def test_target_and_both_are_compared_with_what_the_peers_run() -> None:
    measures = by_name(to_measures(found(), FULL))

    assert 210 / 150 == pytest.approx(measures["target_ratio_logits"].value)
    assert measures["target_ratio_stop"].goal is None
    assert 540 / 375 == pytest.approx(measures["both_ratio"].value)


def test_varying_lengths_cost_what_tok_per_s_lost() -> None:
    measures = by_name(to_measures(found(), FULL))

    assert 100 * (1 - (6000 / 225) / (6144 / 220)) == pytest.approx(measures["drafter_flashprof_varying_cost"].value)
    assert measures["drafter_flashprof_recompiled"].met
    assert 225 / 220 == pytest.approx(measures["drafter_flashprof_varying_step"].value)
    assert measures["drafter_flashprof_varying_step"].met
    assert "9 graphs" in measures["warmup_flashprof"].note


def test_losses_that_lie_apart_are_told_as_unmet() -> None:
    measures = by_name(to_measures(found(), FULL))

    assert measures["loss_speculators_apart"].met
    assert measures["loss_specforge_apart"].met is False


def test_a_system_that_did_not_run_takes_its_ratios_with_it() -> None:
    parts = found()
    parts["speculators"] = {"lost": {"error": "killed after 230 s"}}
    parts["specforge"] = {"setup": {"error": "ModuleNotFoundError: specforge"}}
    measures = by_name(to_measures(parts, FULL))

    assert "drafter_flashprof" in measures
    assert not {"drafter_ratio", "both_ratio", "loss_specforge_apart"} & set(measures)
    assert "killed after 230 s" in table(parts)


def test_one_missing_peer_is_told_beside_the_ratio_to_the_other() -> None:
    parts = found()
    parts["speculators"] = {}
    measure = by_name(to_measures(parts, FULL))["drafter_ratio"]

    assert 394 / 220 == pytest.approx(measure.value)
    assert "one did not" in measure.note


def test_the_table_has_a_row_a_timed_part() -> None:
    lines = table(found()).splitlines()

    assert any(line.startswith("flashprof") and "first_pass" in line and line.endswith("2") for line in lines)
    assert any(line.startswith("transformers") and "210.00" in line for line in lines)


def test_page_and_picture_are_made_of_a_results_file(tmp_path: Path) -> None:
    path = write_results("peers", to_measures(found(), FULL), {"systems": found()}, folder=tmp_path)
    study = json.loads(path.read_text(encoding="utf-8"))
    page = with_numbers(f"# Title\n\n{BEGIN}\nstale\n{END}\n\nBehind.\n", study)
    draw(study, tmp_path / "peers.svg")

    assert page.startswith("# Title\n")
    assert page.endswith(f"{END}\n\nBehind.\n")
    assert "stale" not in page
    assert "**>= 1.4: not met**" in page
    assert "- toggles: all" in page
    assert "1.4: met" in page
    assert "<svg" in (tmp_path / "peers.svg").read_text(encoding="utf-8")


def test_a_drafter_that_was_killed_is_told_by_what_it_lacks() -> None:
    parts = found()
    killed = {name: parts["specforge"][name] for name in ("warmup", "fixed")}
    ended = {"setup": {}, "lost": {"error": "killed after 110 s; the end of its log: warnings.warn("}}
    systems = {"specforge": {**killed, **ended, "process": {"ended": "killed after 110 s"}}}
    study = {
        "hardware": "1x NVIDIA H200",
        "date": "2026-11-30",
        "command": "python",
        "versions": {"commit": "a"},
        "measures": [
            {"name": "first_run_both_specforge", "value": 1, "unit": "", "goal": None, "met": None, "note": ""}
        ],
        "data": {"systems": systems},
    }
    page = with_numbers(f"{BEGIN}\n{END}\n", study)

    assert "was killed after 110 s, before `varying` and `both`**; `first_run_both_specforge` above is of an" in page
    assert "warnings.warn(" not in page


def test_a_part_that_failed_is_told_with_its_error() -> None:
    systems = {"specforge": {"setup": {"error": "ModuleNotFoundError: specforge"}}}
    page = with_numbers(
        f"{BEGIN}\n{END}\n",
        {
            "hardware": "x",
            "date": "x",
            "command": "x",
            "versions": {"commit": "a"},
            "measures": [],
            "data": {"systems": systems},
        },
    )

    assert "- **specforge, setup, did not run**: ModuleNotFoundError: specforge" in page
