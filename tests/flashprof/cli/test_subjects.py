"""Which subject a command means, and what it says of one that is declared; a real declared trainer is measured."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from declared import write_declaration

from flashprof.cli.main import main
from flashprof.store.run_folder import read_manifest

TRAINER = """
import sys, time
while True:
    time.sleep(0.05)
    print(f"speed: {2000 if '--fast' in sys.argv else 1000} tok/s", flush=True)
"""
QUICK = ("--set", "windows.num_measure=2", "--set", "windows.measure_s=0.4", "--set", "windows.num_profile=0")


def status_of(*words: str) -> int:
    with pytest.raises(SystemExit) as raised:
        main(words)
    return int(str(raised.value.code))


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a declared trainer lies in it."""
    command = json.dumps([sys.executable, "trainer.py"])
    text = f'[subject]\ncommand = {command}\n[toggles.fast]\nhelp = "Twice as fast."\non = {{args = ["--fast"]}}\n'
    write_declaration(tmp_path, text + '[toggles.more]\nrequires = ["fast"]\non = {args = ["--more"]}\n')
    (tmp_path / "trainer.py").write_text(TRAINER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_declared_toggles_are_listed_under_their_subject(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == status_of("run", "--list-toggles")

    said = capsys.readouterr().out
    assert f"Toggles of {sys.executable} trainer.py (flashprof.toml)" in said
    assert "Twice as fast." in said
    assert "requires fast" in said
    assert "compile the" not in said


def test_toggles_are_listed_for_programs_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == status_of("run", "--list-toggles", "--json")

    listed = {toggle["name"]: toggle for toggle in json.loads(capsys.readouterr().out)}
    assert ["fast"] == listed["more"]["requires"]
    assert {"name", "hot", "default", "on", "allowed", "help", "needs", "requires"} == set(listed["fast"])


def test_a_file_elsewhere_is_named(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.toml"
    other.write_text('[subject]\ncommand = ["t"]\n[toggles.slow]\non = {args = ["x"]}\n')

    assert 0 == status_of("run", "--subject", str(other), "--list-toggles")
    assert "slow" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("run", "--toggles", "fsat"), ("did you mean 'fast'",)),
        (("run", "--toggles", "more"), ("'more' requires fast", "--toggles fast,more")),
        (("run", "--preset", "tiny2"), ("--preset is for our own pipeline", "--subject pipeline")),
        (("run", "--seed", "3"), ("--seed is for our own pipeline",)),
        (("run", "--subject", "nowhere.toml"), ("cannot be read", "nowhere.toml")),
        (("run", "--subject", "flashprof.toml", "--", "true"), ("two subjects", "one of them")),
        (("compare", "none", "fsat"), ("did you mean 'fast'", "no folder with runs")),
        (("compare", "none", "more"), ("'more' requires fast",)),
        (("compare", "none", "fast", "--method", "hot"), ("cannot be switched while the subject runs: fast",)),
        (("compare", "none", "fast", "--topology", "2+1"), ("--topology is for our own pipeline",)),
    ],
)
def test_wrong_input_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    status = status_of(words[0], "--reports", str(folder / "reports"), *words[1:])
    said = capsys.readouterr().err

    assert 2 == status
    assert [] == [part for part in parts if part not in said]
    assert not (folder / "reports").exists()


def test_a_plan_names_the_subject(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == status_of("compare", "none", "fast", "--dry-run", "--reports", str(folder / "reports"))

    said = capsys.readouterr().out
    assert said.startswith(f"subject   {sys.executable} trainer.py (flashprof.toml)")
    assert "pairs of launches" in said


@pytest.mark.slow
def test_a_declared_trainer_is_measured_with_its_toggles(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = status_of("run", "--toggles", "fast", "--run-id", "one", "--json", *QUICK)
    said = capsys.readouterr()
    facts = read_manifest(folder / "reports" / "one")["cell_facts"]

    assert 0 == status
    # A window's tokens are a whole number, so that one of 0.3 s is off by up to half a token.
    assert pytest.approx(2000, abs=0.5 / 0.3) == json.loads(said.out)["tok_per_s"]["estimate"]
    assert "trainer.py (flashprof.toml), toggles: fast" in said.err
    assert ("on", "off") == (facts["toggles.fast"], facts["toggles.more"])
    assert "workload.file.trainer.py" in facts


@pytest.mark.slow
def test_a_command_behind_the_dashes_wins(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == status_of("run", "--run-id", "one", "--json", *QUICK, "--", sys.executable, "trainer.py")

    facts = read_manifest(folder / "reports" / "one")["cell_facts"]
    assert f"{sys.executable} trainer.py" == facts["workload.command"]
    assert not [name for name in facts if name.startswith("toggles.")]
