"""Where samples come from: each source encodes its text, or passes on its tokens, as rows on their way to the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from flashprof.contracts.errors import UsageError
from pipeline.data.arrow import Row
from pipeline.data.chat import ChatEncoder, Dropped
from pipeline.data.conversations import to_conversation
from pipeline.data.corpus import stdlib_documents
from pipeline.data.dialogues import read_dialogues
from pipeline.data.pretokenised import to_row
from pipeline.data.progress import stage
from pipeline.data.shards import TOKEN_COLUMNS, Record, read_shard
from pipeline.data.synthetic import SYNTHETIC_SEED, synthetic_lengths
from pipeline.data.tokenizer import EOS, MASK_ID, PAD, SPECIAL_TOKENS, encode_texts, save_tokenizer, train_bpe
from pipeline.data.vocabulary import Vocabulary, choose_mask_token, load_vocabulary
from pipeline.presets import Preset

TOKENIZER_FILE = "tokenizer.json"
MAX_STDLIB_BYTES = 16 * 2**20
"""Above the 11 MB that a CPython 3.11 has, so that a larger library does not make the start much slower."""
STDLIB_BYTES_A_TOKEN = 3.4
"""Measured on CPython 3.11 with 4,096 tokens; it only sets how long the pieces are cut."""
BPE_STRIDE = 6
"""Every sixth document trains the BPE: 0.5 s instead of 3.4 s, for 2 % more tokens."""
UNSUPERVISED_SHARE = 4
"""The first quarter of a stdlib or synthetic sample stands for the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildJob:
    """A data set that is to be built."""

    preset: Preset
    cache: Path
    folder: Path
    """Where other files of the data set may be put."""
    shards: tuple[Path, ...]
    """Of the source `file`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedSource:
    """A source's samples on their way to the cache."""

    vocab_size: int
    mask_token_id: int
    rows: Iterable[Row | Dropped]


def encode_stdlib(job: BuildJob) -> EncodedSource:
    """
    Python's own library in a BPE of its own, which is stored beside the samples.

    Raises:
        UsageError: The target has a vocabulary already, or the size or the mask does not fit.
    """
    target, max_length = job.preset.target, job.preset.data.max_length
    if not target.is_random:
        raise UsageError(
            "stdlib has a vocabulary of its own, and this target has another one",
            offered=f"target {target.source!r}",
            allowed="a random target; for others the data sources dialogues and file",
            next_command="--data FILE",
        )
    documents = list(stdlib_documents(MAX_STDLIB_BYTES, longest_bytes=int(STDLIB_BYTES_A_TOKEN * max_length)))
    label = f"training a BPE of {target.vocab_size:,} tokens"
    tokenizer = train_bpe(stage(documents[::BPE_STRIDE], label), target.vocab_size)
    save_tokenizer(tokenizer, job.folder / TOKENIZER_FILE)
    size = tokenizer.get_vocab_size()
    reserved = {SPECIAL_TOKENS.index(PAD): "pad", SPECIAL_TOKENS.index(EOS): "eos"}
    own = Vocabulary(size=size, own_mask_token_id=MASK_ID, reserved=reserved)

    def rows() -> Iterator[Row]:
        label = f"encoding {len(documents):,} documents of Python's library"
        for ids_S in encode_texts(tokenizer, stage(documents, label, total=len(documents))):
            cut_S = ids_S[:max_length]
            yield Row(cut_S, _answer_mask(len(cut_S)))

    return EncodedSource(vocab_size=size, mask_token_id=choose_mask_token(own, target.mask_token_id), rows=rows())


