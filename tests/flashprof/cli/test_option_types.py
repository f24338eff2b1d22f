"""Numbers and paths of the command line."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.cli.option_types import NamedPath, duration_s
from flashprof.contracts.errors import UsageError


def read(text: str) -> float:
    return duration_s(click.Context(click.Command("x")), click.Option(["--budget"]), text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30", 1800.0), ("30m", 1800.0), ("1.5h", 5400.0), ("90s", 90.0), (" 2H ", 7200.0), ("0.5", 30.0)],
)
def test_a_time_may_have_a_unit_and_is_minutes_without(text: str, expected: float) -> None:
    assert expected == read(text)


@pytest.mark.parametrize("text", ["", "m", "0", "-3m", "inf", "nanm", "1e999", "3d", "2m30s", "1,5h"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="--budget does not take") as refused:
        read(text)

    assert "1.5h" in str(refused.value)
    assert refused.value.next_command == "--budget 30m"


@given(text=st.text(max_size=6))
def test_any_text_is_a_time_above_0_or_refused(text: str) -> None:
    try:
        length_s = read(text)
    except UsageError:
        return

    assert 0 < length_s < float("inf")


def test_an_empty_string_is_no_path() -> None:
    with pytest.raises(click.BadParameter, match="an empty string is no path"):
        NamedPath(path_type=Path).convert("", None, None)

    assert Path("reports") == NamedPath(path_type=Path).convert("reports", None, None)
