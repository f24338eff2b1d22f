"""Wrong command lines, files and folders end with status 2, say what is wrong, and leave nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from checkpoints import some_state

from flashprof.contracts.errors import UsageError
from pipeline.checkpoint.folder import MODEL, OPTIMIZER, STATE, load_weights, read_state, save_checkpoint
from pipeline.checkpoint.zlab import write_zlab
from pipeline.cli.main import main
from pipeline.data.samples import open_samples
from pipeline.model.shape import DrafterShape
from pipeline.presets import TINY

Run = Callable[..., tuple[int, str]]

SHAPE = DrafterShape(
    hidden_size=8, num_heads=1, num_kv_heads=1, head_dim=8, intermediate_size=8, num_layers=2, num_taps=2
)
MESSAGES = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
FILES = {
    "chats.jsonl": json.dumps({"messages": MESSAGES}),
    "tokens.jsonl": json.dumps({"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1]}),
    "empty.jsonl": "",
    "broken.jsonl": "{broken",
    "array.json": json.dumps([{"messages": MESSAGES}]),
    "other.jsonl": json.dumps({"text": "Why?"}),
    "unanswered.jsonl": json.dumps({"messages": MESSAGES[:1]}),
    "role.jsonl": json.dumps({"messages": [{"role": "bot", "content": "Hi."}]}),
    "big.jsonl": json.dumps({"input_ids": [1, 99_999], "loss_mask": [1, 1]}),
    "length.jsonl": json.dumps({"input_ids": [1, 2], "loss_mask": [1]}),
    "mask.jsonl": json.dumps({"input_ids": [1, 2], "loss_mask": [0, 2]}),
    "masked.jsonl": json.dumps({"input_ids": [1, 7], "loss_mask": [0, 1]}),
    "words.jsonl": json.dumps({"input_ids": ["a"], "loss_mask": [1]}),
    "junk.parquet": "junk",
    "junk.arrow": "junk",
    "junk.jsonl.gz": "junk",
    "notes.txt": "A thought.",
}


def _make_checkpoint(root: Path) -> Path:
    model = torch.nn.Linear(2, 2)
    state = some_state(shape=SHAPE)
    optimizer = torch.optim.AdamW(model.parameters())
    return save_checkpoint(root, state, model.state_dict(), optimizer, ["weight", "bias"], keep=1)


def _damaged(whole: Path, root: Path, name: str, change: Callable[[str], str] | None) -> None:
    """A copy of the checkpoint in which the file *name* is changed, or cut where there is no text to change."""
    shutil.copytree(whole, root / whole.name)
    file = root / whole.name / name
    if change is None:
        file.write_bytes(file.read_bytes()[:4])
    else:
        file.write_text(change(file.read_text(encoding="utf-8")), encoding="utf-8")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: data good and bad, a target's config, a drafter, checkpoints whole and damaged."""
    root = tmp_path_factory.mktemp("user")
    for name, text in FILES.items():
        (root / name).write_text(text, encoding="utf-8")
    (root / "latin.jsonl").write_bytes(b"\xff\xfe")
    (root / "nothing").mkdir()
    (root / "target").mkdir()
    (root / "target" / "config.json").write_text(
        json.dumps({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 64})
    )
    whole = _make_checkpoint(root / "run")
    write_zlab(root / "drafter", read_state(whole), load_weights(whole), dtype="float32")
    _damaged(whole, root / "future", STATE, lambda text: text.replace('"version": "1.1"', '"version": "9.0"'))
    _damaged(whole, root / "torn", STATE, lambda text: text[: len(text) // 2])
    _damaged(whole, root / "typed", STATE, lambda text: text.replace('"block_size": 8', '"block_size": "x"'))
    _damaged(whole, root / "cut-model", MODEL, None)
    _damaged(whole, root / "cut-optimizer", OPTIMIZER, None)
    (root / "half" / "step-00000030").mkdir(parents=True)
    shutil.copy(whole / STATE, root / "half" / "step-00000030")
    return root


@pytest.fixture
def run(world: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Status and stderr of a command line that is given in the user's folder."""
    monkeypatch.chdir(world)
    # The command sets those that are not set, and would leave them to other tests.
    for name in ("OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "TORCHINDUCTOR_COMPILE_THREADS", "GLOO_SOCKET_IFNAME"):
        monkeypatch.setenv(name, os.environ.get(name, "1" if "THREADS" in name else "lo"))

    def running(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["pipeline", *arguments])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), capfd.readouterr().err
        return 0, capfd.readouterr().err

    return running


TRAIN = {
    "--preset tinny": "did you mean 'tiny'",
    "--target nowhere": "'nowhere' does not exist",
    "--target notes.txt": "is a file",
    "--data nowhere": "'nowhere' does not exist",
    "--warm-start notes.txt": "is a file",
    "--warm-start nothing": "config.json",
    "--warm-start target": "DFlashDraftModel",
    "--warm-start drafter --mask-token-id 7": "another mask token",
    "--toggles swaa": "did you mean 'swa'",
    "--toggles queue=0": "1..64",
    "--topology 0+1": "--topology 1+1",
    "--topology 99+1": "1..64",
    "--steps -1": "--steps",
    "--steps 99999999999999999999": "--steps",
    "--seed -1": "--seed",
    "--lr 0": "--lr",
    "--lr nan": "not a finite number",
    "--lr 1e400": "not a finite number",
    "--warmup-ratio nan": "not a finite number",
    "--schedule cosinus": "'cosine'",
    "--buckets 512,64": "--buckets 128",
    "--max-length 16": "--max-length",
    "--token-budget 100": "--token-budget 1024",
    "--anchors 0": "--anchors",
    "--accumulate 0": "--accumulate",
    "--fault nope": "allowed: none, metrics-unordered",
    "--fault metrics-unordered": "--toggles async-metrics",
    "--fault brake=901": "0..900",
    "--checkpoints notes.txt": "is a file",
    "--checkpoints notes.txt/run": "--checkpoints: cannot write there",
    "--checkpoints run": "--resume auto to continue it",
    "--tensorboard notes.txt/events": "--tensorboard: cannot write there",
    "--cache notes.txt": "is a file",
    "--resume auto": "--resume auto needs --checkpoints",
    "--resume nowhere": "no such folder",
    "--resume nothing": "an empty folder",
    "--resume future": "version 9.0 is not known",
    "--resume torn": "not a checkpoint's state",
    "--resume typed": "preset.drafter.block_size",
    "--resume cut-model": "model.safetensors cannot be read",
    "--resume cut-optimizer": "optimizer.safetensors cannot be read",
    "--resume half": "no checkpoint in half",
    "--resume half/step-00000030": "lacks model.safetensors and optimizer.safetensors",
    "--resume run --lr 1": "leave out --lr",
    "--resume run --warm-start drafter": "leave out --warm-start",
    "--resume run --steps 10": "more steps behind it than --steps 10",
}
OTHERS = {
    "evaluate": "CHECKPOINT",
    "evaluate nowhere": "no such folder",
    "evaluate notes.txt": "a file",
    "evaluate drafter": "config.json, model.safetensors",
    "evaluate future": "version 9.0 is not known",
    "evaluate run --num-prompts 0 --num-batches 0": "nothing to evaluate",
    "evaluate run --json notes.txt/x.json": "--json: cannot write there",
    "export run": "DIR",
    "export nowhere out": "no such folder",
    "export future out": "version 9.0 is not known",
    "export cut-model out": "model.safetensors cannot be read",
    "export run notes.txt": "is a file",
    "export run nothing --dtype float16": "'bfloat16'",
    "regenerate --target target --data nowhere --out out.jsonl": "nowhere",
    "regenerate --target target --data chats.jsonl --out notes.txt/out": "--out: cannot write there",
    "regenerate --target target --data chats.jsonl --out chats.jsonl": "not one of `regenerate`",
    "regenerate --target target --data chats.jsonl --out out.jsonl": "no chat template",
    "regenerate --target target --data tokens.jsonl --out out.jsonl": "not a conversation",
    "regenerate --target target --data unanswered.jsonl --out out.jsonl": "no conversation has an answer",
    "regenerate --target target --data broken.jsonl --out out.jsonl": "broken.jsonl:1",
    "regenerate --target target --data empty.jsonl --out out.jsonl": "no record",
}


@pytest.mark.parametrize(
    ("line", "hint"), [(f"train {line}", hint) for line, hint in TRAIN.items()] + [*OTHERS.items()]
)
def test_a_wrong_command_is_told_so_and_writes_nothing(run: Run, world: Path, line: str, hint: str) -> None:
    before = sorted(world.rglob("*"))
    status, said = run(*line.split())

    assert 2 == status, said
    assert hint in said
    assert "Traceback" not in said
    assert before == sorted(world.rglob("*"))


DATA = {
    "empty.jsonl": "no record",
    "broken.jsonl": "broken.jsonl:1",
    "array.json": "jq -c",
    "other.jsonl": "neither a sample nor a conversation",
    "chats.jsonl": "a target with a tokenizer",
    "role.jsonl": "a target with a tokenizer",
    "big.jsonl": "99999",
    "length.jsonl": "2 ids, 1 mask values",
    "mask.jsonl": "position 1",
    "masked.jsonl": "contains the mask token",
    "words.jsonl": "not a list of whole numbers",
    "junk.parquet": "cannot read the file",
    "junk.arrow": "cannot read the file",
    "junk.jsonl.gz": "cannot read the file",
    "latin.jsonl": "latin.jsonl:1",
    "notes.txt": ".parquet",
    "nothing": ".parquet",
}


@pytest.mark.parametrize(("name", "hint"), DATA.items())
def test_wrong_data_are_told_so_and_leave_no_samples(world: Path, tmp_path: Path, name: str, hint: str) -> None:
    target = replace(TINY.target, source="folder", path=str(world / "target"), mask_token_id=7)
    data = replace(TINY.data, source="file", path=str(world / name))
    with pytest.raises(UsageError) as caught:
        open_samples(replace(TINY, target=target, data=data), cache=tmp_path)

    assert hint in str(caught.value)
    assert str(world / name) in str(caught.value)
    assert [] == [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_run_that_has_all_its_steps_is_no_error_and_loads_nothing(run: Run, world: Path) -> None:
    status, _ = run("train", "--resume", "run", "--steps", "30")

    # The checkpoint is of no drafter that could be loaded: who tried would have failed.
    assert 0 == status