def encode_synthetic(job: BuildJob) -> EncodedSource:
    """
    Random tokens in lengths whose batches fall into the buckets as in the story.

    Raises:
        UsageError: The target has no tokenizer, no mask token is known, or there are more buckets than shares.
    """
    preset = job.preset
    vocabulary = load_vocabulary(preset.target, job.cache)
    mask_token_id = choose_mask_token(vocabulary, preset.target.mask_token_id)
    lengths_N = synthetic_lengths(preset.data)
    rng = np.random.default_rng(SYNTHETIC_SEED)

    def rows() -> Iterator[Row]:
        for length in stage(lengths_N.tolist(), f"drawing {len(lengths_N):,} samples", total=len(lengths_N)):
            # All ids but the mask's are alike.
            ids_S = rng.integers(vocabulary.size - 1, size=length, dtype=np.int32)
            yield Row(ids_S + (ids_S >= mask_token_id), _answer_mask(length))

    return EncodedSource(vocab_size=vocabulary.size, mask_token_id=mask_token_id, rows=rows())


def encode_dialogues(job: BuildJob) -> EncodedSource:
    """
    Real dialogues in the target's chat template.

    Raises:
        UsageError: The target has no tokenizer, or the optional packages are not installed.
        ToolError: The packages' files cannot be read.
    """
    vocabulary = load_vocabulary(job.preset.target, job.cache)
    encoder = _chat_encoder(vocabulary, job.preset)
    conversations = read_dialogues()
    label = f"encoding {len(conversations):,} dialogues"
    rows = map(encoder.encode, stage(conversations, label, total=len(conversations)))
    return _encoded(vocabulary, job.preset, rows)


def encode_file(job: BuildJob) -> EncodedSource:
    """
    A user's conversations or pre-tokenised samples, or both, a record at a time.

    Raises:
        UsageError: The target has no tokenizer and the files hold conversations, or no mask token is known.
        FormatError: While the rows are drawn: a record cannot be used; names it.
    """
    vocabulary = load_vocabulary(job.preset.target, job.cache)
    records = (record for shard in job.shards for record in read_shard(shard))
    label = f"encoding {job.preset.data.path} ({len(job.shards):,} files)"
    return _encoded(vocabulary, job.preset, _encode_records(vocabulary, job.preset, stage(records, label)))


def _answer_mask(length: int) -> NDArray[np.uint8]:
    loss_mask_S = np.ones(length, dtype=np.uint8)
    loss_mask_S[: length // UNSUPERVISED_SHARE] = 0
    return loss_mask_S


def _encode_records(vocabulary: Vocabulary, preset: Preset, records: Iterable[Record]) -> Iterator[Row | Dropped]:
    max_length = preset.data.max_length
    encoder: ChatEncoder | None = None
    for where, fields in records:
        if TOKEN_COLUMNS[0] in fields and TOKEN_COLUMNS[1] in fields:
            row = to_row(fields, where, vocab_size=vocabulary.size, max_length=max_length)
            yield row if row.loss_mask_S.any() else Dropped.NOTHING_TO_LEARN
        else:
            encoder = encoder or _chat_encoder(vocabulary, preset)
            yield encoder.encode(to_conversation(fields, where), where)


def _encoded(vocabulary: Vocabulary, preset: Preset, rows: Iterable[Row | Dropped]) -> EncodedSource:
    mask_token_id = choose_mask_token(vocabulary, preset.target.mask_token_id)
    return EncodedSource(vocab_size=vocabulary.size, mask_token_id=mask_token_id, rows=rows)


def _chat_encoder(vocabulary: Vocabulary, preset: Preset) -> ChatEncoder:
    if vocabulary.tokenizer is None:
        raise UsageError(
            "conversations need a target with a tokenizer",
            offered=f"target {preset.target.source!r}, data {preset.data.path or preset.data.source}",
            allowed="the target smollm2 or a transformers folder; or pre-tokenised samples",
            next_command="python -m pipeline presets",
        )
    return ChatEncoder(vocabulary.tokenizer, max_length=preset.data.max_length, where=vocabulary.where)


SOURCES: MappingProxyType[str, Callable[[BuildJob], EncodedSource]] = MappingProxyType(
    {
        "stdlib": encode_stdlib,
        "dialogues": encode_dialogues,
        "synthetic": encode_synthetic,
        "file": encode_file,
    }
)
