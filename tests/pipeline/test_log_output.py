"""Lines on standard output survive a reader that has gone, and a disk that is full."""

from __future__ import annotations

import os
import subprocess
import sys


def test_a_reader_that_has_gone_ends_neither_the_process_nor_its_peace() -> None:
    script = "from pipeline.log_output import say\nfor _ in range(3): say('one', 'two')\n"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    os.close(writer)

    assert (0, "") == (done.returncode, done.stderr)


def test_a_full_disk_ends_nothing_and_is_said_once() -> None:
    script = "import sys\nfrom pipeline.log_output import say\nfor _ in range(3): say('one')\nsys.exit(3)\n"
    command = ["sh", "-c", '"$0" -c "$1" > /dev/full', sys.executable, script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert 3 == done.returncode
    assert "standard output: No space left on device: what else is said goes nowhere\n" == done.stderr


def test_a_full_disk_under_both_streams_ends_nothing() -> None:
    script = (
        "import sys; from flashprof.contracts.streams import make_streams_last; from pipeline.log_output import say\n"
        "make_streams_last(); say('one'); say('two'); sys.exit(3)\n"
    )
    command = ["sh", "-c", '"$0" -c "$1" > /dev/full 2>&1', sys.executable, script]

    assert 3 == subprocess.run(command, check=False, timeout=60).returncode


def test_lines_come_one_by_one_and_at_once() -> None:
    script = "import os\nfrom pipeline.log_output import say\nsay('one', 'two')\nos._exit(0)\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert "one\ntwo\n" == done.stdout
