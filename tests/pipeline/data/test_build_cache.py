"""A cached folder is whole or not there: after errors, kills, damage and races."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flashprof.contracts.errors import ToolError
from pipeline.data.build_cache import open_or_build


class Builder:
    """Writes two files, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.num_builds = 0

    def __call__(self, folder: Path) -> None:
        self.num_builds += 1
        (folder / "rows").write_bytes(b"row" * 1000)
        (folder / "info").write_text("3")


def test_it_is_built_once(tmp_path: Path) -> None:
    build = Builder()
    folders = [open_or_build(tmp_path / "deep" / "x", build, what="x") for _ in range(3)]

    assert build.num_builds == 1
    assert [tmp_path / "deep" / "x"] * 3 == folders
    assert (folders[0] / "info").read_text() == "3"


@pytest.mark.parametrize("damage", ["cut", "flip", "missing", "manifest", "no manifest"])
def test_a_damaged_folder_is_rebuilt_and_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    build = Builder()
    folder = open_or_build(tmp_path / "x", build, what="samples")
    match damage:
        case "cut":
            os.truncate(folder / "rows", 100)
        case "flip":
            (folder / "rows").write_bytes(b"raw" * 1000)
        case "missing":
            (folder / "info").unlink()
        case "manifest":
            (folder / "manifest.json").write_text("[]")
        case "no manifest":
            (folder / "manifest.json").unlink()
    open_or_build(folder, build, what="samples")

    assert build.num_builds == 2
    assert (folder / "rows").read_bytes() == b"row" * 1000
    assert f"data: samples in {folder} is damaged: building it anew\n" == capsys.readouterr().err


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "rows").write_text("half")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        open_or_build(tmp_path / "x", build, what="x")

    assert [path.name for path in tmp_path.iterdir()] == [".x.lock"]


def test_a_full_disk_is_an_error_with_the_folder_and_the_next_command(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(ToolError) as caught:
        open_or_build(tmp_path / "x", build, what="samples of stdlib")

    assert caught.value.what == "cannot build samples of stdlib: No space left on device"
    assert str(tmp_path / "x") == caught.value.where
    assert f"df -h {tmp_path}" in str(caught.value.next_command)


def test_a_cache_below_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ToolError, match="cannot build x"):
        open_or_build(tmp_path / "file" / "x", Builder(), what="x")


PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from pipeline.data.build_cache import open_or_build

def build(folder):
    (folder / "rows").write_bytes(b"row" * 1000)
    with open(sys.argv[2], "a") as log:
        log.write("built\\n")
    if sys.argv[3] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    (folder / "info").write_text("3")

open_or_build(Path(sys.argv[1]), build, what="x")
"""


def start(folder: Path, log: Path, mode: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), str(log), mode])


def test_a_killed_build_is_neither_trusted_nor_in_the_way(tmp_path: Path) -> None:
    status = start(tmp_path / "x", tmp_path / "log", "kill").wait(30)
    build = Builder()
    folder = open_or_build(tmp_path / "x", build, what="x")

    assert status == -signal.SIGKILL
    assert build.num_builds == 1
    assert {".x.lock", "x", "log"} == {path.name for path in tmp_path.iterdir()}
    assert {"rows", "info", "manifest.json"} == {path.name for path in folder.iterdir()}


def test_racing_processes_all_succeed_and_one_builds(tmp_path: Path) -> None:
    racers = [start(tmp_path / "x", tmp_path / "log", "race") for _ in range(3)]

    assert [racer.wait(30) for racer in racers] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "built\n"
    assert (tmp_path / "x" / "info").read_text() == "3"
