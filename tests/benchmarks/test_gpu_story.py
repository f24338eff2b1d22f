"""The one hold of GPUs: valid shell, commands that the programs take, and an end within the time."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

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


def test_one_gpu_is_for_what_an_earlier_hold_of_two_does_not_tell() -> None:
    story = [options_after(words, "benchmarks.story") for words in dry_run("--one") if "benchmarks.story" in words]
    contexts = [measure.make_context("measure", options[1:]) for options in story]

    assert ["bisect", "run_all,run_none"] == [context.params["only"] for context in contexts]
    assert {"0"} == {words[0].partition("=")[2] for words in dry_run("--one")}


def test_what_runs_side_by_side_and_what_follows_ends_within_the_hold() -> None:
    for options in ((), ("--one",)):
        limits: dict[str, list[int]] = {"0": [], "1": [], "0,1": []}
        for words in dry_run(*options):
            limits[words[0].partition("=")[2]].append(int(words[2]))
        # The tests run beside parity, which has longer.
        *first, parity_s, tests_s = limits["0"]

        assert tests_s <= parity_s
        assert max(sum(first) + parity_s, sum(limits["1"])) + sum(limits["0,1"]) <= MAX_HOLD_S


def test_parity_is_asked_for_in_lanes_on_the_device() -> None:
    (words,) = [words for words in dry_run() if "benchmarks.parity" in words]
    params = parity.make_context("parity", options_after(words, "benchmarks.parity")).params

    assert ("cuda", 8) == (params["device"], params["lanes"])


def test_an_unknown_option_says_what_is_allowed() -> None:
    done = subprocess.run(["bash", str(SCRIPT), "--x"], capture_output=True, text=True, check=False, timeout=30)

    assert (2, "unknown option --x; allowed: --one, --collect SECONDS, --dry-run\n") == (done.returncode, done.stderr)


@pytest.mark.parametrize(
    ("programs", "words"),
    [
        ((), "py-spy is not on PATH: no launch would have stacks"),
        (("py-spy",), "0 GPUs are here, 2 are needed; with fewer: --one"),
    ],
)
def test_what_is_missing_shows_at_once_and_ends_the_wait(tmp_path: Path, programs: tuple[str, ...], words: str) -> None:
    """A hold without py-spy has measured 25 minutes without stacks."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "dirname", "mkdir", "tail", "tee", "touch"):
        (folder / name).symlink_to(shutil.which(name) or "")
    for name in programs:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    env = {"PATH": str(folder), "STORY": str(tmp_path / "o"), "PYTHON": sys.executable}
    env |= {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(["bash", str(SCRIPT)], env=env, capture_output=True, text=True, check=False, timeout=60)

    assert 2 == done.returncode
    assert words in done.stderr
    assert done.stderr == (tmp_path / "o" / "times.txt").read_text()
    assert (tmp_path / "o" / "done").exists()


def test_what_there_is_so_far_is_collected(tmp_path: Path) -> None:
    story = tmp_path / "story"
    (story / "cells" / "reports").mkdir(parents=True)
    (story / "cells" / "reports" / "big").write_text("a run folder")
    (story / "cells" / "cells.json").write_text("{}")
    (story / "times.txt").write_text("cells: status 0 after 700 s\n")
    env = {**os.environ, "STORY": str(story), "OUT": str(tmp_path)}

    def collected() -> str:
        command = ["bash", str(SCRIPT), "--collect", "0"]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=30).stdout

    before = collected()
    (story / "done").touch()

    assert before.startswith("still runs\ncells: status 0 after 700 s\n")
    assert collected().startswith("has ended\n")
    with tarfile.open(tmp_path / "gpu_story.tgz") as archive:
        assert {"story/cells/cells.json", "story/times.txt"} <= set(archive.getnames())
        assert "story/cells/reports" not in archive.getnames()
