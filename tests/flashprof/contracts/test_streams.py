"""Standard streams outlast what befalls them; what is raised, is raised once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ENV = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
LAST = "import sys; from flashprof.contracts.streams import make_streams_last; make_streams_last(); "


def shell(code: str, redirection: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f'"$0" -c "$1" {redirection}', sys.executable, LAST + code]
    return subprocess.run(command, env={**ENV, **env}, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("redirection", ["2>&-", "2> /dev/full"])
def test_whatever_befalls_standard_error_is_borne(redirection: str) -> None:
    done = shell("[print(n, file=sys.stderr, flush=True) for n in range(3)]; print('answer')", redirection)

    assert (0, "answer\n") == (done.returncode, done.stdout)


def test_a_full_disk_under_standard_output_is_raised_once() -> None:
    code = "\ntry: print('answer', flush=True)\nexcept OSError as error: print(error.errno, file=sys.stderr)\nprint(1)"
    done = shell(code, "> /dev/full")

    assert (0, "28\n") == (done.returncode, done.stderr)


def test_a_reader_who_has_gone_is_borne_to_the_end() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code = LAST + "[print(n, flush=True) for n in range(3)]; sys.exit(3)"
    done = subprocess.run([sys.executable, "-c", code], env=ENV, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)

    assert (3, b"") == (done.returncode, done.stderr)


def test_the_number_of_a_closed_stream_goes_to_no_other_file() -> None:
    code = "import tempfile; file = tempfile.TemporaryFile(); print(file.fileno() > 2, file=sys.stderr); print('gone')"
    done = shell(code, "<&- >&-")

    assert (0, "", "True\n") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii:surrogateescape", "utf-8"])
def test_a_letter_that_cannot_be_shown_is_a_question_mark(encoding: str) -> None:
    done = shell("print('a \\u2192 b'); print('\\udcff', file=sys.stderr)", PYTHONIOENCODING=encoding)

    assert (0, "?\n") == (done.returncode, done.stderr)
    assert ("a → b\n" if encoding == "utf-8" else "a ? b\n") == done.stdout


def test_streams_of_a_caller_are_left_to_the_caller() -> None:
    code = "import io; mine = sys.stdout = io.StringIO(); make_streams_last(); sys.exit(0 if sys.stdout is mine else 1)"

    assert 0 == shell(code).returncode
