"""`regenerate` end to end on a tiny target folder: answered once, continued, and read by the trainer."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_llama import make_tiny_llama

from pipeline.cli.main import main
from pipeline.data.tokenizer import train_bpe
from pipeline.evaluate.answer_file import AnswerFile

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QUESTIONS = ("hello user", "hi", "hello assistant", "hello hello", "user")


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("target")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=train_bpe(["hello assistant, hello user\n"] * 9, 280))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    make_tiny_llama(300).save_pretrained(folder)
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    lines = [{"conversations": [{"from": "human", "value": q}, {"from": "gpt", "value": "old"}]} for q in QUESTIONS]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["pipeline", "regenerate", *map(str, arguments)])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_a_second_run_continues_where_the_first_was_killed(
    target: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "answers.jsonl"
    options = ["--target", target, "--data", data, "--max-new-tokens", 4, "--device", "cpu", "--cache", tmp_path]
    first = run(monkeypatch, *options, "--batch-size", 2, "--out", out)
    whole = out.read_bytes()
    out.write_bytes(whole[: len(whole) // 2])
    second = run(monkeypatch, *options, "--batch-size", 3, "--out", out)
    third = run(monkeypatch, *options, "--out", out)
    said = capsys.readouterr()
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]

    assert [0, 0, 0] == [first, second, third]
    assert sorted(json.loads(line)["id"] for line in whole.splitlines()) == sorted(line["id"] for line in lines)
    assert sorted(QUESTIONS) == sorted(line["messages"][0]["content"] for line in lines)
    assert all("old" not in line["messages"][1]["content"] for line in lines)
    assert "5 answers of 5" in said.out
    assert "0 conversations added" in said.out


def test_sigterm_ends_it_with_a_summary_and_a_whole_file(
    target: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "answers.jsonl"
    append = AnswerFile.append

    def append_and_be_killed(self: AnswerFile, *answered: Any) -> None:
        append(self, *answered)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(AnswerFile, "append", append_and_be_killed)
    # What the command fails to handle must not end the test run.
    previous = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        options = ["--target", target, "--data", data, "--max-new-tokens", 4, "--device", "cpu", "--cache", tmp_path]
        status = run(monkeypatch, *options, "--batch-size", 2, "--out", out)
        handler = signal.getsignal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, previous)
    written = out.read_text(encoding="utf-8")

    assert 143 == status
    assert signal.SIG_IGN == handler
    assert [True, True] == ["messages" in json.loads(line) for line in written.splitlines()]
    assert written.endswith("\n")
    assert f"conversations added to {out}" in capsys.readouterr().out


def test_a_batch_that_does_not_fit_the_memory_is_no_traceback_but_a_smaller_batch(
    target: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def overflow(*_: Any) -> None:
        raise torch.OutOfMemoryError("tried to allocate")

    monkeypatch.setattr(AnswerFile, "append", overflow)
    options = ["--target", target, "--data", data, "--max-new-tokens", 4, "--device", "cpu", "--cache", tmp_path]
    status = run(monkeypatch, *options, "--batch-size", 4, "--out", tmp_path / "answers.jsonl")

    assert 4 == status
    assert "--batch-size 2" in capsys.readouterr().err


def test_only_the_first_conversations_and_only_those_that_fit(
    target: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "answers.jsonl"
    options = ["--target", target, "--data", data, "--max-new-tokens", 4, "--device", "cpu", "--cache", tmp_path]
    status = run(monkeypatch, *options, "--num-conversations", 3, "--max-length", 5, "--out", out)

    assert 0 == status
    assert "left out                 3 conversations" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ([], "--out"),
        (["--out", "x"], "--target DIR --data FILE"),
        (["--out", "x", "--target", "."], "--target DIR --data FILE"),
        (["--out", "x", "--preset", "smollm3"], "did you mean 'smollm2'"),
        (["--out", "x", "--preset", "tiny"], "random target"),
        (["--out", "x", "--preset", "tiny", "--target", "."], "--target DIR --data FILE"),
        (["--out", "x", "--preset", "qwen3-8b", "--data", "."], "--target DIR --data FILE"),
        (["--out", "x", "--preset", "smollm2", "--data", "missing.jsonl"], "missing.jsonl"),
        (["--out", "x", "--preset", "smollm2", "--batch-size", "0"], "--batch-size"),
        (["--out", ".", "--preset", "smollm2"], "--out"),
    ],
)
def test_wrong_input_is_a_usage_error_with_a_remedy(
    arguments: list[str], hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    status = run(monkeypatch, *arguments)
    said = capsys.readouterr().err

    assert 2 == status
    assert hint in said
    assert "Traceback" not in said


def test_a_file_that_is_no_output_is_refused_before_the_model_is_loaded(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(monkeypatch, "--target", tmp_path, "--data", data, "--out", data)

    assert 2 == status
    assert "not one of `regenerate`" in capsys.readouterr().err
