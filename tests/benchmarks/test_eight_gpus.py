"""The one call on eight GPUs: valid shell, and a dry run that names every run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "eight_gpus.sh"
MAX_CALL_S = 600


def dry_run(*options: str, **variables: str) -> list[str]:
    command = ["bash", str(SCRIPT), "--dry-run", *options]
    env = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, timeout=30)
    return done.stdout.splitlines()


def test_the_shell_can_read_it() -> None:
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True, timeout=30)


@pytest.mark.parametrize(("options", "preset"), [((), "qwen3-8b-random"), (("--rehearse",), "tiny")])
def test_both_ends_and_every_split_are_run_within_the_time(options: tuple[str, ...], preset: str) -> None:
    lines = dry_run(*options)
    runs = [line for line in lines if "flashprof.cli run" in line]
    cells = [re.search(r"--topology (\S+) --toggles (none|all).* --run-id (\S+)", line) for line in runs]

    # 4+4 has the drafter that no other split has: behind it all find their compiled code.
    assert [("4+4", "all"), ("5+3", "all"), ("5+3", "none"), ("6+2", "all")] == [m.groups()[:2] for m in cells if m]
    assert ["4+4-all", "5+3-all", "5+3-none", "6+2-all"] == [m.group(3) for m in cells if m]
    assert all(f"--preset {preset} " in line for line in runs)
    # A run that does not end when it is interrupted is killed 25 s later; one may.
    assert MAX_CALL_S >= 25 + sum(int(line.split()[1]) for line in lines)


def test_on_two_cards_both_ends_are_run_and_nothing_is_swept() -> None:
    runs = [line for line in dry_run("--two") if "flashprof.cli run" in line]

    assert ["1+1-all", "1+1-none"] == [words[words.index("--run-id") + 1] for words in map(shlex.split, runs)]


def test_what_one_card_does_is_foretold_before_and_judged_after(tmp_path: Path) -> None:
    lines = dry_run(TARGET_TOK_PER_S="33000", DRAFTER_TOK_PER_S="19000", OUT=str(tmp_path))

    assert "benchmarks.scaling predict" in lines[0]
    assert "benchmarks.scaling judge" in lines[-2]
    assert MAX_CALL_S >= 25 + sum(int(line.split()[1]) for line in lines)


def test_the_commands_are_ones_that_the_programs_take() -> None:
    from flashprof.cli.run import command

    line = next(line for line in dry_run("--rehearse") if "flashprof.cli run" in line)
    words = shlex.split(line)
    context = command.make_context("run", words[words.index("run") + 1 :])

    assert "--device cpu" == context.params["train_options"]


def test_an_unknown_option_is_refused() -> None:
    done = subprocess.run(["bash", str(SCRIPT), "--fast"], capture_output=True, text=True, check=False, timeout=30)

    assert 2 == done.returncode
    assert "--rehearse" in done.stderr


def test_without_so_many_gpus_it_ends_at_once_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "py-spy").write_text("#!/bin/sh\n")
    (tmp_path / "py-spy").chmod(0o755)
    env = {**os.environ, "OUT": str(tmp_path / "o"), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    env |= {"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(["bash", str(SCRIPT)], env=env, capture_output=True, text=True, check=False, timeout=60)

    assert (2, "0 GPUs are here, 8 are needed; with fewer: --two\n") == (done.returncode, done.stderr)
    assert done.stderr == (tmp_path / "o" / "refused.txt").read_text()


@pytest.fixture
def fake_python(tmp_path: Path) -> Path:
    """Stands for the python that the steps start: each leaves a run folder and takes a while."""
    path = tmp_path / "python"
    path.write_text(
        "#!/bin/bash\n"
        'while [ $# -gt 0 ]; do [ "$1" = --reports ] && folder="$2"; [ "$1" = --run-id ] && name="$2"; shift; done\n'
        '[ -n "${name:-}" ] && mkdir -p "$folder/$name" && echo measured\n'
        "sleep 0.2\n"
    )
    path.chmod(0o755)
    return path


def test_what_was_run_is_packed_and_nothing_else_is_left(tmp_path: Path, fake_python: Path) -> None:
    env = {**os.environ, "OUT": str(tmp_path / "o"), "PYTHON": str(fake_python)}
    command = ["bash", str(SCRIPT), "--rehearse"]
    subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60)

    assert ["eight_gpus.tgz"] == [path.name for path in (tmp_path / "o").iterdir()]
    with tarfile.open(tmp_path / "o" / "eight_gpus.tgz") as archive:
        names = set(archive.getnames())
    assert {"reports/4+4-all", "reports/5+3-none", "logs/run-6+2-all.txt", "logs/report.txt"} <= names


def test_what_no_time_is_left_for_is_named_and_the_rest_is_kept(tmp_path: Path, fake_python: Path) -> None:
    """Of 71 s, 40 are for what ends the call and 25 for a step that does not end when it is asked to."""
    env = {**os.environ, "OUT": str(tmp_path / "o"), "PYTHON": str(fake_python), "LIMIT_S": "71"}
    fake_python.write_text(fake_python.read_text().replace("sleep 0.2", "sleep 2"))
    command = ["bash", str(SCRIPT), "--rehearse"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60)

    assert "== run-6+2-all: no time is left" in done.stdout
    assert "== report\n" in done.stdout
    with tarfile.open(tmp_path / "o" / "eight_gpus.tgz") as archive:
        assert "reports/4+4-all" in archive.getnames()
