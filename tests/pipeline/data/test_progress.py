"""A log gets one line a stage; a terminal gets a bar, but only for what takes long."""

from __future__ import annotations

import io
import sys

import pytest

from pipeline.data.progress import quiet_bars, stage


class Terminal(io.StringIO):
    """A stream that says that a person watches it."""

    def isatty(self) -> bool:
        return True


def test_a_log_gets_one_line_a_stage(capsys: pytest.CaptureFixture[str]) -> None:
    items = list(stage(range(1000), "encoding 1,000 documents", total=1000))

    assert list(range(1000)) == items
    assert capsys.readouterr().err == "data: encoding 1,000 documents\n"


def test_a_terminal_gets_nothing_for_a_short_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    list(stage(range(1000), "encoding"))

    assert terminal.getvalue() == ""


def test_a_librarys_bar_reaches_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        with quiet_bars():
            sys.stderr.write("bar")
        written.append(stream.getvalue())

    assert written == ["bar", ""]
