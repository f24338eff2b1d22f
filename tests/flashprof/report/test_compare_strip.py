"""The strip of blocks: every block on it, in order, outliers outside the others' axis at its edge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_results import hot_blocks

from flashprof.report.compare_strip import ASCII, MAX_ROWS, scale, strip_rows

WIDTH = 41


def test_a_drift_is_seen_as_a_slope() -> None:
    rows = strip_rows(hot_blocks(*[-0.02 + 0.001 * index for index in range(9)]), width=WIDTH, marks=ASCII)
    columns = [row.drawing.index("*") for row in rows]

    assert sorted(columns) == columns
    assert (0, WIDTH - 1) == (columns[0], columns[-1])


def test_a_left_out_block_stays_at_the_edge_and_does_not_stretch_the_axis() -> None:
    blocks = hot_blocks(-0.020, -0.60, -0.018, left_out=(2,))
    rows = strip_rows(blocks, width=WIDTH, marks=ASCII)

    assert [False, True, False] == [row.is_left_out for row in rows]
    assert ("left out", "x") == (rows[1].difference, rows[1].drawing)
    assert scale(blocks, width=WIDTH).startswith("−2.0 %")


@pytest.mark.parametrize(
    ("changes", "column"),
    [((-0.17, -0.171), None), ((-0.02, 0.02), 20), ((-0.02, -0.009), 40), ((0.009, 0.02), 0), ((0.02, 0.029), None)],
)
def test_zero_is_drawn_where_it_does_not_hide_the_scatter(changes: tuple[float, ...], column: int | None) -> None:
    rows = strip_rows(hot_blocks(*changes), width=WIDTH, marks=ASCII)

    assert {column} == {row.drawing.index("|") if "|" in row.drawing else None for row in rows}


def test_many_blocks_share_rows_which_show_their_spread() -> None:
    rows = strip_rows(hot_blocks(*[0.0, 0.01] * 30), width=WIDTH, marks=ASCII)

    assert "1-3" == rows[0].label
    assert {"-", "*"} == set(rows[0].drawing)
    assert 20 == len(rows)


def test_one_block_alone_is_in_the_middle() -> None:
    (row,) = strip_rows(hot_blocks(-0.05), width=WIDTH, marks=ASCII)

    assert WIDTH // 2 == row.drawing.index("*")


@given(
    st.lists(st.floats(-0.9, 5.0), min_size=1, max_size=80),
    st.integers(12, 60),
    st.sets(st.integers(1, 80), max_size=10),
)
def test_each_block_is_in_one_row_and_no_row_is_too_wide(changes: list[float], width: int, left_out: set[int]) -> None:
    blocks = hot_blocks(*changes, left_out=tuple(left_out))
    rows = strip_rows(blocks, width=width, marks=ASCII)
    ends = [(int(row.label.partition("-")[0]), int(row.label.rpartition("-")[2])) for row in rows]
    numbers = [number for first, last in ends for number in range(first, last + 1)]

    assert len(rows) <= MAX_ROWS
    assert list(range(1, len(changes) + 1)) == numbers
    assert all(len(row.drawing) <= width for row in rows)
    assert all("x" in row.drawing or "*" in row.drawing for row in rows)
