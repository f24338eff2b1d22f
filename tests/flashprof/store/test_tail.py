"""Events are read while they are written, line by line, whatever a killed process left."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError
from flashprof.contracts.events import Gauge, Header, Step, encode, encode_header
from flashprof.store.tail import EventTail, read_event_logs


def header(role: str = "trainer", rank: int = 0, host: str = "h", wall_ns: int = 0) -> str:
    line = Header(role=role, rank=rank, host=host, pid=1, trains=True, wall_ns=wall_ns, monotonic_ns=0)
    return encode_header(line) + "\n"


def step(number: int) -> str:
    return encode(Step(number, number * 10, 100, 50, 0)) + "\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trainer-0.jsonl"


def append(path: Path, content: str | bytes) -> None:
    with path.open("ab") as stream:
        stream.write(content if isinstance(content, bytes) else content.encode())


def test_each_poll_adds_what_is_new_and_says_whether_there_was_anything(tmp_path: Path, file: Path) -> None:
    tail = EventTail(tmp_path)
    polls = [tail.poll()]
    for text in (header() + step(0), "", step(1) + step(2)):
        append(file, text)
        polls.append(tail.poll())

    assert [False, True, False, True] == polls
    assert [0, 1, 2] == [item.step for item in tail.logs[0].steps]


def test_a_torn_line_counts_when_it_is_complete(tmp_path: Path, file: Path) -> None:
    tail = EventTail(tmp_path)
    append(file, header() + step(0)[:9])
    tail.poll()
    before = len(tail.logs[0].steps)
    append(file, step(0)[9:])
    tail.poll()

    assert (0, 1, 0) == (before, len(tail.logs[0].steps), tail.logs[0].num_torn_lines)


def test_processes_that_come_later_are_seen_in_the_order_of_their_names(tmp_path: Path) -> None:
    tail = EventTail(tmp_path)
    for role in ("target", "dispatcher"):
        append(tmp_path / f"{role}-0.jsonl", header(role))
        tail.poll()

    assert ["dispatcher", "target"] == [log.header.role for log in tail.logs]


def test_lines_that_are_no_records_are_counted_and_skipped(tmp_path: Path, file: Path) -> None:
    append(file, header() + step(0))
    append(file, b'\xff\xfe["step",\n[]\nnull\n{"format": "x"}\n["later", 1]\n')
    append(file, step(1))
    log = read_event_logs(tmp_path)[0]

    assert ([0, 1], 5) == ([item.step for item in log.steps], log.num_torn_lines)


@pytest.mark.parametrize("first", ["hello\n", '{"format": "flashprof-events", "version": 99}\n', "[]\n", "\n"])
def test_a_file_that_is_no_events_file_is_left_out_and_named(tmp_path: Path, file: Path, first: str) -> None:
    append(file, header() + step(0))
    append(tmp_path / "other.jsonl", first + step(1))
    tail = EventTail(tmp_path)
    tail.poll()
    append(tmp_path / "other.jsonl", step(2))
    tail.poll()

    assert [1] == [len(log.steps) for log in tail.logs]
    assert [True] == [text.startswith("events/other.jsonl is left out: ") for text in tail.unreadable]


@given(st.lists(st.integers(0, 10**12), max_size=20), st.lists(st.integers(1, 40), min_size=1))
def test_however_the_bytes_arrive_the_records_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("events")
    content = (header() + "".join(encode(Gauge("lös", i, v, v / 7)) + "\n" for i, v in enumerate(values))).encode()
    tail, at, turn = EventTail(folder), 0, 0
    while at < len(content):
        size = sizes[turn % len(sizes)]
        append(folder / "a-0.jsonl", content[at : at + size])
        tail.poll()
        at, turn = at + size, turn + 1

    assert values == [gauge.at_ns for gauge in tail.logs[0].gauges]
    assert 0 == tail.logs[0].num_torn_lines


def test_events_of_two_machines_are_refused_by_name(tmp_path: Path) -> None:
    """Their clocks began when they did: half of the tokens would lie in no window."""
    append(tmp_path / "trainer-0.jsonl", header(host="node-a"))
    append(tmp_path / "trainer-1.jsonl", header(rank=1, host="node-b", wall_ns=3_600_000_000_000))

    with pytest.raises(FormatError, match=r"two machines .* 3,600 s apart") as caught:
        read_event_logs(tmp_path)
    assert "trainer 0 on node-a, trainer 1 on node-b" == caught.value.offered


def test_containers_of_one_machine_share_its_clock_whatever_they_are_called(tmp_path: Path) -> None:
    append(tmp_path / "trainer-0.jsonl", header(host="box-a"))
    append(tmp_path / "trainer-1.jsonl", header(rank=1, host="box-b", wall_ns=40_000))

    assert ["box-a", "box-b"] == [log.header.host for log in read_event_logs(tmp_path)]
