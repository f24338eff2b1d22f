"""What is written comes back, over block borders and without rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.data.arrow import NUM_ROWS_A_BLOCK, SCHEMA, Row, write_rows


@pytest.mark.parametrize("num_rows", [0, 1, NUM_ROWS_A_BLOCK, NUM_ROWS_A_BLOCK + 1])
def test_rows_read_back(tmp_path: Path, num_rows: int) -> None:
    rows = [
        Row(np.arange(i % 5 + 1, dtype=np.int32), np.array([0, 0, 1, 1, 1][: i % 5 + 1], dtype=np.uint8))
        for i in range(num_rows)
    ]
    written = write_rows(tmp_path / "rows", iter(rows))
    with pa.memory_map(str(tmp_path / "rows")) as source:
        table = pa.ipc.open_stream(source).read_all()

        assert num_rows == written == table.num_rows
        assert table.schema == SCHEMA
        assert [row.input_ids_S.tolist() for row in rows] == table.column("input_ids").to_pylist()
        assert [row.loss_mask_S.tolist() for row in rows] == table.column("loss_mask").to_pylist()
        assert [len(row.input_ids_S) for row in rows] == table.column("length").to_pylist()
        assert [row.first_supervised for row in rows] == table.column("first_supervised").to_pylist()
