"""The journal keeps every whole line, whatever is in it, and its folder has one owner; of any kind of fact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError, ToolError, UsageError
from flashprof.store.journal import (
    CutOffLaunch,
    FolderKind,
    Journal,
    begin,
    launches_but,
    owned,
    read_document,
    write_whole,
)

KIND = FolderKind(noun="riddle", version=3, work="the same riddle")
QUESTION = {"who": "ä\n"}


def decode(raw: Mapping[str, Any]) -> str:
    if "fact" not in raw:
        raise FormatError("unknown fact", allowed="fact")
    return str(raw["fact"])


def journal_in(folder: Path) -> Journal[str]:
    return Journal(folder / "journal.jsonl", lambda fact: {"fact": fact}, decode, "riddle")


def begin_(folder: Path, *, fresh: bool = False, question: Mapping[str, Any] = QUESTION, **call: Any) -> None:
    begin(journal_in(folder), KIND, question=question, call=call, fresh=fresh)


@given(facts=st.lists(st.text(), max_size=5), cut=st.integers(0, 400))
@settings(deadline=None, max_examples=50)
def test_a_journal_that_was_cut_anywhere_is_read_and_goes_on(
    tmp_path_factory: pytest.TempPathFactory, facts: list[str], cut: int
) -> None:
    journal = journal_in(tmp_path_factory.mktemp("riddle"))
    for fact in facts:
        journal.append(fact)
    whole = journal.path.read_bytes() if facts else b""
    journal.path.write_bytes(whole[:cut])
    kept = journal.read()
    journal.drop_torn_line()
    journal.append("next")

    assert kept == tuple(facts[: len(kept)])
    assert whole[:cut].count(b"\n") == len(kept)
    assert (*kept, "next") == journal.read()


def test_a_reader_leaves_the_line_that_is_being_written(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    journal.append("one")
    with journal.path.open("ab") as file:
        file.write(b'{"fact":')
    before = journal.path.read_bytes()

    assert ("one",) == journal.read()
    assert before == journal.path.read_bytes()


def test_a_journal_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    journal.drop_torn_line()

    assert () == journal.read()
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"{", "damaged"),
        (b"\xff", "damaged"),
        (b"7", "damaged"),
        (b"[" * 5000, "damaged"),
        (b"{}", "unknown fact"),
    ],
)
def test_a_damaged_line_is_named_with_its_number_and_a_remedy(tmp_path: Path, line: bytes, what: str) -> None:
    journal = journal_in(tmp_path)
    journal.append("one")
    journal.path.write_bytes(journal.path.read_bytes() + line + b"\n")
    with pytest.raises(FormatError, match=what) as caught:
        journal.read()

    assert f"{journal.path}:2" == caught.value.where
    assert "--fresh puts the riddle aside and measures again" == caught.value.next_command


def test_a_number_that_json_does_not_have_is_not_written(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    journal.append("one")
    odd: Journal[float] = Journal(journal.path, lambda fact: {"fact": fact}, lambda raw: float(raw["fact"]), "riddle")
    with pytest.raises(ValueError, match="JSON"):
        odd.append(float("nan"))

    assert ("one",) == journal.read()


def test_a_folder_begins_once_and_keeps_what_it_holds(tmp_path: Path) -> None:
    folder = tmp_path / "riddle"
    begin_(folder, plan={"first": 1})
    journal_in(folder).append("one")
    begin_(folder, plan={"second": 2}, request=["again"])
    expected = {
        "format": "flashprof-riddle",
        "version": 3,
        "question": QUESTION,
        "plan": {"second": 2},
        "request": ["again"],
    }

    assert expected == read_document(folder, KIND)
    assert ("one",) == journal_in(folder).read()
    assert {"riddle.json", "journal.jsonl", "launches"} == {path.name for path in folder.iterdir()}


def test_fresh_puts_the_folder_aside(tmp_path: Path) -> None:
    folder = tmp_path / "riddle"
    begin_(folder)
    journal_in(folder).append("one")
    begin_(folder, fresh=True)
    begin_(folder, fresh=True, question={"who": "else"})

    assert () == journal_in(folder).read()
    assert ("one",) == journal_in(tmp_path / "riddle.old-1").read()
    assert ["riddle", "riddle.old-1", "riddle.old-2"] == sorted(path.name for path in tmp_path.iterdir())


def test_another_question_version_or_kind_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "riddle"
    begin_(folder)
    with pytest.raises(FormatError, match="the riddle folder holds another question"):
        begin_(folder, question={})
    journal_in(folder).append("one")
    for kind in (replace(KIND, version=4), replace(KIND, noun="puzzle")):
        with pytest.raises(FormatError, match=r"version 3 is not known|is no puzzle folder") as caught:
            begin(journal_in(folder), kind, question=QUESTION, call={}, fresh=False)

        assert "--fresh" in (caught.value.next_command or "")


def test_a_folder_whose_question_is_lost_is_refused(tmp_path: Path) -> None:
    journal_in(tmp_path).append("one")
    with pytest.raises(FormatError, match="is no riddle folder"):
        begin_(tmp_path)


def test_a_folder_whose_question_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    begin_(tmp_path / "riddle")
    journal_in(tmp_path / "riddle").append("one")
    (tmp_path / "riddle" / KIND.document).write_text("[" * 5000)
    with pytest.raises(FormatError, match="is no riddle folder"):
        begin_(tmp_path / "riddle")


def test_a_folder_has_one_owner_and_its_neighbours_have_others(tmp_path: Path) -> None:
    with owned(tmp_path / "a", KIND), owned(tmp_path / "b", KIND):
        with pytest.raises(UsageError, match="the same riddle is under way") as caught, owned(tmp_path / "a", KIND):
            pass
        assert "process " in (caught.value.offered or "")
    with owned(tmp_path / "a", KIND):
        pass

    assert [".a.lock", ".b.lock"] == sorted(path.name for path in tmp_path.iterdir())


def test_only_launches_without_an_end_are_listed(tmp_path: Path) -> None:
    begin_(tmp_path)
    for name in ("one", ".two.part", "three", ".three.lock"):
        (tmp_path / "launches" / name).mkdir()
    (tmp_path / "launches" / "file").write_text("")
    launches = tmp_path / "launches"

    assert (
        CutOffLaunch(run_id="two", path=launches / ".two.part", is_published=False),
        CutOffLaunch(run_id="three", path=launches / "three", is_published=True),
    ) == launches_but({"one", ".three.lock"}, tmp_path)


def test_a_file_is_written_whole_or_the_user_is_told(tmp_path: Path) -> None:
    write_whole(tmp_path / "report.md", "ä\n", "riddle")
    with pytest.raises(ToolError, match="cannot write to the riddle folder: No such file") as caught:
        write_whole(tmp_path / "gone" / "report.md", "ä\n", "riddle")

    assert "ä\n" == (tmp_path / "report.md").read_text(encoding="utf-8")
    assert ["report.md"] == [path.name for path in tmp_path.iterdir()]
    assert str(tmp_path / "gone") == caught.value.where
