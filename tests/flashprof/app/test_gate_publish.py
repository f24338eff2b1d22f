"""Files of a gate: replaced, appended, and what could not be written."""

from __future__ import annotations

import os
from pathlib import Path

from flashprof.app.gate_publish import write_texts
from flashprof.report.gate_files import FileText


def test_files_are_replaced_and_those_of_the_runner_are_appended_to(tmp_path: Path) -> None:
    one, two = tmp_path / "new" / "gate.json", tmp_path / "summary.md"
    for text in ("a\n", "b\n"):
        problems = write_texts([FileText(path=one, text=text), FileText(path=two, text=text, is_appended=True)])

        assert () == problems
    assert ("b\n", "a\nb\n") == (one.read_text(), two.read_text())


def test_one_that_cannot_be_written_keeps_no_other_from_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wrong, right = tmp_path / "file" / "a", tmp_path / "b"
    problems = write_texts([FileText(path=wrong, text="x", is_appended=True), FileText(path=right, text="y")])

    assert 1 == len(problems)
    assert str(wrong) in problems[0]
    assert "y" == right.read_text()


def test_a_pipe_that_came_meanwhile_is_not_replaced_and_keeps_no_other_from_being_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    problems = write_texts([FileText(path=tmp_path / "pipe", text="x"), FileText(path=tmp_path / "b", text="y")])

    assert (f"{tmp_path / 'pipe'} is not written: it is no plain file, and is not replaced",) == problems
    assert (tmp_path / "pipe").is_fifo()
    assert "y" == (tmp_path / "b").read_text()
