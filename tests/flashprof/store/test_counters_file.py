"""What was read from the machine is read from the file, whatever a kill left of its last line."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError
from flashprof.contracts.machine import GpuReading, MachineReading
from flashprof.store.counters_file import CountersWriter, read_counters

COUNTS = st.integers(min_value=0, max_value=2**63)
SECONDS = st.floats(min_value=0, max_value=1e12)
GPUS = st.builds(
    GpuReading,
    index=COUNTS,
    sm_clock_mhz=COUNTS,
    throttle_reasons=st.lists(st.text(max_size=8), max_size=3).map(tuple),
    temperature_c=COUNTS,
    power_w=SECONDS,
    utilization_pct=COUNTS,
    num_foreign_processes=COUNTS,
)
READINGS = st.builds(
    MachineReading,
    at_ns=COUNTS,
    busy_cpu_s=SECONDS,
    stolen_cpu_s=SECONDS,
    subject_cpu_s=SECONDS,
    own_cpu_s=SECONDS,
    subject_delay_s=SECONDS,
    num_swapped_pages=COUNTS,
    governor=st.text(max_size=12),
    gpus=st.lists(GPUS, max_size=2).map(tuple),
)
READING = MachineReading(
    at_ns=1,
    busy_cpu_s=2.5,
    stolen_cpu_s=0.0,
    subject_cpu_s=1.0,
    own_cpu_s=0.25,
    subject_delay_s=0.0,
    num_swapped_pages=0,
    governor="performance",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "counters.jsonl"


def write(path: Path, *readings: MachineReading) -> None:
    writer = CountersWriter(path)
    for reading in readings:
        writer.write(reading)
    writer.close()


@given(st.lists(READINGS, max_size=4))
def test_every_reading_comes_back_as_it_was(readings: list[MachineReading]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counters.jsonl"
        write(path, *readings)

        assert tuple(readings) == read_counters(path)


@given(st.data())
def test_a_file_cut_anywhere_gives_its_whole_readings(data: st.DataObject) -> None:
    readings = [replace(READING, at_ns=at_ns) for at_ns in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counters.jsonl"
        write(path, *readings)
        whole = path.read_bytes()
        header_bytes = whole.index(b"\n") + 1
        kept = whole[: data.draw(st.integers(header_bytes, len(whole)))]
        path.write_bytes(kept)

        assert tuple(readings[: kept.count(b"\n") - 1]) == read_counters(path)


def test_a_reading_can_be_read_before_the_file_is_closed(path: Path) -> None:
    writer = CountersWriter(path)
    writer.write(READING)
    seen = read_counters(path)
    writer.close()
    writer.close()

    assert (READING,) == seen


@pytest.mark.parametrize("content", ["", "{}\n", "[1]\n", "no json\n", '{"format": "flashprof-counters", "vers'])
def test_a_file_without_a_header_is_refused(path: Path, content: str) -> None:
    path.write_text(content)
    with pytest.raises(FormatError, match="no header"):
        read_counters(path)


def test_an_unknown_version_is_refused_with_both_names(path: Path) -> None:
    path.write_text('{"format": "flashprof-counters", "version": 9}\n')
    with pytest.raises(FormatError) as caught:
        read_counters(path)

    assert ("flashprof-counters version 9", "flashprof-counters version 1") == (
        caught.value.offered,
        caught.value.allowed,
    )


@pytest.mark.parametrize(
    "line", [b"{}", b"[]", b"1", b"{oops", b"\xff", b'{"gpus": [{}]}', b'{"gpus": [], "at_ns": 1}']
)
def test_a_broken_line_within_the_file_is_refused_with_its_number(path: Path, line: bytes) -> None:
    write(path, READING)
    with path.open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(FormatError, match=r"counters\.jsonl:3"):
        read_counters(path)
