"""The one call on eight GPUs: valid shell, and a dry run that names every run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
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

    assert [("5+3", "all"), ("5+3", "none"), ("6+2", "all"), ("4+4", "all")] == [m.groups()[:2] for m in cells if m]
    assert ["5+3-all", "5+3-none", "6+2-all", "4+4-all"] == [m.group(3) for m in cells if m]
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
