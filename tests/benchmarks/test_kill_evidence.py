"""What a killed study has on disk, read from files that FlashProf wrote in virtual time, and what of it is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_world import Script, World

from benchmarks.kill_evidence import (
    Evidence,
    Fate,
    FoundWindow,
    fate,
    is_journal_whole,
    outcome_of_hit,
    read_evidence,
    read_result,
)
from flashprof.app.hot import HotPlan, hot_blocks
from flashprof.contracts.comparison import Arm, Block
from flashprof.contracts.outcome import Outcome
from flashprof.decide.observations import CallBegan, ColdLaunch, HotEnded, Observation, observation_to_json

NUM_BLOCKS = 3


def lines(*observations: Observation) -> bytes:
    return b"".join(json.dumps(observation_to_json(item)).encode() + b"\n" for item in observations)


BEGUN = lines(CallBegan())
ENDED = lines(HotEnded(run_id="hot-1", outcome=Outcome.KILLED, length_s=9.0))


def window(block: int, end_ns: int, launch: str = "hot-1") -> FoundWindow:
    return FoundWindow(launch=launch, block=block, end_ns=end_ns, num_tokens=100)


def answer(number: int = 1, difference: float = -0.5, launches: tuple[str, ...] = ("hot-1",)) -> dict[str, Any]:
    return {"blocks": [{"number": number, "difference": difference, "launches": list(launches)}], "failures": []}


WHOLE = (window(1, 10), window(1, 20))
HOT = Evidence(journal=BEGUN, windows=frozenset((*WHOLE, window(2, 30))), differences={("hot-1", 1): -0.5})
COLD_WINDOWS = (window(0, 10, "cold-1-base-1"), window(0, 20, "cold-1-base-1"))
COLD = Evidence(windows=frozenset(COLD_WINDOWS), whole_launches=frozenset({"cold-1-base-1"}))


def test_windows_of_a_block_in_the_answer_are_not_lost() -> None:
    assert Fate(num_windows=3, num_lost=0, num_half=1) == fate(HOT, HOT, answer())


@pytest.mark.parametrize(
    "result",
    [{}, answer(number=2), answer(difference=-0.5 + 1e-6), answer(launches=("hot-2",))],
    ids=["no answer", "other number", "other difference", "other launch"],
)
def test_windows_of_a_block_that_the_answer_tells_otherwise_are_lost(result: dict[str, Any]) -> None:
    assert Fate(num_windows=3, num_lost=2, num_half=1) == fate(HOT, HOT, result)


def test_windows_that_have_gone_from_the_events_are_lost_even_those_of_half_blocks() -> None:
    assert Fate(num_windows=3, num_lost=1, num_half=0) == fate(HOT, replace(HOT, windows=frozenset(WHOLE)), answer())


def test_a_whole_launch_of_one_arm_is_in_a_block_or_named_as_failed() -> None:
    pair = answer(launches=("cold-1-base-1", "cold-1-candidate-1"))
    failed = {"blocks": [], "failures": ["cold-1-base-1: killed by a signal; to be launched again."]}
    other = {"blocks": [], "failures": ["cold-1-base-12: killed by a signal; to be launched again."]}

    assert [0, 0, 2] == [fate(COLD, COLD, result).num_lost for result in (pair, failed, other)]


def test_a_launch_of_one_arm_that_was_cut_is_half() -> None:
    cut = replace(COLD, whole_launches=frozenset())

    assert Fate(num_windows=2, num_lost=0, num_half=2) == fate(cut, cut, {})


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (BEGUN, True),
        (BEGUN + ENDED, True),
        (ENDED, False),
        (b"", False),
        (BEGUN + b"{}\n", False),
        (BEGUN + b"{", False),
    ],
)
def test_a_journal_is_whole_where_it_only_grew_and_can_be_read(after: bytes, *, expected: bool) -> None:
    assert expected == is_journal_whole(HOT, Evidence(journal=after))


def test_the_launch_that_was_hit_is_the_first_to_end_afterwards() -> None:
    done = ColdLaunch(
        arm=Arm.BASE, block=1, run_id="cold-1-base-1", site="", log_tok_per_s=8.0, num_windows=2, length_s=9.0
    )
    before = Evidence(journal=lines(done))

    assert outcome_of_hit(before, Evidence(journal=lines(done) + BEGUN)) is None
    assert Outcome.KILLED is outcome_of_hit(before, Evidence(journal=lines(done) + ENDED + lines(done)))
    assert Outcome.COMPLETED is outcome_of_hit(Evidence(), before)


def hot_study(reports: Path, name: str = ".hot-1.part") -> list[Block]:
    """A study whose only launch has three blocks, and the blocks as FlashProf made them."""
    world = World(reports / "world", Script(toggle_factor=lambda values: 2.0 if values.get("swa") is False else 1.0))
    blocks: list[Block] = []

    def take(block: Block) -> bool:
        blocks.append(block)
        return len(blocks) < NUM_BLOCKS

    schedule = hot_blocks(
        HotPlan(),
        {Arm.BASE: {"swa": True}, Arm.CANDIDATE: {"swa": False}},
        lambda number: "ABBA" if number % 2 else "BAAB",
        first_block=1,
        on_block=take,
    )
    _, folder = world.record(schedule)
    (reports / "compare-1" / "launches").mkdir(parents=True)
    folder.part.rename(reports / "compare-1" / "launches" / name)
    (reports / "compare-1" / "journal.jsonl").write_bytes(BEGUN + b'{"kind":"hot_bl')
    return blocks


@pytest.mark.parametrize("name", [".hot-1.part", "hot-1"])
def test_the_files_of_a_launch_give_the_blocks_that_flashprof_saw(tmp_path: Path, name: str) -> None:
    blocks = hot_study(tmp_path, name)
    found = read_evidence(tmp_path, num_measure=2)

    assert NUM_BLOCKS * 4 == len(found.windows)
    assert {
        ("hot-1", block.number): pytest.approx(block.difference, abs=1e-12) for block in blocks
    } == found.differences
    assert BEGUN == found.journal


def test_a_launch_is_stopping_from_the_command_until_the_journal_has_its_end(tmp_path: Path) -> None:
    hot_study(tmp_path)
    asked = read_evidence(tmp_path, num_measure=2)
    (tmp_path / "compare-1" / "journal.jsonl").write_bytes(BEGUN + ENDED)

    assert {"hot-1"} == asked.stopping
    assert set() == read_evidence(tmp_path, num_measure=2).stopping


@pytest.mark.parametrize(("num_measure", "whole"), [(3, {"cold-1-base-1"}), (4, set())])
def test_a_launch_of_one_arm_is_whole_with_its_last_window(tmp_path: Path, num_measure: int, whole: set[str]) -> None:
    world = World(tmp_path / "world")
    world.plan = replace(world.plan, num_measure=3, num_profile=0)
    _, folder = world.record()
    (tmp_path / "compare-1" / "launches").mkdir(parents=True)
    folder.part.rename(tmp_path / "compare-1" / "launches" / ".cold-1-base-1.part")
    found = read_evidence(tmp_path, num_measure)

    assert 3 == len(found.windows)
    assert whole == found.whole_launches


def test_nothing_is_there_before_a_study_has_begun(tmp_path: Path) -> None:
    assert Evidence() == read_evidence(tmp_path, num_measure=2)
    assert {} == read_result(tmp_path)


def test_a_second_study_in_the_folder_ends_the_benchmark(tmp_path: Path) -> None:
    (tmp_path / "compare-1").mkdir()
    (tmp_path / "compare-2").mkdir()

    with pytest.raises(RuntimeError, match="changed"):
        read_evidence(tmp_path, num_measure=2)
