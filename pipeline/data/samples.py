"""
The Arrow data set: built once into a cache folder, afterwards memory-mapped and lazily read.

History of the builder, which is part of the cache's key
    1  2026-11  stdlib and dialogues; input_ids int32, loss_mask uint8, length int32
    2  2026-11  files; first_supervised int32; any target's tokenizer; what was dropped is counted
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import datasets
import numpy as np
from numpy.typing import NDArray

from flashprof.contracts.errors import UnknownNameError, UsageError
from pipeline.data.arrow import Row, write_rows
from pipeline.data.build_cache import open_or_build
from pipeline.data.chat import Dropped
from pipeline.data.shards import find_shards, fingerprint
from pipeline.data.sources import SOURCES, BuildJob, EncodedSource
from pipeline.data.split import Split, split_samples
from pipeline.data.vocabulary import target_identity
from pipeline.presets import Preset

BUILDER_VERSION = 2
ROWS_FILE = "samples.arrow"
INFO_FILE = "info.json"
SHORTEST_MAX_LENGTH = 32
"""Two draft blocks of 16: below it a sample has no room for a prompt and one block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleInfo:
    """What a trainer needs to know of a data set before it reads a sample."""

    source: str
    """`stdlib`, `dialogues`, `synthetic`, or the path of the file."""
    num_samples: int
    vocab_size: int
    mask_token_id: int
    """A token that no sample contains."""
    dropped: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Why samples were left out when the data set was built, and how many for each reason."""
    cache_path: Path
    """The folder with the Arrow file and, for `stdlib`, `tokenizer.json`."""


@dataclass(frozen=True, slots=True)
class Samples:
    """A memory-mapped data set, and its description."""

    dataset: datasets.Dataset
    """Columns `input_ids` (int32), `loss_mask` (uint8, 1 = supervised), `length`, `first_supervised` (int32)."""
    info: SampleInfo

    @property
    def lengths_N(self) -> NDArray[np.int64]:
        """Every sample's length, tokens; reads that one column only."""
        return self._column("length")

    @property
    def first_supervised_N(self) -> NDArray[np.int64]:
        """Every sample's smallest supervised position from 1 on; `arrow.NEVER` if there is none."""
        return self._column("first_supervised")

    def split(self, *, block_size: int, held_out_share: float) -> Split:
        """
        Samples to train on, samples that are held out, and how many have no valid anchor.

        Args:
            block_size: Tokens of a draft block, the anchor among them.
            held_out_share: From 0 to below 1.

        Raises:
            UsageError: The share is not one, or nothing is left to train on.
        """
        return split_samples(
            self.lengths_N, self.first_supervised_N, block_size=block_size, held_out_share=held_out_share
        )

    def _column(self, name: str) -> NDArray[np.int64]:
        return np.asarray(self.dataset.data.column(name).to_numpy(), dtype=np.int64)


def open_samples(preset: Preset, *, cache: Path) -> Samples:
    """
    Open the preset's data set for the preset's target; the first time, build it.

    Args:
        preset: Its `data` says which text and how long, its `target` which tokens.
        cache: Folder for everything that is built once; several processes may share it and race for it.

    Raises:
        UnknownNameError: There is no such source of data, or of the target.
        UsageError: Data and target do not fit, no mask token is known, nothing is left to train on, or an optional
            package is not installed.
        FormatError: A file cannot be used; names the line or row.
        ToolError: The disk is full, or the cache cannot be written.
    """
    data = preset.data
    if data.source not in SOURCES:
        raise UnknownNameError("data source", data.source, SOURCES)
    if data.max_length < SHORTEST_MAX_LENGTH:
        raise UsageError(
            "samples this short cannot hold a prompt and a draft block",
            offered=f"max_length={data.max_length}",
            allowed=f"{SHORTEST_MAX_LENGTH} or more",
        )
    shards = find_shards(_data_path(preset)) if data.source == "file" else ()
    name = data.path if shards else data.source
    folder = cache / "samples" / f"{data.source}-{_key(preset, shards)}"
    build = functools.partial(_build, preset=preset, cache=cache, shards=shards)
    open_or_build(folder, build, what=f"samples of {name}")
    info = json.loads((folder / INFO_FILE).read_text(encoding="utf-8"))
    return Samples(
        datasets.Dataset.from_file(str(folder / ROWS_FILE)), SampleInfo(**info, source=name, cache_path=folder)
    )


def _data_path(preset: Preset) -> Path:
    if not preset.data.path:
        raise UsageError(
            "the data source 'file' needs a path", allowed="a file or a folder", next_command="--data PATH"
        )
    return Path(preset.data.path)


def _key(preset: Preset, shards: tuple[Path, ...]) -> str:
    """Everything that decides what a built sample holds; not `hash()`, which differs from process to process."""
    source = preset.data.source
    facts: list[Any] = [
        BUILDER_VERSION,
        source,
        preset.data.max_length,
        target_identity(preset.target),
        fingerprint(shards),
        # Another Python has another library.
        platform.python_version() if source == "stdlib" else "",
    ]
    if source == "synthetic":
        # Its lengths are drawn for these.
        facts.append([preset.data.bucket_bounds, preset.data.token_budget, preset.data.max_samples])
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()


def _build(folder: Path, *, preset: Preset, cache: Path, shards: tuple[Path, ...]) -> None:
    source = preset.data.source
    encoded = SOURCES[source](BuildJob(preset=preset, cache=cache, folder=folder, shards=shards))
    dropped: Counter[str] = Counter()
    num_samples = write_rows(folder / ROWS_FILE, _kept(encoded, dropped))
    if num_samples == 0:
        raise UsageError(
            f"there is no sample in {preset.data.path or source}",
            offered="; ".join(f"{count:,} {reason}" for reason, count in dropped.items()) or "no text",
            allowed="a sample with at least one supervised token",
        )
    info = {
        "num_samples": num_samples,
        "vocab_size": encoded.vocab_size,
        "mask_token_id": encoded.mask_token_id,
        "dropped": dropped,
    }
    (folder / INFO_FILE).write_text(json.dumps(info), encoding="utf-8")


def _kept(encoded: EncodedSource, dropped: Counter[str]) -> Iterator[Row]:
    for row in encoded.rows:
        if isinstance(row, Dropped):
            dropped[row.value] += 1
        else:
            _check_ids(row, encoded)
            yield row


def _check_ids(row: Row, encoded: EncodedSource) -> None:
    if encoded.mask_token_id in row.input_ids_S:
        raise UsageError(
            "a sample contains the mask token, which would then also stand for itself",
            where=row.where or None,
            offered=f"mask token {encoded.mask_token_id}",
            allowed="an id that no sample contains",
            next_command="--mask-token-id ID",
        )
    largest = int(row.input_ids_S.max(initial=0))
    if largest >= encoded.vocab_size:
        raise UsageError(
            "the tokenizer makes ids that the target has no embedding for",
            where=row.where or None,
            offered=str(largest),
            allowed=f"at most {encoded.vocab_size - 1:,}, by vocab_size in config.json",
        )
