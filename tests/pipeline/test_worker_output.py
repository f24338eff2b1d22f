"""What workers write to standard error is repeated with their names, and the last lines are kept."""

from __future__ import annotations

import os
from multiprocessing import get_context

import pytest

from pipeline.worker_output import NUM_LAST_LINES, WorkerOutput


def test_lines_are_repeated_by_name_and_the_last_ones_kept(capsys: pytest.CaptureFixture[str]) -> None:
    output = WorkerOutput()
    writers = {name: output.add(name, get_context()) for name in ("target-0", "drafter-0")}
    output.start()
    os.write(writers["target-0"].fileno(), b"half a ")
    os.write(writers["target-0"].fileno(), b"line\nand no end")
    for number in range(NUM_LAST_LINES + 3):
        os.write(writers["drafter-0"].fileno(), f"line {number}\n".encode())
    for writer in writers.values():
        writer.close()

    output.close()

    assert ("half a line", "and no end") == output.last_lines("target-0")
    assert [f"line {number}" for number in range(3, NUM_LAST_LINES + 3)] == list(output.last_lines("drafter-0"))
    assert "target-0: half a line\n" in capsys.readouterr().err


def test_bytes_that_are_no_text_do_not_end_it() -> None:
    output = WorkerOutput()
    writer = output.add("target-0", get_context())
    output.start()
    os.write(writer.fileno(), b"\xff\xfe\nnext\n")
    writer.close()

    output.close()

    assert "next" == output.last_lines("target-0")[-1]
