"""The quick reader finds what the slow one finds, whatever lies between the lines it looks for."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError
from flashprof.contracts.events import Ack, Gauge, Header, Mark, Record, Span, SpanKind, Step, encode, encode_header
from flashprof.store.fast_events import read_step_log
from flashprof.store.tail import read_event_logs
from flashprof.windows.table import build_windows

HEADER = encode_header(Header(role="drafter", rank=0, host="h", pid=1, trains=True, wall_ns=0, monotonic_ns=0)) + "\n"
NS = st.integers(0, 10**15)
WORDS = st.text(max_size=8)
DETAILS = st.dictionaries(WORDS, st.integers() | WORDS, max_size=2)
RECORDS = st.one_of(
    st.builds(Span, WORDS, st.sampled_from(SpanKind), WORDS, NS, NS, st.integers(0, 3), st.booleans()),
    st.builds(Step, NS, NS, NS, NS, NS),
    st.builds(Gauge, WORDS, NS, NS, st.floats(allow_nan=False)),
    st.builds(Ack, NS, WORDS, NS, NS, DETAILS),
    st.builds(Mark, WORDS, NS, DETAILS),
)
JUNK = st.sampled_from([b"\n", b'["span"\n', b'["step",1\n', b"\xff\xfe\n", b' ["step",1,2,3,4,5]\n', b'["s\n'])
LINES = RECORDS.map(lambda record: encode(record).encode() + b"\n") | JUNK


def write(folder: Path, content: bytes) -> Path:
    path = folder / "drafter-0.jsonl"
    path.write_bytes(content)
    return path


@given(st.lists(LINES, max_size=30), st.integers(0, 80), st.booleans())
def test_it_equals_the_slow_reader_but_for_spans(lines: list[bytes], num_torn: int, with_gauges: bool) -> None:
    content = HEADER.encode() + b"".join(lines)
    kept = content[: max(len(HEADER), len(content) - num_torn)]
    with tempfile.TemporaryDirectory() as name:
        path = write(Path(name), kept)
        slow = read_event_logs(Path(name))[0]
        fast = read_step_log(path, with_gauges=with_gauges)

    assert (slow.header, slow.steps, slow.acks, slow.marks) == (fast.header, fast.steps, fast.acks, fast.marks)
    assert (slow.gauges if with_gauges else []) == fast.gauges
    assert [] == fast.spans


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 1000])
def test_where_a_block_ends_does_not_matter(tmp_path: Path, block_bytes: int) -> None:
    records: list[Record] = []
    for number in range(20):
        records += [Span("mask", SpanKind.WORK, "main", number, number + 1, 0, True), Step(number, number, 1, 1, 0)]
    path = write(tmp_path, (HEADER + "".join(encode(record) + "\n" for record in records)).encode())
    log = read_step_log(path, block_bytes=block_bytes)

    assert list(range(20)) == [step.step for step in log.steps]


def test_the_windows_table_is_the_same(tmp_path: Path) -> None:
    window = {"label": "m", "kind": "measure"}
    records = [
        Step(0, 10, 4, 2, 0),
        Ack(1, "window_start", 1, 11, window),
        Span("mask", SpanKind.WORK, "main", 12, 19, 0, True),
        Step(1, 20, 4, 2, 0),
        Ack(2, "window_end", 2, 21, window),
        Step(2, 30, 4, 2, 0),
    ]
    path = write(tmp_path, (HEADER + "".join(encode(record) + "\n" for record in records)).encode())
    slow, fast = (build_windows(logs, steady_ns=None) for logs in (read_event_logs(tmp_path), [read_step_log(path)]))

    assert ("warmup", "m", "between-1") == tuple(window.label for window in fast)
    assert slow == fast


@pytest.mark.parametrize("content", [b"", b"hello\n", b'["span","a","work","main",1,2,0,1]\n', HEADER[:-1].encode()])
def test_a_file_without_a_header_is_refused(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, content)
    with pytest.raises(FormatError, match="no header"):
        read_step_log(path)
