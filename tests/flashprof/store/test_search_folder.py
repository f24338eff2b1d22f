"""The search's folder: one owner, nothing lost, found again without arguments, and open to what the user adds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError, ToolError, UnknownNameError, UsageError
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search import Reading, SearchKind, Stage
from flashprof.decide.observations import CallBegan
from flashprof.decide.search_observations import (
    Built,
    LaunchEnded,
    Measured,
    SearchObservation,
    Undone,
    UserSkipped,
)
from flashprof.store.search_folder import (
    SearchFolder,
    SearchQuestion,
    append_outside,
    latest_search,
    open_search,
    read_search,
    search_id,
)

QUESTION = SearchQuestion(
    kind=SearchKind.TOGGLES,
    good={"toggles.swa": "false", "machine.host": "a"},
    bad={"toggles.swa": "true", "machine.host": "a"},
    seed=0,
    settings={"window_tokens": "4096"},
)
OTHER = replace(QUESTION, seed=1)
REQUEST = {"kind": "toggles", "good": "all", "bad": "none ä", "budget_s": 1800.0, "gpu_sets": [[0, 1]]}


def measured(cell: str, number: int) -> Measured:
    reading = Reading(
        cell=cell,
        launch="hot-1",
        stage=Stage.PROOF,
        block=1,
        position=number,
        proof=2,
        at_s=1.7e9 + number,
        length_s=2.5,
        log_tok_per_s=9.4,
        num_tokens=4096,
        disturbances=("the clock was at 1.1 GHz",),
    )
    return Measured(reading=reading)


FACTS: list[SearchObservation] = [
    CallBegan(),
    measured("bad", 1),
    measured("compile+swa", 2),
    LaunchEnded(run_id="hot-1", group="", outcome=Outcome.CRASHED, reason="ä\n語", length_s=61.0, cell="swa"),
    Built(group="0123abc", outcome=Outcome.LOAD_FAILED, reason="no lock file", length_s=3.0),
    Undone(num=1),
    UserSkipped(cell="compile"),
]


def open_(
    reports: Path,
    question: SearchQuestion = QUESTION,
    *,
    request: dict[str, Any] = REQUEST,
    fresh: bool = False,
) -> AbstractContextManager[SearchFolder]:
    return open_search(reports, question, plan={"certainty": 0.95}, request=request, fresh=fresh)


def write(reports: Path, facts: list[SearchObservation], question: SearchQuestion = QUESTION) -> Path:
    with open_(reports, question) as search:
        for observation in facts:
            search.append(observation)
    return search.path


def read(reports: Path) -> tuple[SearchObservation, ...]:
    with open_(reports) as search:
        return search.observations()


def test_the_same_question_finds_all_that_was_written_down(tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "reports", FACTS[:3])
    write(tmp_path / "new" / "reports", FACTS[3:])

    assert tuple(FACTS) == read(tmp_path / "new" / "reports")
    assert {"search.json", "journal.jsonl", "launches"} == {item.name for item in path.iterdir()}
    assert {"certainty": 0.95} == json.loads((path / "search.json").read_text())["plan"]


def test_the_folder_is_named_by_the_question() -> None:
    names = {
        search_id(QUESTION),
        search_id(OTHER),
        search_id(replace(QUESTION, good=QUESTION.bad, bad=QUESTION.good)),
        search_id(replace(QUESTION, kind=SearchKind.COMMITS)),
        search_id(replace(QUESTION, settings={})),
    }

    assert 5 == len(names)
    assert search_id(QUESTION) == search_id(replace(QUESTION, good=dict(sorted(QUESTION.good.items()))))
    assert "bisect-" == search_id(QUESTION)[:7]


@given(cut=st.integers(0, 2_000))
@settings(max_examples=20, deadline=None)
def test_a_search_that_was_cut_anywhere_is_read_and_goes_on(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    reports = tmp_path_factory.mktemp("reports")
    path = write(reports, FACTS)
    journal = path / "journal.jsonl"
    os.truncate(journal, min(cut, journal.stat().st_size))
    seen = read_search(path).observations
    kept = read(reports)
    write(reports, FACTS[len(kept) :])

    assert seen == kept
    assert kept == tuple(FACTS[: len(kept)])
    assert tuple(FACTS) == read(reports)


def test_a_search_is_read_while_it_is_under_way(tmp_path: Path) -> None:
    with open_(tmp_path) as search:
        search.append(FACTS[0])
        first = read_search(search.path)
        search.append(FACTS[1])
        second = read_search(search.path)

    assert SearchKind.TOGGLES is first.question.kind
    assert (FACTS[0], FACTS[1]) == second.observations
    assert (QUESTION, REQUEST, (FACTS[0],)) == first


def test_the_request_is_that_of_the_latest_call(tmp_path: Path) -> None:
    path = write(tmp_path, FACTS)
    with open_(tmp_path, request={**REQUEST, "budget_s": 60.0}):
        pass

    assert 60.0 == read_search(path).request["budget_s"]


def test_the_latest_search_is_the_one_that_was_worked_on_last(tmp_path: Path) -> None:
    first, second = write(tmp_path, FACTS), write(tmp_path, FACTS, OTHER)
    for number, name in enumerate([first.name, second.name, "bisect-0123456789ab.old-1", "compare-0123456789ab"]):
        journal = tmp_path / name / "journal.jsonl"
        journal.parent.mkdir(exist_ok=True)
        journal.touch()
        os.utime(journal, (number, number))
    before = latest_search(tmp_path)
    append_outside(first, Undone(num=1))

    assert second == before
    assert first == latest_search(tmp_path)


def test_a_search_that_was_killed_before_its_first_line_is_the_latest(tmp_path: Path) -> None:
    os.utime(write(tmp_path, FACTS) / "journal.jsonl", (1, 1))
    with open_(tmp_path, OTHER) as search:
        found = latest_search(tmp_path)

    assert search.path == found
    assert () == read_search(search.path).observations


def test_without_a_search_there_is_no_latest(tmp_path: Path) -> None:
    (tmp_path / "bisect-0123456789ab").mkdir()

    assert latest_search(tmp_path) is None
    assert latest_search(tmp_path / "gone") is None


def test_what_the_user_adds_is_one_more_line(tmp_path: Path) -> None:
    path = write(tmp_path, FACTS[:2])
    with (path / "journal.jsonl").open("ab") as file:
        file.write(b'{"kind":"meas')
    append_outside(path, UserSkipped(cell="swa"))

    assert (*FACTS[:2], UserSkipped(cell="swa")) == read(tmp_path)


def test_a_search_that_is_under_way_takes_no_second_owner_and_no_line(tmp_path: Path) -> None:
    with open_(tmp_path) as search:
        with pytest.raises(UsageError, match="the same search is under way") as opened, open_(tmp_path):
            pass
        with pytest.raises(UsageError, match="the same search is under way") as appended:
            append_outside(search.path, Undone(num=1))
        with open_(tmp_path, OTHER) as other:
            assert other.path.is_dir()

    for caught in (opened, appended):
        assert f"process {os.getpid()} on " in (caught.value.offered or "")
    assert () == read(tmp_path)


@pytest.mark.slow
def test_the_search_of_a_killed_flashprof_is_taken_over(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from flashprof.store.search_folder import *\n"
        f"question = SearchQuestion(**{json.loads(json.dumps(asdict(QUESTION)))!r})\n"
        "with open_search(Path(sys.argv[1]), question, plan={}, request={}):\n"
        "    print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert "open\n" == holder.stdout.readline()
        with pytest.raises(UsageError, match="under way"), open_(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()

    assert () == read(tmp_path)


def test_an_unknown_search_is_met_with_the_known_ones(tmp_path: Path) -> None:
    path = write(tmp_path, FACTS)
    wrong = path.with_name(path.name[:-1])
    with pytest.raises(UnknownNameError, match=f"did you mean '{path.name}'") as caught:
        read_search(wrong)
    with pytest.raises(UnknownNameError):
        append_outside(wrong, Undone(num=1))

    assert path.name == caught.value.allowed
    assert not wrong.exists()


def test_fresh_puts_the_old_search_aside_and_keeps_it(tmp_path: Path) -> None:
    path = write(tmp_path, FACTS)
    with open_(tmp_path, fresh=True) as search:
        assert () == search.observations()

    assert tuple(FACTS) == read_search(path.with_name(f"{path.name}.old-1")).observations


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"format": "flashprof-study"},
        {"question": {}},
        {"question": {**asdict(QUESTION), "kind": "later"}},
        {"question": {**asdict(QUESTION), "good": "all"}},
        {"request": 7},
    ],
)
def test_a_search_of_another_version_or_a_damaged_one_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = write(tmp_path, FACTS)
    where = path / "search.json"
    where.write_text(json.dumps({**json.loads(where.read_text()), **change}))
    with pytest.raises(FormatError, match=r"is not known|is damaged") as caught:
        read_search(path)

    assert "--fresh" in (caught.value.next_command or "")


def test_a_damaged_line_is_named_with_its_number(tmp_path: Path) -> None:
    journal = write(tmp_path, FACTS[:1]) / "journal.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"kind":"later"}\n')
    with pytest.raises(FormatError, match="unknown observation 'later'") as caught:
        read(tmp_path)

    assert f"{journal}:2" == caught.value.where


def test_launches_whose_end_nobody_saw_are_listed(tmp_path: Path) -> None:
    with open_(tmp_path) as search:
        for name in ("hot-1", ".hot-2.part", "cold-3"):
            (search.launches / name).mkdir()
        for observation in FACTS:
            search.append(observation)
        found = [(launch.run_id, launch.is_published) for launch in search.cut_off_launches()]

    assert [("hot-2", False), ("cold-3", True)] == found


def test_results_are_written_whole_and_a_folder_that_is_gone_is_a_tool_error(tmp_path: Path) -> None:
    with open_(tmp_path) as search:
        search.write_text("result.json", "{}\n")
    gone = SearchFolder(tmp_path / "gone")
    with pytest.raises(ToolError, match="cannot write to the search folder"):
        gone.append(CallBegan())
    with pytest.raises(ToolError, match="cannot write to the search folder"):
        gone.write_text("result.json", "{}")

    assert "{}\n" == (search.path / "result.json").read_text()
    assert search_id(QUESTION) == search.name
