"""A byte-level BPE of our own, for the presets that must not download one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from flashprof.contracts.errors import FormatError, UsageError

PAD = "<|pad|>"
EOS = "<|eos|>"
MASK = "<|mask|>"
SPECIAL_TOKENS = (PAD, EOS, MASK)
"""Ids 0, 1, 2. The mask is its own token: were it pad or eos, its embedding would also have to mean `the end`."""
MASK_ID = SPECIAL_TOKENS.index(MASK)
SMALLEST_VOCAB_SIZE = 256 + len(SPECIAL_TOKENS)
NUM_TEXTS_A_CALL = 256
"""Enough to keep the tokenizer's threads busy, few enough for a bar that moves."""


def train_bpe(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """
    Learn a byte-level BPE: any text can be encoded, and decodes to itself.

    Args:
        texts: What it learns from, read once.
        vocab_size: Size aimed at, special tokens included; little text yields a smaller vocabulary.

    Raises:
        UsageError: *vocab_size* does not even hold the 256 bytes and the special tokens.
    """
    if vocab_size < SMALLEST_VOCAB_SIZE:
        raise UsageError(
            "the vocabulary is too small for a byte-level BPE",
            offered=f"vocab_size={vocab_size}",
            allowed=f"{SMALLEST_VOCAB_SIZE} or more: 256 bytes and {', '.join(SPECIAL_TOKENS)}",
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    """Write *tokenizer* as the usual `tokenizer.json`."""
    # Not `Tokenizer.save`: on a full disk that raises a bare `Exception`.
    path.write_text(tokenizer.to_str(pretty=True), encoding="utf-8")


def load_tokenizer(path: Path) -> Tokenizer:
    """
    Read what `save_tokenizer` wrote.

    Raises:
        FormatError: There is no such file, or it is no tokenizer.
    """
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    # The library raises bare `Exception` for a file that it cannot parse.
    except Exception as error:
        raise FormatError(
            f"cannot read the tokenizer: {error}",
            where=str(path),
            allowed="a tokenizer.json",
            next_command=f"delete {path.parent} and start again: it is rebuilt",
        ) from error


def encode_texts(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[NDArray[np.int32]]:
    """Token ids of each text. Text that spells a special token is encoded as its bytes, never as that token."""
    tokenizer.encode_special_tokens = True
    remaining = iter(texts)
    while chunk := list(islice(remaining, NUM_TEXTS_A_CALL)):
        for encoding in tokenizer.encode_batch_fast(chunk):
            yield np.asarray(encoding.ids, dtype=np.int32)
