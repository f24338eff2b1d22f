"""The samples' Arrow file: written row by row, read memory-mapped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SCHEMA = pa.schema(
    [
        ("input_ids", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.uint8())),
        ("length", pa.int32()),
        ("first_supervised", pa.int32()),
    ]
)
"""The mask is a byte a token and not Arrow's bit a token: it is then viewed by numpy without unpacking."""
NUM_ROWS_A_BLOCK = 1024
NEVER = np.iinfo(np.int32).max
"""`first_supervised` of a sample that has nothing to learn."""


@dataclass(frozen=True, slots=True)
class Row:
    """One sample."""

    input_ids_S: NDArray[np.int32]
    loss_mask_S: NDArray[np.uint8]
    """1 where the token is supervised."""
    where: str = ""
    """File and line that it came from, for messages."""

    @property
    def first_supervised(self) -> int:
        """The smallest supervised position from 1 on (the one before could be an anchor), or `NEVER`."""
        later = np.flatnonzero(self.loss_mask_S[1:])
        return int(later[0]) + 1 if len(later) else NEVER


def write_rows(path: Path, rows: Iterable[Row]) -> int:
    """Write *rows* as an Arrow stream and return how many there were; holds 1,024 of them in memory."""
    num_rows = 0
    block: list[Row] = []
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as writer:
        for row in rows:
            block.append(row)
            num_rows += 1
            if len(block) == NUM_ROWS_A_BLOCK:
                writer.write_batch(_to_arrow(block))
                block.clear()
        writer.write_batch(_to_arrow(block))
    return num_rows


def _to_arrow(rows: list[Row]) -> pa.RecordBatch:
    columns = (
        [row.input_ids_S for row in rows],
        [row.loss_mask_S for row in rows],
        [len(row.input_ids_S) for row in rows],
        [row.first_supervised for row in rows],
    )
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)
