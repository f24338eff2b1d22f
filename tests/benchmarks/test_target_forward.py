"""The study of the target forward: its arithmetic, and a run of it at small shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from benchmarks.peers.work import FULL, TINY
from benchmarks.target_forward import Study, batches_by_bucket, main, table, target_tflop
from benchmarks.target_variants import Variant


def test_the_arithmetic_is_that_of_the_anchors() -> None:
    tflop = target_tflop(FULL, (3072, 3072))

    # 114 ms at 756 TFLOP/s.
    assert 114 == pytest.approx(tflop / 756 * 1e3, abs=1)


def test_every_bucket_of_the_story_has_batches() -> None:
    found = batches_by_bucket(FULL, seed=1)

    assert list(range(6)) == list(found)
    assert {4} == {len(batches) for batches in found.values()}


def test_a_run_writes_numbers_and_prints_a_table_last(tmp_path: Path) -> None:
    out = tmp_path / "numbers.json"
    names = ["logits", "hooks", "padded eager", "padded compiled, cuDNN", "packed eager"]
    arguments = [word for name in names for word in ("--only", name)]

    done = CliRunner().invoke(main, ["--device", "cpu", "--tiny", "--out", str(out), *arguments])

    assert 0 == done.exit_code, done.output
    rows = {row["name"]: row for row in json.loads(out.read_text())["rows"]}
    assert names == list(rows)
    assert "needs a CUDA device" == rows.pop("padded compiled, cuDNN")["failure"]
    for row in rows.values():
        assert not row["failure"]
        assert row["fixed_tok_per_s"] > 0
        assert row["varying_tok_per_s"] > 0
        assert row["error"] < 1e-4
    assert all(name in done.output for name in names)


def test_a_way_that_fails_leaves_a_row_that_says_so() -> None:
    def fail(bench: object) -> object:
        raise RuntimeError("no such kernel")

    study = Study(TINY, torch.device("cpu"))

    row = study.measure(Variant(name="broken", predicted_ms=1, why="", make=fail))

    assert "RuntimeError: no such kernel" == row.failure
    assert "no such kernel" in table([row], 1.0)
