"""The command line as a shell sees it: help, statuses, streams."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from flashprof.cli.doctor import command as doctor
from flashprof.cli.main import main
from flashprof.cli.terminal import wants_color

HEAVY = {"numpy", "pandas", "scipy", "pyarrow", "rich", "psutil", "torch", "datasets", "transformers"}
ENV = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}


def flashprof(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flashprof.cli", *args]
    return subprocess.run(command, env={**ENV, **env}, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "args", [("--help",), ("-h",), ("run", "--help"), ("compare", "--help"), ("doctor", "--help"), ("--version",)]
)
def test_help_goes_to_stdout_with_status_0(args: tuple[str, ...]) -> None:
    done = flashprof(*args)

    assert (0, "") == (done.returncode, done.stderr)
    assert "flashprof" in done.stdout


def test_each_command_is_in_the_help() -> None:
    help_text = flashprof("--help").stdout

    assert [] == [name for name in ("run", "compare", "bisect", "calibrate", "doctor") if f"  {name} " not in help_text]


def test_nothing_heavy_is_imported_for_help() -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from flashprof.cli.main import main; main()"
    )
    for args in (["--help"], ["run", "--help"], ["compare", "--help"], ["bisect", "--help"], ["doctor", "--help"]):
        done = subprocess.run([sys.executable, "-c", code, *args], env=ENV, capture_output=True, text=True, check=True)
        imported = set(done.stdout.splitlines()[-1].split())

        assert set() == HEAVY & imported, args


def test_no_command_shows_the_help_as_a_usage_error() -> None:
    done = flashprof()

    assert 2 == done.returncode
    assert "Commands:" in done.stdout + done.stderr


def test_toggles_are_listed_with_the_cell_none() -> None:
    done = flashprof("run", "--list-toggles")

    assert 0 == done.returncode
    assert "1..64" in done.stdout
    assert "queue 1" in done.stdout.splitlines()[-1]


def test_a_pipeline_that_cannot_be_asked_is_a_failure_of_the_tool(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text("raise RuntimeError('half a tree')")
    done = flashprof("run", "--list-toggles", PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))

    assert 4 == done.returncode
    assert "does not list its toggles" in done.stderr
    assert "half a tree" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_had_enough_is_no_failure() -> None:
    command = f"{sys.executable} -m flashprof.cli run --list-toggles; echo $? >&2"
    with subprocess.Popen(
        ["sh", "-c", command], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None
        assert shell.stderr is not None
        shell.stdout.close()
        said = shell.stderr.read()

    assert ["0"] == said.split()


def test_an_output_that_takes_nothing_is_said_so() -> None:
    command = f"{sys.executable} -m flashprof.cli run --list-toggles > /dev/full"
    done = subprocess.run(["sh", "-c", command], env=ENV, capture_output=True, text=True, check=False)

    assert 4 == done.returncode
    assert "error: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&- >&- 2>&-", "2> /dev/full", "2> /dev/full >&-"])
def test_a_stream_that_takes_nothing_changes_no_status(redirection: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m flashprof.cli"
    script = (
        f"{command} run --list-toggles {redirection}; echo $? >> done; {command} rnu {redirection}; echo $? >> done"
    )
    subprocess.run(["sh", "-c", script], cwd=tmp_path, env=ENV, capture_output=True, check=False, timeout=60)

    assert ["0", "2"] == (tmp_path / "done").read_text().split()


def test_a_terminal_that_does_not_know_a_letter_shows_a_question_mark(tmp_path: Path) -> None:
    (tmp_path / "flashprof.toml").write_text(
        '[subject]\ncommand = ["python"]\n[toggles.fast]\nhelp = "slow → fast"\non = { args = ["--fast"] }\n'
    )
    file = str(tmp_path / "flashprof.toml")
    done = flashprof("run", "--list-toggles", "--subject", file, PYTHONIOENCODING="latin-1")

    assert 0 == done.returncode, done.stderr
    assert "slow ? fast" in done.stdout


@pytest.mark.parametrize("args", [("run",), ("doctor",), ("report",)])
def test_a_folder_that_is_gone_is_told_so(args: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    code = "import os; os.chdir('gone'); os.rmdir('../gone'); from flashprof.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=tmp_path, env=ENV, capture_output=True, text=True, check=False
    )

    assert 2 == done.returncode
    assert ["error: the current folder is gone", "  try: cd FOLDER"] == done.stderr.splitlines()[::2]


@pytest.mark.parametrize("command", ["run", "report"])
def test_reports_at_an_impossible_place_are_a_wrong_use(command: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    long = "x" * 300
    option = ("--reports",) if command == "run" else ()
    looped, too_long = (flashprof(command, *option, str(tmp_path / name)) for name in ("loop", long))

    assert (2, 2) == (looped.returncode, too_long.returncode)
    assert "error: Too many levels of symbolic links" in looped.stderr
    assert f"  where: {tmp_path}/loop\n" in looped.stderr
    assert "error: File name too long" in too_long.stderr
    assert f"  where: {tmp_path}/{long}" in too_long.stderr
    assert "Traceback" not in looped.stderr + too_long.stderr


@pytest.mark.parametrize("error", [ZeroDivisionError("by nought"), BrokenPipeError(32, "Broken pipe"), EOFError("end")])
def test_what_nobody_has_foreseen_is_no_verdict(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**options: object) -> None:
        raise error

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(doctor, "callback", fail)
    with pytest.raises(SystemExit) as ended:
        main(["doctor"])

    assert 4 == ended.value.code
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    ("env", "is_tty", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"CLICOLOR_FORCE": "0"}, False, False),
        ({"CLICOLOR_FORCE": ""}, False, False),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_color(env: dict[str, str], is_tty: bool, expected: bool) -> None:
    assert expected == wants_color(env, is_tty=is_tty)
