"""`threads.csv` is read as it was written, and windows are pooled by time."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError
from flashprof.sample.threads import COLUMNS, FILE_NAME, ThreadUse, pool_threads, read_threads, write_threads

_SHARES = st.integers(0, 100_000).map(lambda value: value / 1000)
_NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=15)
_USES = st.builds(
    ThreadUse,
    role=st.sampled_from(["drafter", "target"]),
    rank=st.integers(0, 7),
    pid=st.integers(1, 2**22),
    tid=st.integers(1, 2**22),
    thread=_NAMES,
    **dict.fromkeys(COLUMNS[5:], _SHARES),
)

USE = ThreadUse(
    role="drafter",
    rank=0,
    pid=10,
    tid=11,
    thread="prefetch, 1",
    usr_pct=40.0,
    system_pct=2.0,
    wait_pct=1.0,
    voluntary_switches_per_s=100.0,
    involuntary_switches_per_s=3.0,
    seconds=1.0,
)


@given(st.lists(_USES, max_size=5))
def test_rows_are_read_as_they_were_written(uses: list[ThreadUse]) -> None:
    with tempfile.TemporaryDirectory() as name:
        write_threads(Path(name), uses)

        assert uses == read_threads(Path(name, FILE_NAME))
        assert [path.name for path in Path(name).iterdir()] == [FILE_NAME]


def test_pooling_weights_by_time() -> None:
    longer = dataclasses.replace(USE, usr_pct=80.0, seconds=3.0)
    [row] = pool_threads([[USE], [longer]])

    assert row.usr_pct == pytest.approx(70.0)
    assert row.thread == "prefetch, 1"


def test_threads_of_one_name_are_not_mixed_and_the_busiest_comes_first() -> None:
    busier = dataclasses.replace(USE, tid=12, usr_pct=90.0)
    rows = pool_threads([[USE, busier], [USE, busier]])

    assert [row.usr_pct for row in rows] == [90.0, 40.0]


def test_a_name_of_bytes_that_are_no_text_is_shown_as_such(tmp_path: Path) -> None:
    write_threads(tmp_path, [USE])
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes().replace(b"prefetch, 1", b"pre\xff"))

    assert [dataclasses.replace(USE, thread="pre\ufffd")] == read_threads(path)


@pytest.mark.parametrize("old", [b"40.0", b",0,"])
@pytest.mark.parametrize("new", [b"\xff\xfe", b"nan", b"inf", b"\x00"])
def test_what_is_no_number_is_refused(tmp_path: Path, old: bytes, new: bytes) -> None:
    write_threads(tmp_path, [USE])
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes().replace(old, b"," + new + b"," if old == b",0," else new))

    with pytest.raises(FormatError, match="a broken row"):
        read_threads(path)


@pytest.mark.parametrize(
    "text",
    ["", "a,b\n1,2\n", "\ufffd\n", "x" * 200_000, ",".join(COLUMNS) + "\ndrafter,x\n"],
)
def test_another_format_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / FILE_NAME
    path.write_text(text)

    with pytest.raises(FormatError) as caught:
        read_threads(path)
    assert caught.value.where == str(path)
