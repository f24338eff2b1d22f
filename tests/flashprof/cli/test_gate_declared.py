"""`flashprof gate` of a declared trainer from its command line; once whole, with real processes and a repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from gate_world import git

from flashprof.cli.gate import command
from flashprof.contracts.errors import UsageError

TRAINER = """
import json, sys, time

speed = json.load(open(sys.argv[sys.argv.index("--config") + 1]))
assert speed["attn"] == "flash" and "--fused" in sys.argv
while True:
    began = time.monotonic()
    time.sleep(speed["step_s"])
    print(f"loss 2.5 tok/s={100 / (time.monotonic() - began):.1f}", flush=True)
"""
DECLARATION = f"""
[subject]
command = ["{sys.executable}", "train.py", "--config", "{{file}}", "{{args}}"]
files = ["train.py"]
tok_per_s = 'tok/s=([\\d.]+)'

[toggles.flash]
on = {{ args = ["--fused"], edit = {{ file = "speed.json", key = "attn", value = "flash" }} }}
"""
STEP_S, SLOW_STEP_S = 0.015, 0.025
"""40 % fewer tok/s."""
SETTINGS = ("measure_s=0.3", "num_measure=2", "steady_timeout_s=0.3", "stop_timeout_s=1", "start_timeout_s=20")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """`main`, and a commit on a branch that makes it slower; the declaration is in both."""
    place = tmp_path / "repo"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    (place / "train.py").write_text(TRAINER)
    (place / "flashprof.toml").write_text(DECLARATION)
    (place / ".gitignore").write_text("reports/\n")
    commit(place, STEP_S)
    git(place, "checkout", "-q", "-b", "change")
    commit(place, SLOW_STEP_S)
    return place


def commit(repo: Path, step_s: float) -> None:
    (repo / "speed.json").write_text(json.dumps({"attn": "eager", "step_s": step_s}))
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", f"step {step_s}")


def gate(repo: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flashprof.cli", "gate", "--base-ref", "main", *words]
    command += [f"--set=windows.{setting}" for setting in SETTINGS]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, cwd=repo, env=env, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
def test_a_declared_trainer_that_is_40_percent_slower_fails_its_gate(repo: Path) -> None:
    done = gate(repo, "--toggles", "flash", "--alpha", "5%", "--no-explain", "--json")
    found = json.loads(done.stdout)
    (metric,) = found["metrics"]
    history = subprocess.run(["git", "status", "--porcelain"], cwd=repo, capture_output=True, text=True, check=True)

    assert (1, "regression", "interleaved") == (done.returncode, found["verdict"], found["mode"]), done.stderr
    assert pytest.approx(STEP_S / SLOW_STEP_S, abs=0.15) == metric["head"] / metric["base"]
    assert pytest.approx(100 / STEP_S, rel=0.3) == metric["base"]
    assert {"base": "step 0.015", "head": "step 0.025"} == {
        name: found[name].partition(" ")[2] for name in ("base", "head")
    }
    assert "" == history.stdout
    assert not list(repo.glob("reports/gate-*/worktrees/*"))


def ask(repo: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Result:
    monkeypatch.chdir(repo)
    return CliRunner().invoke(command, ["--base-ref", "main", "--dry-run", *words], standalone_mode=False)


def test_the_plan_names_both_trees_of_the_declared_trainer(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = ask(repo, monkeypatch, "--toggles", "flash")

    assert 0 == done.return_value
    assert "step 0.015" in done.stdout
    assert not (repo / "reports").exists()


def test_a_declaration_elsewhere_is_found_by_its_name(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo / "flashprof.toml").rename(repo / "other.toml")

    assert 0 == ask(repo, monkeypatch, "--subject", "other.toml", "--toggles", "flash").return_value


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--toggles", "flsh"), "flsh"),
        (("--preset", "bench"), "--preset is for our own pipeline"),
        (("--train", "--accumulate 2"), "--train is for our own pipeline"),
        (("--tok-per-s", "("), "expression"),
        (("--subject", "absent.toml"), "absent.toml"),
    ],
)
def test_what_a_declared_trainer_has_not_is_refused(
    repo: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    error = ask(repo, monkeypatch, *words).exception

    assert isinstance(error, UsageError)
    assert said in " ".join(error.lines())
