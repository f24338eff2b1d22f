"""What the folders of a study say: a phase that changed is named, others are not; disturbances are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import study_facts
from cut_off_study import cut_off_study
from launch_files import PHASES, STEP_TOKENS, Trainer, cold_launch, write_counters

from flashprof.app.findings import add_phases, machine_notes, read_launches
from flashprof.app.hot import hot_results
from flashprof.contracts.comparison import Arm, Block, DecisionRule, Method, PhaseChange
from flashprof.decide.orders import ARM_OF

SLOWER = {**PHASES, "backward": 1.2 * PHASES["backward"]}
ARMS = {Arm.BASE: PHASES, Arm.CANDIDATE: SLOWER}
ORDERS = ("ABBA", "BAAB", "BAAB", "ABBA", "ABBA", "BAAB")


def hot_study(
    launches: Path, *, orders: Sequence[str] = ORDERS, arms: Mapping[Arm, Mapping[str, float]] = ARMS
) -> list[Block]:
    trainer = Trainer()
    trainer.train(20)
    for number, order in enumerate(orders, start=1):
        trainer.take_block(number, order, arms)
    trainer.write(launches / "hot-1")
    return list(hot_results([trainer.log], launch="hot-1")[1])


def cold_study(launches: Path, *, orders: Sequence[str] = ("AB", "BA", "BA", "AB", "AB", "BA")) -> list[Block]:
    blocks = []
    for number, order in enumerate(orders, start=1):
        for arm in Arm:
            seed = 2 * number + (arm is Arm.BASE)
            cold_launch(ARMS[arm], seed=seed).write(launches / f"cold-{number}-{arm}-1")
        run_ids = tuple(f"cold-{number}-{ARM_OF[letter]}-1" for letter in order)
        (hot,) = [study_facts.hot_block(number).block]
        blocks.append(replace(hot, method=Method.COLD, order=order, launches=run_ids))
    return blocks


def changes(blocks: Sequence[Block], launches: Path) -> dict[str, PhaseChange]:
    comparison = study_facts.judge(blocks, DecisionRule(), 0.0)
    (found,) = add_phases([comparison], blocks, read_launches(blocks, launches))
    return {change.phase: change for change in found.phases}


@pytest.mark.parametrize("study", [hot_study, cold_study])
def test_the_phase_that_changed_is_found_and_no_other(tmp_path: Path, study: object) -> None:
    blocks = hot_study(tmp_path) if study is hot_study else cold_study(tmp_path)
    found = changes(blocks, tmp_path)

    assert {"forward": False, "backward": True, "queue": False} == {name: c.is_changed for name, c in found.items()}
    # 6 ms a step of a thousand tokens.
    assert 6e6 / STEP_TOKENS == pytest.approx(found["backward"].difference.estimate, rel=0.05)
    assert 3e7 / STEP_TOKENS == pytest.approx(found["backward"].base_ns_per_token, rel=0.01)
    assert ("trainer", "wait") == (found["queue"].role, found["queue"].kind)
    assert {6} == {change.difference.num_samples for change in found.values()}


def test_a_phase_of_one_arm_only_costs_nothing_in_the_other(tmp_path: Path) -> None:
    found = changes(hot_study(tmp_path, arms={**ARMS, Arm.CANDIDATE: {**PHASES, "sync": 5.0}}), tmp_path)

    assert (0.0, True) == (found["sync"].base_ns_per_token, found["sync"].is_changed)
    assert 5e6 / STEP_TOKENS == pytest.approx(found["sync"].difference.estimate, rel=0.05)


def test_phases_are_silent_until_a_block_is_turned_round(tmp_path: Path) -> None:
    blocks = hot_study(tmp_path)

    assert {} == changes([block for block in blocks if block.order == "ABBA"], tmp_path)
    assert changes(blocks[:2], tmp_path)


def test_blocks_that_are_left_out_are_left_out_here_too(tmp_path: Path) -> None:
    blocks = hot_study(tmp_path)
    disturbed = [replace(block, disturbances=("noise",)) if block.number > 4 else block for block in blocks]
    found = changes(disturbed, tmp_path)

    assert {4} == {change.difference.num_samples for change in found.values()}


def test_a_block_that_was_measured_again_holds_no_window_of_the_launch_that_was_cut_off(tmp_path: Path) -> None:
    cut, whole = (
        changes(cut_off_study(tmp_path / str(is_cut), has_cut_block=is_cut), tmp_path / str(is_cut))
        for is_cut in (True, False)
    )

    assert {4} == {change.difference.num_samples for change in cut.values()}
    assert whole == cut


def test_a_launch_that_was_cut_off_is_read_and_one_that_is_gone_takes_its_block_with_it(tmp_path: Path) -> None:
    blocks = cold_study(tmp_path)
    (tmp_path / "cold-1-base-1").rename(tmp_path / ".cold-1-base-1.part")
    (tmp_path / "cold-2-base-1").rename(tmp_path / "elsewhere")
    found = changes(blocks, tmp_path)

    assert 11 == len(read_launches(blocks, tmp_path))
    assert {5} == {change.difference.num_samples for change in found.values()}


def test_a_window_without_tokens_costs_nothing(tmp_path: Path) -> None:
    blocks = cold_study(tmp_path)
    trainer = cold_launch(num_windows=2)
    trainer.take_window(3, num_steps=0)
    trainer.train(3)
    (tmp_path / "cold-1-base-1").rename(tmp_path / "elsewhere")
    trainer.write(tmp_path / "cold-1-base-1")

    assert {6} == {change.difference.num_samples for change in changes(blocks, tmp_path).values()}


def test_each_method_has_its_own_phases(tmp_path: Path) -> None:
    hot, cold = hot_study(tmp_path), cold_study(tmp_path)[:2]
    comparisons = [study_facts.judge(blocks, DecisionRule(), 0.0) for blocks in (hot, cold)]
    found = add_phases(comparisons, [*hot, *cold], read_launches([*hot, *cold], tmp_path))

    assert [{6}, {2}] == [{change.difference.num_samples for change in item.phases} for item in found]


def test_windows_that_a_cold_launch_lost_are_told(tmp_path: Path) -> None:
    blocks = cold_study(tmp_path)
    for block in blocks:
        for run_id in block.launches:
            busy_s = [(3.5, 4.2)] if run_id == "cold-1-base-1" else []
            write_counters(tmp_path / run_id / "counters.jsonl", until_s=8, busy_s=busy_s)
    (note,) = machine_notes(read_launches(blocks, tmp_path))

    assert note.startswith("cold-1-base-1: 1 of 3 windows were disturbed: other processes used")


def test_a_disturbed_window_of_a_launch_that_counts_tells_nothing_of_phases(tmp_path: Path) -> None:
    blocks = cold_study(tmp_path)
    trainer = cold_launch(num_windows=1)
    trainer.take_window(2, {**PHASES, "forward": 900.0})
    trainer.take_window(3)
    (tmp_path / "cold-1-base-1").rename(tmp_path / "elsewhere")
    trainer.write(tmp_path / "cold-1-base-1")
    write_counters(tmp_path / "cold-1-base-1" / "counters.jsonl", until_s=20, busy_s=[(6.0, 15.0)])
    found = changes(blocks, tmp_path)

    assert 6e7 / STEP_TOKENS == pytest.approx(found["forward"].base_ns_per_token, rel=0.01)


def test_what_the_machine_did_all_the_time_is_told(tmp_path: Path) -> None:
    blocks = hot_study(tmp_path)
    write_counters(tmp_path / "hot-1" / "counters.jsonl", until_s=20, busy_s=[(0.0, 20.0)])

    assert any("other processes used 1.0 cores" in note for note in machine_notes(read_launches(blocks, tmp_path)))


def test_a_quiet_machine_gives_no_notes(tmp_path: Path) -> None:
    blocks = hot_study(tmp_path)
    write_counters(tmp_path / "hot-1" / "counters.jsonl", until_s=20)

    assert () == machine_notes(read_launches(blocks, tmp_path)) == machine_notes([])
