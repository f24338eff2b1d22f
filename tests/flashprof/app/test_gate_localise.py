"""Where the time goes of a head that is slower than a stored baseline: with its folders, without them, and moved."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gate_world import SLOW, GateWorld

from flashprof.app.history import name_baseline
from flashprof.contracts.comparison import Verdict
from flashprof.contracts.gate import GateResult

WALL = '"wall_ns": '


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[GateWorld, GateResult]:
    """A head that is too slow for a baseline, which is four launches of a gate. Further gates only judge again."""
    world = GateWorld(tmp_path_factory.mktemp("stored")).make()
    world.gate()
    name_baseline(world.reports / "history.sqlite", "nightly", who="me", at="2026-11-30T10:00:00+00:00")
    world.slow = world.commit("slow", speed=SLOW)  # type: ignore[attr-defined]
    world.want(base_ref="", baseline="nightly")
    return world, world.gate()


def bases(world: GateWorld) -> list[Path]:
    """The folders of the baseline."""
    found = sorted(world.reports.glob("gate-*/launches/cold-*-base-*"))
    assert 4 == len(found)
    return found


@contextmanager
def away(*folders: Path) -> Iterator[None]:
    """As if somebody had removed them."""
    for folder in folders:
        folder.rename(folder.with_suffix(".away"))
    yield
    for folder in folders:
        folder.with_suffix(".away").rename(folder)


def test_head_is_held_against_the_launches_that_the_baseline_still_has(
    measured: tuple[GateWorld, GateResult],
) -> None:
    _, found = measured

    assert Verdict.REGRESSION is found.verdict
    assert found.localisation is not None
    assert "trainer forward" == found.localisation.parts[0].name
    assert pytest.approx(8_000, rel=0.1) == found.localisation.difference.estimate
    assert (found.base, found.head) == (found.localisation.base, found.localisation.candidate)
    assert found.study is not None
    assert found.localisation is found.study.localisation
    assert not any("gone" in note for note in found.notes)


def test_a_baseline_without_folders_is_said_with_what_would_tell(measured: tuple[GateWorld, GateResult]) -> None:
    world, before = measured
    with away(*bases(world)):
        found = world.gate()
    (note,) = [note for note in found.notes if "gone" in note]

    assert (Verdict.REGRESSION, None) == (found.verdict, found.localisation)
    assert "4 of 4 run folders" in note
    assert f"flashprof gate --base-ref {before.base_commit[:12]} " in note


def test_some_folders_are_enough_and_what_is_missing_is_said(measured: tuple[GateWorld, GateResult]) -> None:
    world, _ = measured
    with away(*bases(world)[:2]):
        found = world.gate()

    assert found.localisation is not None
    assert any("2 of 4 run folders of the baseline are gone" in note for note in found.notes)


def test_another_run_of_the_same_name_is_not_the_baselines(measured: tuple[GateWorld, GateResult]) -> None:
    world, _ = measured
    texts = {path: path.read_text() for folder in bases(world) for path in folder.glob("events/trainer-*.jsonl")}
    for path, text in texts.items():
        path.write_text(text.replace(f"{WALL}0", f"{WALL}{10**18}"))
    found = world.gate()
    for path, text in texts.items():
        path.write_text(text)

    assert all(f"{WALL}0" in text for text in texts.values())
    assert found.localisation is None
    assert any("4 of 4 run folders" in note for note in found.notes)


def test_reports_that_were_moved_with_their_history_are_found(measured: tuple[GateWorld, GateResult]) -> None:
    world, _ = measured
    reports, moved = world.reports, world.reports.with_name("moved")
    reports.rename(moved)
    world.want(reports=moved)
    found = world.gate()
    moved.rename(reports)
    world.want(reports=reports)

    assert found.localisation is not None
    assert not any("gone" in note for note in found.notes)


def test_head_is_launched_with_samplers_where_the_baseline_has_samples(
    measured: tuple[GateWorld, GateResult],
) -> None:
    world, _ = measured
    before = len(world.launches)
    world.want(explain=True)
    world.gate()
    num_without = len(world.launches) - before
    profile = bases(world)[0] / "samples" / "profile-1"
    profile.mkdir()
    found = world.gate()
    world.gate()
    world.want(explain=False)
    profile.rmdir()

    assert (0, 1) == (num_without, len(world.launches) - before)
    assert found.localisation is not None


def test_folders_that_cannot_be_read_leave_the_verdict(measured: tuple[GateWorld, GateResult]) -> None:
    world, _ = measured
    profile = bases(world)[0] / "samples" / "profile-2"
    profile.mkdir()
    (profile / "threads.csv").write_text("columns,of,another,version\n")
    found = world.gate()
    shutil.rmtree(profile)

    assert Verdict.REGRESSION is found.verdict
    assert any("where the time goes is not known" in note and "--base-ref" in note for note in found.notes)


def test_a_stored_gate_goes_on_to_the_commit(measured: tuple[GateWorld, GateResult]) -> None:
    world, _ = measured
    world.want(bisect=True, bisect_budget_s=36000.0)
    found = world.gate()
    world.want(bisect=False)

    assert world.slow == found.culprit  # type: ignore[attr-defined]
