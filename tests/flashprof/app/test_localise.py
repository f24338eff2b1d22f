"""From folders of launches to a localisation: runs, hot and cold studies, each window for its own arm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from launch_files import PHASES, STEP_TOKENS, Trainer, cold_launch, write_counters

from flashprof.app.hot import hot_results
from flashprof.app.localise import ONE_LAUNCH, Localised, calm_windows, localise, pick_runs
from flashprof.app.localise_study import localise_study
from flashprof.contracts.comparison import Arm, Block
from flashprof.contracts.localisation import Localisation
from flashprof.store.study_folder import StudyFolder

SLOWER = {**PHASES, "backward": 1.2 * PHASES["backward"]}
ADDED_NS = 6e6 / STEP_TOKENS
"""6 ms a step."""
NAMES = ("fast", "slow")


def run_folders(folder: Path, *, num: int, phases: Mapping[str, float], name: str) -> list[Path]:
    paths = []
    for number in range(num):
        paths.append(folder / f"{name}-{number}")
        cold_launch(phases, seed=hash((name, number)) % 1000).write(paths[-1])
    return paths


def between_runs(folder: Path, *, num: int) -> Localised:
    bases = run_folders(folder, num=num, phases=PHASES, name="base")
    candidates = run_folders(folder, num=num, phases=SLOWER, name="candidate")
    found = localise([*bases, *candidates], pick_runs(bases, candidates), names=NAMES)

    assert found is not None
    return found


def check(found: Localisation) -> None:
    first = found.parts[0]

    assert ("trainer backward", True) == (first.name, first.is_clear)
    assert ADDED_NS == pytest.approx(first.charge.estimate, rel=0.1)
    assert ADDED_NS == pytest.approx(found.difference.estimate, rel=0.3)
    assert ("trainer", "trainer") == found.limiting


def test_runs_are_compared_launch_by_launch(tmp_path: Path) -> None:
    found = between_runs(tmp_path, num=3).localisation

    check(found)
    assert ((3, 3), (9, 9), NAMES) == (found.num_launches, found.num_windows, (found.base, found.candidate))
    assert ONE_LAUNCH not in found.notes


def test_one_launch_an_arm_says_what_its_intervals_mean(tmp_path: Path) -> None:
    found = between_runs(tmp_path, num=1).localisation

    check(found)
    assert ONE_LAUNCH in found.notes


def test_a_folder_without_events_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty" / "events").mkdir(parents=True)

    assert localise([tmp_path / "empty"], pick_runs([tmp_path / "empty"], []), names=NAMES) is None


def test_disturbed_windows_are_left_out(tmp_path: Path) -> None:
    trainer = cold_launch()
    trainer.write(tmp_path / "run")
    until_s = trainer.now_ns / 1e9
    write_counters(tmp_path / "run" / "counters.jsonl", until_s=until_s + 1, busy_s=[(until_s - 1.2, until_s)])

    assert 2 == len(calm_windows(tmp_path / "run", [trainer.log]))


def hot_study(folder: StudyFolder) -> list[Block]:
    trainer = Trainer()
    trainer.train(20)
    for number, order in enumerate(("ABBA", "BAAB", "ABBA"), start=1):
        trainer.take_block(number, order, {Arm.BASE: PHASES, Arm.CANDIDATE: SLOWER})
    trainer.write(folder.launches / "hot-1")
    return list(hot_results([trainer.log], launch="hot-1")[1])


def test_the_windows_of_one_launch_go_to_their_arms(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    found = localise_study(folder, hot_study(folder), names=NAMES, seed=0)

    assert found is not None
    check(found.localisation)
    assert ((6, 6), (1, 1)) == (found.localisation.num_windows, found.localisation.num_launches)
    assert ((), ()) == (found.base_profiles, found.candidate_profiles)


def test_blocks_that_do_not_count_are_not_looked_at(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    blocks = hot_study(folder)[:1]
    found = localise_study(folder, blocks, names=NAMES, seed=0)

    assert found is not None
    assert (2, 2) == found.localisation.num_windows
