"""Wrong input ends with status 2 and a remedy, never with a traceback; light commands stay light."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from flashprof.contracts.toggles import toggles_from_json
from pipeline.cli.listing import presets
from pipeline.cli.main import main
from pipeline.toggles import REGISTRY


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["pipeline", *arguments])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--preset", "tinny"], "did you mean 'tiny'"),
        (["--preset", ""], "allowed: tiny, smollm2"),
        (["--toggles", "compil"], "did you mean 'compile'"),
        (["--toggles", "queue=0"], "1..64"),
        (["--toggles", "queue=many"], "1..64"),
        (["--toggles", "swa=maybe"], "on, off"),
        (["--toggles", "compile,,swa"], "empty item"),
        (["--toggles", "-swa=1"], "-swa or swa=VALUE"),
        (["--topology", "1:1"], "1+1"),
        (["--topology", "0+1"], "1+1"),
        (["--token-budget", "100"], "--token-budget 1024"),
        (["--token-budget", "0"], "--token-budget"),
        (["--token-budget", str(10**12)], "--token-budget"),
        (["--steps", "-1"], "--steps"),
        (["--steps", "ten"], "--steps"),
        (["--seed", "-1"], "--seed"),
        (["--seed", str(10**30)], "--seed"),
        (["--device", "tpu"], "'auto', 'cpu', 'cuda'"),
        (["--threads", "0"], "--threads"),
        (["--anchors", "0"], "--anchors"),
        (["--anchors", str(10**9)], "--anchors"),
        (["--lr", "0"], "--lr"),
        (["--log-every", "0"], "--log-every"),
        (["--cache", __file__], "--cache"),
        (["--step", "5"], "--steps"),
        *(([option, ""], "an empty string is no path") for option in ("--checkpoints", "--resume", "--tensorboard")),
        (["surplus"], "surplus"),
    ],
)
def test_wrong_input_is_a_usage_error_with_a_remedy(
    arguments: list[str], hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(monkeypatch, "train", *arguments)
    said = capsys.readouterr().err

    assert 2 == status
    assert hint in said
    assert "Traceback" not in said


@pytest.mark.parametrize("arguments", [["trian"], ["--frobnicate"], []])
def test_an_unknown_command_is_a_usage_error(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == run(monkeypatch, *arguments)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [
        ("> /dev/full", 4, "error: No space left on device: while writing the output\n"),
        (">&-", 0, ""),
        ("2> /dev/full >&-", 0, ""),
        ("| :", 0, ""),
    ],
)
def test_streams_that_take_nothing_end_in_no_traceback(redirection: str, status: int, said: str) -> None:
    command = f'("$0" -m pipeline toggles; echo $? >&3) 3>&2 {redirection}'
    done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, text=True, check=False)

    assert sorted([*said.splitlines(), str(status)]) == sorted(done.stderr.splitlines())


@pytest.mark.parametrize("error", [ZeroDivisionError("by nought"), BrokenPipeError(32, "Broken pipe"), EOFError("end")])
def test_what_nobody_has_foreseen_is_a_failure_with_a_message(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(presets, "callback", fail)

    assert 4 == run(monkeypatch, "presets")
    assert capsys.readouterr().err.startswith("error: ")


def test_presets_and_toggles_are_listed_for_people(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses = [run(monkeypatch, "presets"), run(monkeypatch, "toggles")]
    said = capsys.readouterr().out

    assert [0, 0] == statuses
    assert all(name in said for name in ("tiny", "smollm2", *(toggle.name for toggle in REGISTRY)))


@pytest.mark.slow
def test_the_registry_comes_as_json_from_a_process_without_torch() -> None:
    code = (
        "import sys; from pipeline.cli.main import main; sys.argv = ['pipeline', 'toggles', '--json']; main();"
        "sys.stderr.write(' '.join({'torch', 'transformers', 'datasets', 'pandas'} & set(sys.modules)))"
    )
    start_s = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    elapsed_s = time.perf_counter() - start_s

    assert REGISTRY == toggles_from_json(json.loads(done.stdout))
    assert "" == done.stderr
    # Two cores that others use as well: alone it takes 0.13 s.
    assert elapsed_s < 2.0


@pytest.mark.slow
def test_cuda_asked_for_where_there_is_none_is_a_usage_error() -> None:
    command = [sys.executable, "-m", "pipeline", "train", "--device", "cuda"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    )

    assert 2 == done.returncode
    assert "flashprof doctor" in done.stderr
    assert "Traceback" not in done.stderr
