"""The mask token is told or known, never guessed, and never one with a meaning of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashprof.contracts.errors import UnknownNameError, UsageError
from pipeline.data.vocabulary import Vocabulary, choose_mask_token, load_vocabulary, target_identity
from pipeline.presets import TINY, Preset, TargetPlan

CONFIG = json.dumps({"model_type": "qwen3", "vocab_size": 9})
VOCABULARY = Vocabulary(size=50, own_mask_token_id=2, reserved={0: "pad", 1: "eos"}, where="/models/x")


@pytest.mark.parametrize(("chosen", "expected"), [(None, 2), (49, 49), (2, 2)])
def test_the_chosen_mask_goes_before_the_known_one(chosen: int | None, expected: int) -> None:
    assert expected == choose_mask_token(VOCABULARY, chosen)


@pytest.mark.parametrize(
    ("chosen", "what"),
    [
        (50, "the mask token is not in the vocabulary"),
        (-1, "the mask token is not in the vocabulary"),
        (0, "the mask token is the pad token, whose embedding means something else"),
        (1, "the mask token is the eos token, whose embedding means something else"),
    ],
)
def test_a_mask_that_means_something_else_is_refused(chosen: int, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_mask_token(VOCABULARY, chosen)

    assert (what, str(chosen), "/models/x") == (caught.value.what, caught.value.offered, caught.value.where)
    assert caught.value.next_command is not None


def suggestion(vocabulary: Vocabulary) -> str:
    with pytest.raises(UsageError, match="no mask token is known") as caught:
        choose_mask_token(vocabulary, None)
    return str(caught.value.next_command)


def test_without_a_mask_an_unused_embedding_is_suggested(chat_preset: Preset, tmp_path: Path) -> None:
    vocabulary = load_vocabulary(chat_preset.target, tmp_path)
    assert vocabulary.tokenizer is not None

    assert f"--mask-token-id {len(vocabulary.tokenizer)}" == suggestion(vocabulary)


def test_without_an_unused_embedding_tokens_are_suggested_that_the_template_does_not_use(
    make_tokenizer: Callable[[str], Any],
) -> None:
    tokenizer = make_tokenizer("marked")
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in ("<|mask|>", "<|eot|>", "<|im_end|>", "<|pad|>")}
    vocabulary = Vocabulary(size=len(tokenizer), tokenizer=tokenizer, reserved={ids["<|pad|>"]: "pad"})
    text = suggestion(vocabulary)

    assert f"{ids['<|mask|>']} (<|mask|>)" in text
    assert "<|im_end|>" not in text
    assert "<|pad|>" not in text


def test_a_random_target_has_ids_and_no_tokenizer(tmp_path: Path) -> None:
    vocabulary = load_vocabulary(TINY.target, tmp_path)

    assert (vocabulary.size, vocabulary.tokenizer, vocabulary.own_mask_token_id) == (4096, None, None)
    assert suggestion(vocabulary).startswith("--mask-token-id 4095")


def test_a_folders_vocabulary_is_as_large_as_its_embedding(chat_preset: Preset, tmp_path: Path) -> None:
    vocabulary = load_vocabulary(chat_preset.target, tmp_path)

    assert vocabulary.size == 320
    assert sorted(vocabulary.reserved.values()) == ["eos", "pad"]
    assert chat_preset.target.path == vocabulary.where


def test_the_token_for_unknown_text_is_reserved_too(chat_preset: Preset, tmp_path: Path) -> None:
    folder = tmp_path / "target"
    shutil.copytree(chat_preset.target.path, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"unk_token": "<|mask|>"}), encoding="utf-8")
    vocabulary = load_vocabulary(replace(chat_preset.target, path=str(folder)), tmp_path)

    assert "unk" in vocabulary.reserved.values()


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({}, "cannot read the target's vocabulary size"),
        ({"config.json": "{}"}, "cannot read the target's vocabulary size"),
        ({"config.json": CONFIG, "tokenizer.json": "{"}, "cannot load the target's tokenizer"),
    ],
)
def test_a_folder_that_is_no_model_is_named(tmp_path: Path, files: dict[str, str], what: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=what) as caught:
        load_vocabulary(TargetPlan(source="folder", path=str(tmp_path)), tmp_path)

    assert str(caught.value.where).startswith(str(tmp_path))


def test_a_folder_without_tokenizer_has_ids_only(tmp_path: Path) -> None:
    """The library would make one that knows no word."""
    (tmp_path / "config.json").write_text(CONFIG)
    vocabulary = load_vocabulary(TargetPlan(source="folder", path=str(tmp_path)), tmp_path)

    assert (vocabulary.size, vocabulary.tokenizer) == (9, None)


@pytest.mark.parametrize("path", ["", "nowhere"])
def test_a_missing_folder_is_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match="there is no target folder"):
        target_identity(TargetPlan(source="folder", path=path and str(tmp_path / path)))


def test_an_unknown_kind_of_target_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'random'"):
        target_identity(replace(TINY.target, source="randon"))


def test_smollm2_is_identified_without_being_there() -> None:
    assert target_identity(TargetPlan(source="smollm2"))[0] == "smollm2"
