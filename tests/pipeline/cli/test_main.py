"""Wrong input ends with status 2 and a remedy, never with a traceback; light commands stay light."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from flashprof.contracts.toggles import toggles_from_json
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
