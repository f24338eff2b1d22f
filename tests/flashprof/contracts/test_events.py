"""The events file: what was written is read back, and damage costs the damaged lines only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError
from flashprof.contracts.events import (
    VERSION,
    Ack,
    EventLog,
    Gauge,
    Header,
    Mark,
    Record,
    Span,
    SpanKind,
    Step,
    decode,
    decode_record,
    encode,
    encode_header,
)

# Every character, lone surrogates, quotes, line breaks and U+2028 included: a phase's name is the user's.
NAMES = st.text(st.characters(), max_size=20)
INTS = st.integers(0, 2**63)
DETAILS = st.dictionaries(
    NAMES, st.one_of(NAMES, INTS, st.booleans(), st.none(), st.lists(INTS, max_size=3)), max_size=3
)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(Span, NAMES, st.sampled_from(SpanKind), NAMES, INTS, INTS, st.integers(0, 50), st.booleans()),
    st.builds(Step, INTS, INTS, INTS, INTS, INTS),
    st.builds(Gauge, NAMES, INTS, INTS, st.floats(allow_nan=False)),
    st.builds(Ack, INTS, NAMES, INTS, INTS, DETAILS),
    st.builds(Mark, NAMES, INTS, DETAILS),
)
HEADER = Header(role="drafter", rank=3, host="node-1", pid=7, trains=True, wall_ns=9, monotonic_ns=5)
STEP = Step(4, 100, 30, 20, 10)


def records_of(log: EventLog) -> list[Record]:
    return [*log.spans, *log.steps, *log.gauges, *log.acks, *log.marks]


def by_kind(records: Sequence[Record]) -> list[Record]:
    kinds = (Span, Step, Gauge, Ack, Mark)
    return sorted(records, key=lambda record: kinds.index(type(record)))


@given(records=st.lists(RECORDS, max_size=8), role=NAMES, host=NAMES)
def test_a_file_is_read_back_as_it_was_written(records: list[Record], role: str, host: str) -> None:
    header = replace(HEADER, role=role, host=host)
    text = "".join(f"{line}\n" for line in (encode_header(header), *map(encode, records)))
    log = decode(text.splitlines(), where="a file")

    assert header == log.header
    assert by_kind(records) == records_of(log)
    assert log.num_torn_lines == 0


@given(record=RECORDS)
def test_a_record_is_one_ascii_line(record: Record) -> None:
    line = encode(record)

    assert line.isascii()
    assert "\n" not in line


def test_a_loss_that_is_no_number_survives() -> None:
    gauge = decode_record(encode(Gauge("loss", 1, 2, float("nan"))))

    assert isinstance(gauge, Gauge)
    assert gauge.value != gauge.value


@given(record=RECORDS, data=st.data())
def test_a_torn_last_line_is_dropped_and_counted(record: Record, data: st.DataObject) -> None:
    line = encode(record)
    torn = line[: data.draw(st.integers(1, len(line) - 1))]
    log = decode([encode_header(HEADER), encode(STEP), torn], where="a file")

    assert [STEP] == records_of(log)
    assert log.num_torn_lines == 1


@pytest.mark.parametrize(
    "line",
    [
        '["frame", 1, 2]',
        '["step", 1, 2]',
        '["step", 1, 2, 3, 4, 5, 6]',
        '["span", "a", "play", "main", 1, 2, 0, 1]',
        '{"step": 1}',
        "[]",
        "17",
        "null",
        "",
        "\x00\x00\x7fELF",
    ],
)
def test_a_line_that_is_no_record_is_counted_and_the_rest_is_read(line: str) -> None:
    log = decode([encode_header(HEADER), line, encode(STEP)], where="a file")

    assert [STEP] == records_of(log)
    assert log.num_torn_lines == 1


@given(line=st.text(max_size=60))
def test_junk_is_never_more_than_a_torn_line(line: str) -> None:
    assert decode_record(line) is None


def test_another_version_names_both_versions_and_the_file() -> None:
    line = encode_header(replace(HEADER, version=VERSION + 41))
    with pytest.raises(FormatError) as raised:
        decode([line], where="events/drafter-3.jsonl")

    assert f"version {VERSION + 41}" in raised.value.what
    assert raised.value.allowed is not None
    assert f"version {VERSION}" in raised.value.allowed
    assert raised.value.where == "events/drafter-3.jsonl"


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [""],
        ["\x00\x01\x02"],
        ["[1, 2]"],
        ["null"],
        ['{"format": "flashprof-events"}'],
        [encode(STEP)],
        [encode_header(HEADER)[:-9]],
        [json.dumps({"format": "speedscope", "version": 1})],
    ],
)
def test_a_file_without_our_header_is_refused(lines: list[str]) -> None:
    with pytest.raises(FormatError) as raised:
        decode(lines, where="events/x.jsonl")

    assert raised.value.where == "events/x.jsonl"
    assert raised.value.exit_code == 2
