"""`python -m pipeline export`: writes a drafter, says how to load it, and never ends in a traceback."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from checkpoints import some_state
from safetensors.torch import load_file

from flashprof.contracts.toggles import parse_toggles
from pipeline.checkpoint.folder import save_checkpoint
from pipeline.cli.main import main
from pipeline.model.drafter import Drafter, DrafterShape
from pipeline.presets import FULL, TINY
from pipeline.toggles import REGISTRY

SHAPE = DrafterShape(
    hidden_size=32, num_heads=4, num_kv_heads=2, head_dim=16, intermediate_size=48, num_layers=2, num_taps=2
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Exit status of the command line."""

    def running(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["pipeline", "export", *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return running


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of the tiny preset's kinds of layer: one slides, one does not."""
    return save(tmp_path / "run", step=200)


def save(root: Path, *, step: int, toggles: str = "none", layer_types: tuple[str, ...] | None = None) -> Path:
    drafter = Drafter(SHAPE)
    plan = replace(TINY.drafter, layer_types=layer_types or TINY.drafter.layer_types)
    state = some_state(
        step=step,
        preset=replace(TINY, drafter=plan),
        toggles=parse_toggles(toggles, REGISTRY),
        mask_token_id=3,
        shape=SHAPE,
        vocab_size=4096,
        max_positions=1024,
    )
    optimizer = torch.optim.AdamW(drafter.parameters())
    names = [name for name, _ in drafter.named_parameters()]
    return save_checkpoint(root, state, drafter.state_dict(), optimizer, names, keep=2)


@pytest.mark.parametrize(("options", "dtype"), [((), torch.bfloat16), (("--dtype", "float32"), torch.float32)])
def test_the_newest_checkpoint_of_a_run_is_exported(
    run: Callable[..., int], checkpoint: Path, tmp_path: Path, options: tuple[str, ...], dtype: torch.dtype
) -> None:
    newest = save(checkpoint.parent, step=300)

    status = run(checkpoint.parent, tmp_path / "out", *options)

    assert 0 == status
    weights = load_file(tmp_path / "out" / "model.safetensors")
    expected = load_file(newest / "model.safetensors")
    assert [] == [name for name in expected if not torch.equal(expected[name].to(dtype), weights[name])]
    assert str(dtype).removeprefix("torch.") == json.loads((tmp_path / "out" / "config.json").read_text())["dtype"]


def test_it_says_what_it_wrote_and_how_to_load_it(
    run: Callable[..., int], checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my drafter"

    run(checkpoint, folder)
    said = capsys.readouterr().out.splitlines()
    commands = {line.split()[0]: shlex.split(line)[1:] for line in said[2:]}

    assert f"wrote {folder}: step 200 of {checkpoint}" in said[0]
    assert "1 full, 1 sliding by 256; blocks of 8, bfloat16" in said[0]
    assert ["dflash", "SGLang", "vLLM"] == list(commands)
    assert str(folder) in commands["dflash"]
    assert ["--speculative-draft-model-path", str(folder)] == commands["SGLang"][-2:]
    speculative = {"method": "dflash", "model": str(folder), "num_speculative_tokens": 7}
    assert speculative == json.loads(commands["vLLM"][-1])


@pytest.mark.parametrize(
    ("layer_types", "toggles", "is_needed", "described"),
    [
        (None, "none", True, "1 full, 1 sliding"),
        ((FULL, FULL), "none", False, "layers: 2 full;"),
        (None, "swa", False, "layers: 2 sliding"),
    ],
)
def test_vllm_needs_its_newer_runner_for_two_kinds_of_layer(
    run: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    layer_types: tuple[str, ...] | None,
    toggles: str,
    described: str,
    is_needed: bool,
) -> None:
    path = save(tmp_path / "run", step=1, toggles=toggles, layer_types=layer_types)

    run(path, tmp_path / "out")
    said = capsys.readouterr().out

    assert described in said
    assert is_needed == ("VLLM_USE_V2_MODEL_RUNNER=1" in said)


def test_wrong_input_is_a_usage_error_with_a_remedy(
    run: Callable[..., int], checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    cases = [
        ((tmp_path / "nowhere", tmp_path / "out"), "no checkpoint in"),
        ((checkpoint / "model.safetensors", tmp_path / "out"), "no checkpoint in"),
        ((checkpoint, tmp_path / "mine"), "thesis.txt"),
        ((checkpoint, tmp_path / "file"), "is a file"),
        ((checkpoint, tmp_path / "out", "--dtype", "int4"), "'bfloat16', 'float32'"),
        ((checkpoint,), "DIR"),
    ]
    for arguments, hint in cases:
        status = run(*arguments)
        said = capsys.readouterr().err

        assert 2 == status
        assert hint in said
    assert "x" == (tmp_path / "mine" / "thesis.txt").read_text()
    assert not (tmp_path / "out").exists()


def test_a_damaged_checkpoint_is_a_usage_error_that_names_the_file(
    run: Callable[..., int], checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = checkpoint / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])

    status = run(checkpoint, tmp_path / "out")

    assert 2 == status
    assert str(file) in capsys.readouterr().err
