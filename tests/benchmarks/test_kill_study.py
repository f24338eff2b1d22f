"""The kill study: whom it kills and when, and that each way to fail leaves its own goal unmet."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.kill_calls import END_LIMIT_S, MAIN, PIPELINE, STUDY_VARIABLE, TOOL, Call, Kill, Setting
from benchmarks.kill_evidence import Evidence
from benchmarks.kill_study import (
    METHODS,
    VICTIMS,
    Hit,
    Plan,
    Struck,
    Trial,
    judge_hit,
    line,
    make_plans,
    to_measures,
)
from flashprof.contracts.outcome import Outcome
from flashprof.decide.observations import HotEnded, observation_to_json
from flashprof.launch.guard import MARK_VARIABLE

KILL = Kill(victim=TOOL, moment=0.5, delay_s=0.1)
STRUCK = Struck(
    kill=KILL,
    at_s=30.0,
    end_s=1.2,
    num_left=0,
    num_windows=9,
    num_lost=0,
    num_half=1,
    is_journal_whole=True,
    outcome="",
    is_named=True,
)
GOOD = Trial(
    plan=Plan(method="hot", kills=(KILL,)),
    struck=(STRUCK,),
    statuses=(-9, 1),
    verdict="regression",
    num_blocks=8,
    num_left=0,
    has_traceback=False,
    length_s=90.0,
)


def first_plans(number: int, seed: int = 0) -> list[Plan]:
    return list(itertools.islice(make_plans(random.Random(seed)), number))


def ended(outcome: Outcome) -> bytes:
    end = HotEnded(run_id="hot-1", outcome=outcome, length_s=30.0)
    return json.dumps(observation_to_json(end)).encode() + b"\n"


def test_every_victim_is_killed_under_every_method() -> None:
    seen = Counter((plan.kills[0].victim, plan.method) for plan in first_plans(40))

    assert set(itertools.product(VICTIMS, METHODS)) == set(seen)
    assert 20 == sum(number for (victim, _), number in seen.items() if victim == TOOL)
    assert {"hot": 32, "cold": 8} == Counter(plan.method for plan in first_plans(40))


def test_some_studies_are_killed_twice_and_then_flashprof_first() -> None:
    twice = [plan.kills for plan in first_plans(24) if len(plan.kills) > 1]

    assert 6 == len(twice)
    assert all(first.victim == TOOL for first, _ in twice)
    assert all(0 <= kill.moment < 0.5 for kills in twice for kill in kills)


def test_the_moments_are_those_of_the_seed() -> None:
    assert first_plans(24) == first_plans(24)
    assert first_plans(24) != first_plans(24, seed=1)


@pytest.mark.parametrize(
    ("victim", "outcome", "is_stopping", "is_named"),
    [
        (PIPELINE, Outcome.KILLED, False, True),
        (PIPELINE, Outcome.CRASHED, False, False),
        (PIPELINE, Outcome.TIMED_OUT, True, True),
        (TOOL, Outcome.INTERRUPTED, False, True),
    ],
)
def test_a_kill_of_the_pipeline_must_show_as_one(
    victim: str, outcome: Outcome, *, is_stopping: bool, is_named: bool
) -> None:
    before = Evidence(stopping=frozenset({"hot-1"} if is_stopping else ()))
    hit = Hit(kill=replace(KILL, victim=victim), at_s=1.0, before=before)

    assert is_named == judge_hit(hit, Evidence(journal=ended(outcome)), {}).is_named


def test_a_pipeline_that_was_killed_without_an_end_in_the_journal_is_unnamed() -> None:
    hit = Hit(kill=replace(KILL, victim=MAIN), at_s=1.0, before=Evidence())

    assert not judge_hit(hit, Evidence(), {}).is_named


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("kill_kills", replace(GOOD, struck=())),
        ("kill_resumed", replace(GOOD, statuses=(-9, 4))),
        ("kill_same_verdict", replace(GOOD, statuses=(-9, 3), verdict="inconclusive")),
        ("kill_windows_lost", replace(GOOD, struck=(replace(STRUCK, num_lost=1),))),
        ("kill_processes_left", replace(GOOD, num_left=1)),
        ("kill_processes_left", replace(GOOD, struck=(replace(STRUCK, num_left=1),))),
        ("kill_traceback", replace(GOOD, has_traceback=True)),
        ("kill_journal_damaged", replace(GOOD, struck=(replace(STRUCK, is_journal_whole=False),))),
        ("kill_outcome_unnamed", replace(GOOD, struck=(replace(STRUCK, is_named=False),))),
        ("kill_end_max", replace(GOOD, struck=(replace(STRUCK, end_s=END_LIMIT_S + 1),))),
    ],
)
def test_each_way_to_fail_leaves_its_own_goal_unmet(name: str, bad: Trial) -> None:
    measures = to_measures([GOOD] * 29 + [bad], {"hot": "regression"})

    assert [name] == [measure.name for measure in measures if measure.met is False]


def test_thirty_good_kills_meet_every_goal() -> None:
    measures = to_measures([GOOD] * 30, {"hot": "regression"})

    assert all(measure.met is not False for measure in measures)


def test_a_study_that_was_over_before_its_kill_is_no_trial() -> None:
    early = replace(GOOD, struck=(), statuses=(3,), verdict="inconclusive")
    found = {measure.name: measure for measure in to_measures([GOOD, early], {"hot": "regression"})}

    assert 100 == found["kill_same_verdict"].value
    assert "of 1 studies" in found["kill_resumed"].note


def test_a_status_that_is_not_the_verdicts_is_no_answer() -> None:
    assert GOOD.is_resumed
    assert not replace(GOOD, statuses=(-9, 0)).is_resumed
    assert not replace(GOOD, statuses=(-9, -9)).is_resumed
    assert not replace(GOOD, verdict="").is_resumed


def test_a_line_tells_what_went_wrong() -> None:
    bad = replace(GOOD, struck=(replace(STRUCK, outcome="crashed", is_named=False, is_journal_whole=False),))

    assert "hot " in line(GOOD)
    assert "NOT NAMED" not in line(GOOD)
    assert "crashed (NOT NAMED), JOURNAL DAMAGED" in line(bad)
    assert "2 LEFT" in line(replace(bad, num_left=2))


def test_a_traceback_of_any_call_is_found(tmp_path: Path) -> None:
    setting = Setting(base="a", candidate="b", train_options="", folder=tmp_path)
    (tmp_path / "call-1.txt").write_text("regression\n", encoding="utf-8")
    clean = setting.has_traceback()
    (tmp_path / "call-2.txt").write_text("Traceback (most recent call last):\n", encoding="utf-8")

    assert not clean
    assert setting.has_traceback()


SLEEPER = "import time; print('ready', flush=True); time.sleep(60)"
"""Speaks for itself: right after a start, a process shows no environment for up to 4 ms."""


@pytest.fixture
def call() -> Iterator[Call]:
    """A process that stands for FlashProf, with a child in a session of its own that stands for the pipeline."""
    mark = f"test-{random.getrandbits(64):x}"
    code = (
        "import os, subprocess, sys;"
        f"env = {{**os.environ, '{MARK_VARIABLE}': 'launch'}};"
        f"child = subprocess.Popen([sys.executable, '-S', '-c', {SLEEPER!r}], env=env, start_new_session=True);"
        "child.wait()"
    )
    command = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, STUDY_VARIABLE: mark}) as process:
        assert process.stdout is not None
        process.stdout.readline()
        call = Call(process, mark)
        yield call
        for victim in (TOOL, PIPELINE):
            strike(call, victim)


def strike(call: Call, victim: str) -> bool:
    return call.strike(Kill(victim=victim, moment=0.0, delay_s=0.0), 0.0)


def test_the_family_is_found_wherever_it_moved(call: Call) -> None:
    (pipeline,) = call.pipeline()

    assert {call.process.pid, pipeline.pid} == {process.pid for process in call.family()}
    assert [call.process.pid] == call.find(TOOL)
    assert [pipeline.pid] == call.find(PIPELINE) == call.find(MAIN) == call.find(pipeline.name())
    assert [] == call.find("drafter-0")


def test_a_kill_of_the_pipeline_leaves_flashprof_to_go_on(call: Call) -> None:
    assert strike(call, MAIN)
    assert 0 == call.wait()
    assert 0 == call.end_family()


def test_who_outlives_flashprof_is_counted_and_ended(call: Call) -> None:
    hit = strike(call, TOOL)

    assert hit
    assert -signal.SIGKILL == call.wait()
    assert 1 == call.end_family(limit_s=0.1)
    assert 0 == call.end_family()


def test_a_call_that_is_over_cannot_be_killed(call: Call) -> None:
    strike(call, PIPELINE)
    call.wait()

    assert not strike(call, TOOL)
    assert not strike(call, "drafter-0")
