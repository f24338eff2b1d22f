"""The tables of a localisation."""

from __future__ import annotations

import math
from dataclasses import replace

import localisations
from hypothesis import given
from hypothesis import strategies as st

from flashprof.report import localisation_rows as rows


def test_one_unit_serves_all_of_a_table() -> None:
    table = rows.part_table(localisations.one_phase())

    assert table.titles[3] == "before, µs"
    assert table.rows[0].cells == (
        "drafter mask",
        "work",
        "",
        "2.40",
        "41.40",
        "+39.00",
        "+36.00 to +42.00",
        "94 %",
        "99 %",
    )
    assert [row.is_clear for row in table.rows] == [True, False]


def test_nanoseconds_have_no_fractions_and_large_times_few() -> None:
    assert rows.scale_of([12.34, -99.9]).signed(12.34) == "+12"
    assert rows.scale_of([120_400.0]).signed(-120_400.0) == "−120.4"
    assert rows.scale_of([5e6])(1e6) == "1.00"
    assert rows.scale_of([])(0.0) == "0"


def test_what_rounds_to_nothing_has_no_sign() -> None:
    scale = rows.scale_of([40_000.0])

    assert (scale.signed(1.0), scale.signed(-1.0), scale.signed(math.nan)) == ("0.00", "0.00", "–")


@given(st.lists(st.floats(), max_size=4), st.floats())
def test_no_value_is_written_as_nan_or_inf(values: list[float], value: float) -> None:
    written = rows.scale_of(values).signed(value)

    assert "nan" not in written
    assert "inf" not in written


def test_a_renamed_frame_says_what_it_was() -> None:
    table = rows.frame_table(localisations.one_phase())

    assert [row.cells[4] for row in table.rows] == ["", "", "renamed, was _visible"]


def test_resources_that_changed_come_first_and_single_values_have_no_interval() -> None:
    table = rows.resource_table(localisations.one_phase())

    assert table.rows[0].cells == (
        "drafter 0/MainThread",
        "involuntary switches",
        "/s",
        "12.0",
        "231",
        "+219",
        "+179 to +259",
    )
    assert table.rows[1].cells[5:] == ("−12.5", "")


def test_only_suspects_that_take_part_have_a_share() -> None:
    table = rows.suspect_table(localisations.one_phase())

    assert [(row.cells[0], row.cells[3]) for row in table.rows] == [
        ("mask building", "94 %"),
        ("stragglers", "8.0 %"),
        ("logging", ""),
        ("GIL contention", ""),
    ]


def test_long_tables_say_how_many_rows_are_left_out() -> None:
    found = localisations.one_phase()
    table = rows.part_table(replace(found, parts=found.parts * 20))

    assert len(table.rows) == rows.MAX_PARTS
    assert table.num_left_out == 40 - rows.MAX_PARTS
