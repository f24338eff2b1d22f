"""A folder of any question: what studies and searches have in common, and their ids as they are on people's disks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flashprof.contracts.errors import FormatError, UsageError
from flashprof.contracts.search import SearchKind
from flashprof.store.journal import FolderKind
from flashprof.store.question_folder import QuestionFolder, QuestionKind, opened
from flashprof.store.search_folder import SearchQuestion, search_id
from flashprof.store.study_folder import Question, study_id


@dataclass(frozen=True)
class Asked:
    """A question."""

    what: str


def ended(fact: str) -> str | None:
    return fact.removeprefix("end ") if fact.startswith("end ") else None


def encode(fact: str) -> Mapping[str, Any]:
    return {"said": fact}


def decode(raw: Mapping[str, Any]) -> str:
    return str(raw["said"])


KIND: QuestionKind[str] = QuestionKind(
    folder=FolderKind(noun="riddle", version=3, work="the same riddle"),
    prefix="guess",
    encode=encode,
    decode=decode,
    ended_run_id=ended,
)


def folder_of(reports: Path, asked: Asked) -> QuestionFolder[str]:
    return QuestionFolder(reports / KIND.name(asked), KIND)


@pytest.fixture
def asked() -> Asked:
    return Asked("ä?")


def test_facts_stay_from_call_to_call_until_it_is_begun_anew(tmp_path: Path, asked: Asked) -> None:
    folder = folder_of(tmp_path, asked)
    for fact in ("one", "two"):
        with opened(folder, asked, call={"plan": fact}, fresh=False):
            folder.append(fact)
    before = folder.observations()
    with opened(folder, asked, call={}, fresh=True):
        after = folder.observations()

    assert (("one", "two"), ()) == (before, after)
    assert (folder.path.with_name(f"{folder.name}.old-1") / "riddle.json").is_file()
    assert folder.name.startswith("guess-")


def test_launches_whose_end_no_fact_tells_are_cut_off(tmp_path: Path, asked: Asked) -> None:
    folder = folder_of(tmp_path, asked)
    with opened(folder, asked, call={}, fresh=False):
        for name in ("a", ".b.part", "c", "end"):
            (folder.launches / name).mkdir()
        for fact in ("end a", "c"):
            folder.append(fact)

    assert ["b", "c", "end"] == [launch.run_id for launch in folder.cut_off_launches()]


def test_it_has_one_owner_and_holds_one_question(tmp_path: Path, asked: Asked) -> None:
    folder = folder_of(tmp_path, asked)
    with (
        opened(folder, asked, call={}, fresh=False),
        pytest.raises(UsageError, match="the same riddle is under way"),
        opened(folder, asked, call={}, fresh=False),
    ):
        pass
    with pytest.raises(FormatError, match="holds another question"), opened(folder, Asked("b"), call={}, fresh=False):
        pass


def test_ids_of_questions_are_those_of_earlier_versions() -> None:
    study = Question(base={"a": "1"}, candidate={"a": "ä"}, method="auto", seed=0, settings={"measure_s": "5"})
    search = SearchQuestion(
        kind=SearchKind.TOGGLES, good={"a": "1"}, bad={"a": "ä"}, seed=0, settings={"measure_s": "5"}
    )

    assert "compare-56f0504db3f6" == study_id(study)
    assert "bisect-e57a2eb198f5" == search_id(search)
