"""`evaluate` on a checkpoint of a random drafter: a table, a JSON file, and an end that says what it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.checkpoint.folder import save_checkpoint
from pipeline.checkpoint.state import CheckpointState
from pipeline.cli.evaluate import last_of
from pipeline.cli.main import main
from pipeline.evaluate.checkpoint import evaluate_checkpoint
from pipeline.evaluate.evaluation import Effort, Evaluation
from pipeline.model.drafter import Drafter
from pipeline.model.target import drafter_shape, load_target, target_layer_ids
from pipeline.presets import TINY, Preset

VOCAB_SIZE = 300
MASK_TOKEN_ID = 2


def workload(data_file: Path) -> Preset:
    return replace(
        TINY,
        target=replace(
            TINY.target,
            hidden_size=32,
            num_heads=2,
            num_kv_heads=1,
            head_dim=16,
            intermediate_size=48,
            vocab_size=VOCAB_SIZE,
            mask_token_id=MASK_TOKEN_ID,
        ),
        drafter=replace(TINY.drafter, sliding_window=16),
        data=replace(
            TINY.data,
            source="file",
            path=str(data_file),
            max_length=64,
            bucket_bounds=(32, 64),
            token_budget=256,
            held_out_share=0.3,
        ),
    )


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights after no step, beside the cache that holds its data."""
    root = tmp_path_factory.mktemp("evaluated")
    generator = torch.Generator().manual_seed(0)
    data_file = root / "samples.jsonl"
    with data_file.open("w", encoding="utf-8") as file:
        for _ in range(40):
            ids = torch.randint(3, VOCAB_SIZE, (60,), generator=generator).tolist()
            file.write(json.dumps({"input_ids": ids, "loss_mask": [0] * 10 + [1] * 50}) + "\n")
    preset = workload(data_file)
    config: Any = load_target(preset, root).config
    layer_ids = target_layer_ids(preset, config)
    shape = drafter_shape(config, num_layers=len(preset.drafter.layer_types), num_taps=len(layer_ids))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drafter = Drafter(shape)
    state = CheckpointState(
        step=0,
        num_tokens=0,
        seed=0,
        num_steps=10,
        preset=preset,
        toggles={"swa": True},
        topology="1+1",
        mask_token_id=MASK_TOKEN_ID,
        layer_ids=layer_ids,
        shape=shape,
        num_target_layers=config.num_hidden_layers,
        vocab_size=VOCAB_SIZE,
        max_positions=64,
    )
    optimizer = torch.optim.AdamW(drafter.parameters())
    names = [name for name, _ in drafter.named_parameters()]
    return save_checkpoint(root / "checkpoints", state, drafter.state_dict(), optimizer, names, keep=1)


@pytest.fixture
def cache(checkpoint: Path) -> Path:
    return checkpoint.parents[1] / "cache"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["pipeline", "evaluate", *map(str, arguments)])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


SMALL = ("--num-prompts", 2, "--max-new-tokens", 5, "--num-batches", 2, "--device", "cpu")


def test_a_folder_of_checkpoints_gives_a_table_and_a_file(
    checkpoint: Path,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "evaluation.json"
    status = run(monkeypatch, checkpoint.parent, *SMALL, "--json", file, "--cache", cache)
    said = capsys.readouterr()
    read = json.loads(file.read_text(encoding="utf-8"))

    assert 0 == status
    assert "lossless           2 of 2 prompts" in said.out
    assert "evaluate: " in said.err
    assert (True, 0, 2) == (read["is_complete"], read["step"], read["generation"]["num_lossless"])
    assert 1.0 <= read["held_out"]["acceptance_length"] < 1.2


def test_the_function_is_the_command(checkpoint: Path, cache: Path) -> None:
    effort = Effort(num_prompts=2, max_new_tokens=5, num_batches=2)
    evaluation = evaluate_checkpoint(checkpoint, cache=cache, effort=effort)

    assert (2, 2, "float32") == (evaluation.num_batches, evaluation.num_lossless, evaluation.dtype)
    assert 7 == len(evaluation.held_out.accuracy_K)


def test_bfloat16_is_evaluated_where_it_is_asked_for(checkpoint: Path, cache: Path) -> None:
    effort = Effort(num_prompts=1, max_new_tokens=4, num_batches=1)
    evaluation = evaluate_checkpoint(checkpoint, cache=cache, dtype=torch.bfloat16, effort=effort)

    assert ("bfloat16", 1) == (evaluation.dtype, len(evaluation.texts))


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["missing"], "no checkpoint in missing"),
        ([], "CHECKPOINT"),
        ([".", "--dtype", "float16"], "'float32', 'bfloat16'"),
        ([".", "--num-prompts", "-1"], "--num-prompts"),
        ([".", "--max-new-tokens", "0"], "--max-new-tokens"),
        ([".", "--json", "/"], "--json"),
        ([".", "--json", "link"], "--json: link is no plain file, and is not replaced"),
        ([".", "--json", ""], "an empty string is no path"),
        ([""], "an empty string is no path"),
    ],
)
def test_wrong_input_is_a_usage_error(
    arguments: list[str], hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("/proc/self/fd/1")
    status = run(monkeypatch, *arguments)
    said = capsys.readouterr().err

    assert 2 == status
    assert hint in said
    assert "Traceback" not in said


def test_what_ctrl_c_leaves_is_the_last_whole_result() -> None:
    results = [Evaluation(effort=Effort(), device="cpu", dtype="float32", tie_limit=0.1, num_batches=n) for n in (1, 2)]

    def interrupted() -> Iterator[Evaluation]:
        yield from results
        raise KeyboardInterrupt

    assert (results[1], True) == last_of(interrupted(), 9)
    assert (results[1], False) == last_of(results, 2)
    assert (None, False) == last_of([], 0)


@pytest.mark.slow
def test_ctrl_c_prints_what_there_is_and_ends_with_130(checkpoint: Path, cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "evaluation.json"
    command = [sys.executable, "-m", "pipeline", "evaluate", checkpoint, "--num-prompts", 10**6, "--num-batches", 1]
    command += ["--max-new-tokens", 54, "--device", "cpu", "--json", file, "--cache", cache]
    with subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if line.startswith("evaluate: "):
                    break
            process.send_signal(signal.SIGINT)
            said, error = process.communicate(timeout=60)
        finally:
            process.kill()

    assert 130 == process.returncode
    assert "held-out text" in said
    assert "interrupted" in error
    assert "Traceback" not in error
    assert json.loads(file.read_text(encoding="utf-8"))["is_complete"] is False
