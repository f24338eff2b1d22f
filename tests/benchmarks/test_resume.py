"""The kill-and-resume study: what it kills, what it compares, and that a failure shows as an unmet goal."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.resume import (
    MOMENTS,
    NUM_STEPS,
    SAVE_EVERY,
    TOPOLOGIES,
    VICTIMS,
    Plan,
    Started,
    Trial,
    count_steps,
    make_plans,
    num_missing,
    num_unequal,
    read_losses,
    to_measures,
)
from flashprof.emit import connect

PLAN = Plan(topology="1+1", victim="all", moment="training", step=7, delay_s=0.0)
GOOD = Trial(
    plan=PLAN,
    status=-9,
    num_trained=7,
    num_saved=6,
    end_s=0.5,
    num_left=0,
    resumed_status=0,
    num_unequal=0,
    num_missing=0,
)
WHOLE = {("drafter-0", step): 1.0 / (step + 1) for step in range(8)}


def up_to(step: int) -> dict[tuple[str, int], float]:
    return {place: loss for place, loss in WHOLE.items() if place[1] < step}


def since(step: int) -> dict[tuple[str, int], float]:
    return {place: loss for place, loss in WHOLE.items() if place[1] >= step}


def test_every_combination_is_killed_once_in_the_default_number_of_kills() -> None:
    plans = list(itertools.islice(make_plans(random.Random(0), NUM_STEPS), 24))

    seen = Counter((plan.topology, plan.victim, plan.moment) for plan in plans)
    assert dict.fromkeys(itertools.product(TOPOLOGIES, VICTIMS, MOMENTS), 1) == seen
    assert all(1 <= plan.step < NUM_STEPS and plan.delay_s >= 0 for plan in plans)
    assert all(plan.step % SAVE_EVERY == 0 for plan in plans if plan.moment == "save")


def test_the_moments_are_those_of_the_seed() -> None:
    first, again, other = (list(itertools.islice(make_plans(random.Random(seed), 60), 24)) for seed in (0, 0, 1))

    assert first == again
    assert first != other


def test_a_loss_that_differs_in_the_last_bit_is_unequal() -> None:
    losses = up_to(4) | {("drafter-0", 2): 1.0 / 3 + 2**-54}

    assert 0 == num_unequal(WHOLE, up_to(4))
    assert 1 == num_unequal(WHOLE, losses)
    assert 1 == num_unequal(WHOLE, {("drafter-1", 0): 1.0})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (up_to(7), since(6), 0),
        # Steps 4 and 5 were saved, and the run killed before it had written them down.
        (up_to(4), since(6), 0),
        ({}, since(6), 0),
        (up_to(2) | {("drafter-0", 4): 0.2}, since(6), 2),
        # What was trained before does not excuse the resumed run.
        (up_to(8), since(7), 1),
        (up_to(7), {}, 2),
    ],
)
def test_steps_that_neither_run_shows_are_missing(
    before: dict[tuple[str, int], float], after: dict[tuple[str, int], float], expected: int
) -> None:
    assert expected == num_missing(WHOLE, before, after, num_saved=6)


def test_steps_are_counted_by_the_lines_of_the_log() -> None:
    assert 0 == count_steps("preset=tiny topology=1+1\nsaved step=9 \n")
    assert 12 == count_steps("step=9 loss=1\nstep=12 loss=1\nsaved step-00000012\nstep=1")


def test_a_file_that_was_cut_off_gives_what_it_holds(tmp_path: Path) -> None:
    emitter = connect("drafter", 0, run_dir=tmp_path)
    emitter.gauge("loss", 0, 0.1)
    emitter.close()
    path = tmp_path / "events" / "drafter-0.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + '["gauge", "lo', encoding="utf-8")
    path.with_name("drafter-1.jsonl").write_text('{"format": "flash', encoding="utf-8")

    assert {("drafter-0", 0): 0.1} == read_losses(tmp_path)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        # The run had ended by itself before it was killed.
        ("resume_kills", replace(GOOD, status=0)),
        ("resume_failed", replace(GOOD, resumed_status=4)),
        ("resume_unequal_losses", replace(GOOD, num_unequal=1)),
        ("resume_missing_losses", replace(GOOD, num_missing=1)),
        ("resume_left_processes", replace(GOOD, num_left=1)),
        ("resume_lost_steps_max", replace(GOOD, num_trained=6 + SAVE_EVERY + 1)),
        ("resume_end_max", replace(GOOD, end_s=10.5)),
    ],
)
def test_each_way_to_fail_leaves_its_own_goal_unmet(name: str, bad: Trial) -> None:
    unmet = [measure.name for measure in to_measures([GOOD] * 19 + [bad]) if not measure.met]

    assert [name] == unmet


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Started]:
    """A process and its child, in a session of their own, as a trainer and a worker are."""
    code = "import subprocess, sys; subprocess.Popen(['sleep', '60']); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        run = Started(process, tmp_path / "run")
        yield run
        run.kill("all")


def test_who_outlives_the_main_process_is_counted_and_ended(family: Started) -> None:
    family.kill("dispatcher-0")

    assert (-signal.SIGKILL, 1) == family.end(0.1)
    assert {} == family.alive()


def test_a_kill_of_all_leaves_nobody(family: Started) -> None:
    family.kill("all")

    assert (-signal.SIGKILL, 0) == family.end(10)


def test_a_victim_is_found_by_name_and_killed_alone(family: Started) -> None:
    family.kill("nobody of this name")
    family.kill("sleep")

    family.wait_until(lambda: {family.process.pid} == set(family.alive()))
    assert family.process.poll() is None
