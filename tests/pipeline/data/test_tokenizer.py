"""The BPE is lossless, deterministic, and keeps its mask token for itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from flashprof.contracts.errors import FormatError, UsageError
from pipeline.data.tokenizer import EOS, MASK, MASK_ID, PAD, encode_texts, load_tokenizer, save_tokenizer, train_bpe

TEXTS = ["def add(a, b):\n    return a + b\n", "class Adder:\n    total = 0\n", "import os, sys\n"] * 20


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_bpe(TEXTS, 300)


@settings(max_examples=60, deadline=None)
@given(text=st.text())
def test_any_text_decodes_to_itself(tokenizer: Tokenizer, text: str) -> None:
    (ids,) = encode_texts(tokenizer, [text])

    assert text == tokenizer.decode(ids.tolist(), skip_special_tokens=False)


def test_the_mask_is_neither_pad_nor_eos(tokenizer: Tokenizer) -> None:
    ids = [tokenizer.token_to_id(token) for token in (PAD, EOS, MASK)]

    assert ids == [0, 1, MASK_ID]


def test_text_that_spells_the_mask_is_not_the_mask(tokenizer: Tokenizer) -> None:
    (ids,) = encode_texts(tokenizer, [f"a {MASK} b"])

    assert MASK_ID not in ids


def test_every_text_is_encoded_in_order_over_several_calls(tokenizer: Tokenizer) -> None:
    texts = [f"{i}" for i in range(600)]

    assert texts == [tokenizer.decode(ids.tolist()) for ids in encode_texts(tokenizer, texts)]


def test_another_process_learns_the_same_tokens(tokenizer: Tokenizer) -> None:
    program = f"from pipeline.data.tokenizer import train_bpe; print(train_bpe({TEXTS!r}, 300).to_str())"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert tokenizer.to_str() == result.stdout.rstrip("\n")


def test_a_saved_tokenizer_reads_back(tokenizer: Tokenizer, tmp_path: Path) -> None:
    save_tokenizer(tokenizer, tmp_path / "tokenizer.json")

    assert tokenizer.to_str() == load_tokenizer(tmp_path / "tokenizer.json").to_str()


@pytest.mark.parametrize("content", [None, "", "{}", '{"model": 1'])
def test_what_is_no_tokenizer_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)

    with pytest.raises(FormatError) as caught:
        load_tokenizer(path)

    assert str(path) == caught.value.where


def test_a_vocabulary_without_room_for_all_bytes_is_refused() -> None:
    with pytest.raises(UsageError, match="259 or more"):
        train_bpe(TEXTS, 258)
