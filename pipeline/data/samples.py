"""
The Arrow data set: built once into a cache folder, afterwards memory-mapped and lazily read.

History of the builder, which is part of the cache's key
    1  2026-11  stdlib and dialogues; input_ids int32, loss_mask uint8, length int32
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import datasets
import numpy as np
from numpy.typing import NDArray

from flashprof.contracts.errors import ToolError, UnknownNameError, UsageError
from pipeline.data.arrow import EncodedSource, Row, write_rows
from pipeline.data.build_cache import open_or_build
from pipeline.data.corpus import stdlib_documents
from pipeline.data.dialogues import encode_dialogues, read_conversations
from pipeline.data.progress import stage
from pipeline.data.smollm2 import MASK_TOKEN_ID, VOCAB_SIZE, ensure_smollm2, load_smollm2_tokenizer
from pipeline.data.tokenizer import MASK_ID, encode_texts, save_tokenizer, train_bpe

BUILDER_VERSION = 1
ROWS_FILE = "samples.arrow"
INFO_FILE = "info.json"
TOKENIZER_FILE = "tokenizer.json"
SHORTEST_MAX_LENGTH = 32
"""Two draft blocks of 16: below it a sample has no room for a prompt and one block."""
MAX_STDLIB_BYTES = 16 * 2**20
"""Above the 11 MB that a CPython 3.11 has, so that a larger library does not make the start much slower."""
STDLIB_BYTES_A_TOKEN = 3.4
"""Measured on CPython 3.11 with 4,096 tokens; it only sets how long the pieces are cut."""
BPE_STRIDE = 6
"""Every sixth document trains the BPE: 0.5 s instead of 3.4 s, for 2 % more tokens."""
UNSUPERVISED_SHARE = 4
"""The first quarter of a stdlib sample stands for the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleInfo:
    """What a trainer needs to know of a data set before it reads a sample."""

    source: str
    num_samples: int
    vocab_size: int
    mask_token_id: int
    """A token that no sample contains."""
    cache_path: Path
    """The folder with the Arrow file and, for `stdlib`, `tokenizer.json`."""


@dataclass(frozen=True, slots=True)
class Samples:
    """A memory-mapped data set, and its description."""

    dataset: datasets.Dataset
    """Columns `input_ids` (int32), `loss_mask` (uint8, 1 = supervised), `length` (int32)."""
    info: SampleInfo

    @property
    def lengths_N(self) -> NDArray[np.int64]:
        """Every sample's length, tokens; reads that one column only."""
        return np.asarray(self.dataset.data.column("length").to_numpy(), dtype=np.int64)


def open_samples(source: str, *, cache: Path, vocab_size: int, max_length: int) -> Samples:
    """
    Open a data set; the first time, build it.

    Args:
        source: `stdlib` (Python's own library, own BPE) or `dialogues` (real ones, for SmolLM2).
        cache: Folder for everything that is built once; several processes may share it and race for it.
        vocab_size: Size of the BPE that is trained for `stdlib`; 49,152 for `dialogues`.
        max_length: Tokens; longer samples are cut there.

    Raises:
        UnknownNameError: There is no such source.
        UsageError: A size that does not fit the source, or the extra `smollm2` is not installed.
        ToolError: The disk is full, the cache cannot be written, or there is no text.
    """
    if source not in SOURCES:
        raise UnknownNameError("data source", source, SOURCES)
    if max_length < SHORTEST_MAX_LENGTH:
        raise UsageError(
            "samples this short cannot hold a prompt and a draft block",
            offered=f"max_length={max_length}",
            allowed=f"{SHORTEST_MAX_LENGTH} or more",
        )
    folder = cache / "samples" / f"{source}-{_key(source, vocab_size, max_length)}"
    build = functools.partial(_build, source=source, cache=cache, vocab_size=vocab_size, max_length=max_length)
    open_or_build(folder, build, what=f"samples of {source}")
    info = SampleInfo(**json.loads((folder / INFO_FILE).read_text(encoding="utf-8")), cache_path=folder)
    return Samples(datasets.Dataset.from_file(str(folder / ROWS_FILE)), info)


def _key(source: str, vocab_size: int, max_length: int) -> str:
    # Another Python has another library. Not `hash()`: it differs from process to process.
    facts = [BUILDER_VERSION, source, vocab_size, max_length, platform.python_version() if source == "stdlib" else ""]
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=8).hexdigest()


def _build(folder: Path, *, source: str, cache: Path, vocab_size: int, max_length: int) -> None:
    encoded = SOURCES[source](folder, cache, vocab_size, max_length)
    num_samples = write_rows(folder / ROWS_FILE, encoded.rows)
    if num_samples == 0:
        raise ToolError(f"the data source {source!r} has no text on this machine", where=str(folder))
    info = {
        "source": source,
        "num_samples": num_samples,
        "vocab_size": encoded.vocab_size,
        "mask_token_id": encoded.mask_token_id,
    }
    (folder / INFO_FILE).write_text(json.dumps(info), encoding="utf-8")


def _encode_stdlib(folder: Path, _cache: Path, vocab_size: int, max_length: int) -> EncodedSource:
    longest_bytes = int(STDLIB_BYTES_A_TOKEN * max_length)
    documents = list(stdlib_documents(MAX_STDLIB_BYTES, longest_bytes=longest_bytes))
    tokenizer = train_bpe(stage(documents[::BPE_STRIDE], f"training a BPE of {vocab_size:,} tokens"), vocab_size)
    save_tokenizer(tokenizer, folder / TOKENIZER_FILE)

    def rows() -> Iterator[Row]:
        label = f"encoding {len(documents):,} documents of Python's library"
        for ids_S in encode_texts(tokenizer, stage(documents, label, total=len(documents))):
            cut_S = ids_S[:max_length]
            loss_mask_S = np.ones(len(cut_S), dtype=np.uint8)
            loss_mask_S[: len(cut_S) // UNSUPERVISED_SHARE] = 0
            yield Row(cut_S, loss_mask_S)

    return EncodedSource(vocab_size=tokenizer.get_vocab_size(), mask_token_id=MASK_ID, rows=rows())


def _encode_dialogues(_folder: Path, cache: Path, vocab_size: int, max_length: int) -> EncodedSource:
    if vocab_size != VOCAB_SIZE:
        raise UsageError(
            "dialogues are encoded with SmolLM2's own tokenizer",
            offered=f"vocab_size={vocab_size}",
            allowed=f"vocab_size={VOCAB_SIZE}",
        )
    conversations = read_conversations()
    tokenizer = load_smollm2_tokenizer(ensure_smollm2(cache))
    label = f"encoding {len(conversations):,} dialogues"
    rows = encode_dialogues(tokenizer, stage(conversations, label, total=len(conversations)), max_length=max_length)
    return EncodedSource(vocab_size=VOCAB_SIZE, mask_token_id=MASK_TOKEN_ID, rows=rows)


SOURCES: dict[str, Callable[[Path, Path, int, int], EncodedSource]] = {
    "stdlib": _encode_stdlib,
    "dialogues": _encode_dialogues,
}
