"""Lines on standard output survive a reader that has gone."""

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


def test_lines_come_one_by_one_and_at_once() -> None:
    script = "import os\nfrom pipeline.log_output import say\nsay('one', 'two')\nos._exit(0)\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert "one\ntwo\n" == done.stdout
