"""The one hold of two GPUs: valid shell, commands that the programs take, and an end within the time."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from benchmarks.parity import main as parity
from benchmarks.story import measure

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_story.sh"
MAX_HOLD_S = 1620
"""Of 28 minutes, less a start of one."""


def dry_run(*options: str) -> list[list[str]]:
    done = subprocess.run(
        ["bash", str(SCRIPT), "--dry-run", *options], capture_output=True, text=True, check=True, timeout=30
    )
    return [shlex.split(line) for line in done.stdout.splitlines()]


def options_after(words: list[str], module: str) -> list[str]:
    return words[words.index(module) + 1 :]


def test_every_part_of_the_story_is_measured_and_within_the_time() -> None:
    story = [options_after(words, "benchmarks.story") for words in dry_run() if "benchmarks.story" in words]
    contexts = [measure.make_context("measure", options[1:]) for options in story]
    parts = [part for context in contexts for part in context.params["only"].split(",")]

    assert sorted(parts) == ["bisect", "cells", "compare", "run_all", "run_none"]


def test_what_runs_side_by_side_and_what_follows_ends_within_the_hold() -> None:
    limits: dict[str, int] = {"0": 0, "1": 0, "0,1": 0}
    for words in dry_run():
        if "benchmarks.parity" not in words:  # runs beside the tests, which have as long
            limits[words[0].partition("=")[2]] += int(words[2])

    assert max(limits["0"], limits["1"]) + limits["0,1"] <= MAX_HOLD_S


def test_parity_is_asked_for_in_lanes_on_the_device() -> None:
    (words,) = [words for words in dry_run() if "benchmarks.parity" in words]
    params = parity.make_context("parity", options_after(words, "benchmarks.parity")).params

    assert ("cuda", 8) == (params["device"], params["lanes"])


def test_an_unknown_option_says_what_is_allowed() -> None:
    done = subprocess.run(["bash", str(SCRIPT), "--x"], capture_output=True, text=True, check=False, timeout=30)

    assert (2, "unknown option --x; allowed: --dry-run\n") == (done.returncode, done.stderr)
