"""The study's folder: one owner, nothing lost but the line being written, and the same question finds it again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from study_facts import cold_failed, cold_pair, hot_block, hot_ended, judge

from flashprof.contracts.comparison import Arm
from flashprof.contracts.errors import FormatError, ToolError, UsageError
from flashprof.contracts.outcome import Outcome
from flashprof.decide.observations import CallBegan, Observation
from flashprof.decide.plan import StudyPlan
from flashprof.decide.study import next_action, replay
from flashprof.store.study_folder import VERSION, Question, StudyFolder, open_study, study_id

QUESTION = Question(
    base={"toggles.swa": "false", "machine.host": "a"},
    candidate={"toggles.swa": "true", "machine.host": "a"},
    method="auto",
    seed=0,
)
PLAN = StudyPlan(base="none", candidate="swa ä")
FACTS: list[Observation] = [
    CallBegan(),
    hot_block(1),
    hot_block(2, -0.15),
    hot_block(3),
    hot_ended(),
    cold_failed(Arm.BASE, 1, Outcome.OUT_OF_MEMORY, reason="ä\n語"),
    *cold_pair(2),
]


def open_(reports: Path, question: Question = QUESTION, *, fresh: bool = False) -> AbstractContextManager[StudyFolder]:
    return open_study(reports, question, plan=asdict(PLAN), fresh=fresh)


def write(reports: Path, facts: list[Observation]) -> Path:
    with open_(reports) as study:
        for observation in facts:
            study.append(observation)
    return study.path


def read(reports: Path) -> tuple[Observation, ...]:
    with open_(reports) as study:
        return study.observations()


def test_the_same_question_finds_all_that_was_written_down(tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "reports", FACTS[:3])
    write(tmp_path / "new" / "reports", FACTS[3:])

    assert tuple(FACTS) == read(tmp_path / "new" / "reports")
    assert {"study.json", "journal.jsonl", "launches"} == {item.name for item in path.iterdir()}
    assert "swa ä" == json.loads((path / "study.json").read_text())["plan"]["candidate"]


def test_the_folder_is_named_by_the_question() -> None:
    names = {
        study_id(QUESTION),
        study_id(replace(QUESTION, base=QUESTION.candidate, candidate=QUESTION.base)),
        study_id(replace(QUESTION, base={**QUESTION.base, "seed": "1"})),
        study_id(replace(QUESTION, method="cold")),
        study_id(replace(QUESTION, seed=1)),
        study_id(replace(QUESTION, settings={"window_tokens": "4096"})),
    }

    assert 6 == len(names)
    assert study_id(QUESTION) == study_id(replace(QUESTION, base=dict(reversed(QUESTION.base.items()))))
    assert "compare-" == study_id(QUESTION)[:8]


@pytest.mark.parametrize("fact", [0, 1, 5])
def test_a_kill_at_any_byte_of_a_line_loses_that_line_only(tmp_path: Path, fact: int) -> None:
    path = write(tmp_path, FACTS[:fact])
    journal = path / "journal.jsonl"
    before = journal.read_bytes() if fact else b""
    write(tmp_path, FACTS[fact : fact + 1])
    whole = journal.read_bytes()
    for num_bytes in range(len(before), len(whole)):
        journal.write_bytes(whole[:num_bytes])
        with open_(tmp_path) as study:
            kept = study.observations()
            study.append(FACTS[fact])
            again = study.observations()

        assert tuple(FACTS[:fact]) == kept
        # What was cut off does not spoil the next line.
        assert tuple(FACTS[: fact + 1]) == again


@given(cut=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_a_study_that_was_cut_anywhere_goes_on_to_the_same_state(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    reports = tmp_path_factory.mktemp("reports")
    journal = write(reports, FACTS) / "journal.jsonl"
    os.truncate(journal, min(cut, journal.stat().st_size))
    kept = read(reports)
    write(reports, FACTS[len(kept) :])
    state = replay(PLAN, read(reports))

    assert kept == tuple(FACTS[: len(kept)])
    assert replay(PLAN, FACTS) == state
    assert next_action(replay(PLAN, FACTS), judge) == next_action(state, judge)


@pytest.mark.parametrize("line", [b"{}", b"[]", b"{", b"\xff\xff", b'{"kind":"later"}', b"", b"null", b"12"])
def test_a_damaged_line_is_named_with_its_number(tmp_path: Path, line: bytes) -> None:
    journal = write(tmp_path, FACTS[:2]) / "journal.jsonl"
    first, second = journal.read_bytes().splitlines()
    journal.write_bytes(b"\n".join([first, line, second, b""]))
    with pytest.raises(FormatError) as caught:
        read(tmp_path)

    assert f"{journal}:2" == caught.value.where
    assert "--fresh" in (caught.value.next_command or "")


def test_fresh_puts_the_old_study_aside_and_keeps_it(tmp_path: Path) -> None:
    path = write(tmp_path, FACTS)
    for _ in range(2):
        with open_(tmp_path, fresh=True) as study:
            assert () == study.observations()
            study.append(FACTS[0])

    names = sorted(item.name for item in tmp_path.iterdir() if not item.name.startswith("."))
    assert [path.name, f"{path.name}.old-1", f"{path.name}.old-2"] == names
    assert len(FACTS) == len((tmp_path / names[1] / "journal.jsonl").read_text().splitlines())


def test_fresh_works_on_what_cannot_be_read_any_more(tmp_path: Path) -> None:
    path = write(tmp_path, FACTS)
    (path / "study.json").write_text("{")
    with pytest.raises(FormatError, match="no study folder"), open_(tmp_path):
        pass
    with open_(tmp_path, fresh=True) as study:
        assert () == study.observations()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"version": 99}, "format flashprof-study version 99 is not known"),
        ({"format": "flashprof-run"}, "format flashprof-run version 1 is not known"),
        ({"question": {}}, "holds another question"),
    ],
)
def test_a_study_of_another_version_or_question_is_refused(
    tmp_path: Path, change: dict[str, object], what: str
) -> None:
    where = write(tmp_path, FACTS) / "study.json"
    where.write_text(json.dumps({**json.loads(where.read_text()), **change}))
    with pytest.raises(FormatError, match=what) as caught, open_(tmp_path):
        pass

    assert caught.value.allowed in (None, f"flashprof-study version {VERSION}")
    assert "--fresh" in (caught.value.next_command or "")


def test_a_study_that_was_killed_before_its_first_line_begins_anew(tmp_path: Path) -> None:
    (tmp_path / study_id(QUESTION) / "launches").mkdir(parents=True)
    (tmp_path / study_id(QUESTION) / ".study.json.tmp").write_text("{")

    assert () == read(tmp_path)


def test_a_second_flashprof_is_told_who_works_on_it(tmp_path: Path) -> None:
    with open_(tmp_path):
        with pytest.raises(UsageError, match="under way") as caught, open_(tmp_path):
            pass
        with open_(tmp_path, replace(QUESTION, seed=1)) as other:
            assert other.path.is_dir()

    assert f"process {os.getpid()} on " in (caught.value.offered or "")
    assert () == read(tmp_path)


@pytest.mark.slow
def test_the_study_of_a_killed_flashprof_is_taken_over(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from flashprof.store.study_folder import *\n"
        f"question = Question(**{asdict(QUESTION)!r})\n"
        "with open_study(Path(sys.argv[1]), question, plan={}): print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert "open\n" == holder.stdout.readline()
        with pytest.raises(UsageError, match="under way") as caught, open_(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()

        assert f"process {holder.pid} on " in (caught.value.offered or "")
    assert () == read(tmp_path)


def test_launches_whose_end_nobody_saw_are_listed(tmp_path: Path) -> None:
    with open_(tmp_path) as study:
        for name in ("hot-1", ".hot-2.part", "cold-1-base-1", "cold-2-base-1", ".cold-3-base-1.part", "cold-4-base-1"):
            (study.launches / name).mkdir()
        for observation in FACTS:
            study.append(observation)
        found = [(launch.run_id, launch.path.name, launch.is_published) for launch in study.cut_off_launches()]

    assert [
        ("cold-3-base-1", ".cold-3-base-1.part", False),
        ("hot-2", ".hot-2.part", False),
        ("cold-4-base-1", "cold-4-base-1", True),
    ] == found


def test_a_disk_that_takes_no_line_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    path = write(tmp_path, FACTS[:2])
    before = (path / "journal.jsonl").read_bytes()
    code = (
        "import resource, signal, sys; from pathlib import Path; from flashprof.store.study_folder import *\n"
        "from flashprof.decide.observations import *; from flashprof.contracts.errors import ToolError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "study = StudyFolder(Path(sys.argv[1])); size = study.journal.stat().st_size\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, size + 10))\n"
        "try: study.append(CallBegan())\n"
        "except ToolError as error: print(error.what)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)

    assert "cannot write to the study folder: only a part could be written" == done.stdout.strip()
    assert before == (path / "journal.jsonl").read_bytes()


def test_a_folder_that_is_gone_is_a_tool_error(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path / "gone")
    with pytest.raises(ToolError, match="cannot write to the study folder"):
        study.append(CallBegan())
    with pytest.raises(ToolError, match="cannot write to the study folder"):
        study.write_text("verdict.json", "{}")


@pytest.mark.parametrize("reports", ["file", "file/deeper"])
def test_a_reports_folder_that_is_none_is_a_usage_error(tmp_path: Path, reports: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write to the reports folder") as caught, open_(tmp_path / reports):
        pass

    assert "--reports DIRECTORY" == caught.value.next_command


def test_results_are_written_whole(tmp_path: Path) -> None:
    with open_(tmp_path) as study:
        study.write_text("verdict.json", "{}\n")

    assert "{}\n" == (study.path / "verdict.json").read_text()
    assert study_id(QUESTION) == study.name
    assert [] == [item.name for item in study.path.iterdir() if item.name.endswith(".tmp")]
