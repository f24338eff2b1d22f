"""Every toggle in the trace of a real run: two settings, two ways; hot ones also while it runs."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes import wait_for_lines

from flashprof.contracts.control import CommandName, CommandWriter
from flashprof.contracts.toggles import Toggle
from pipeline.toggles import REGISTRY, not_applied

pytestmark = pytest.mark.slow

NUM_STEPS = 4
LATEST_WORK = 3
"""Steps of work that lies between dispatcher and drafter at a queue depth of 1."""
Train = Callable[..., Any]


@dataclass(frozen=True)
class Trace:
    """Where a toggle shows: a word of the way of one phase of one worker, as a regular expression."""

    worker: str
    phase: str
    off: str
    on: str


TRACES = {
    "compile": Trace("drafter-0", "mask", "eager", "compiled"),
    "swa": Trace("drafter-0", "mask", "masks: 2", "masks: 1"),
    "queue": Trace("drafter-0", "make_room", "queue depth: 1", "queue depth: 8"),
    "async-metrics": Trace("drafter-0", "metrics", "read at once", "read later"),
    "grad-norm": Trace("drafter-0", "clip", "clip_by_host", "clip_on_device"),
    "warmup": Trace("drafter-0", "load", "shapes rehearsed: 0", "shapes rehearsed: [1-9][0-9]*"),
    "docids": Trace("drafter-0", "anchors", "document_ids_by_position", "document_ids"),
    "analytic-mask": Trace("drafter-0", "mask", "evaluated", "analytic"),
    "early-exit": Trace("target-0", "forward", "layers: 6", "layers: 4"),
    "packed-target": Trace("target-0", "forward", "padded", "packed"),
    "fused-loss": Trace("drafter-0", "loss", "dflash_loss", "fused_dflash_loss"),
}
DEFAULTS = {toggle.name: toggle.default for toggle in REGISTRY}
NOT_HERE = not_applied({toggle.name: toggle.on for toggle in REGISTRY}, has_cuda=False)
"""With the reason: those that need CUDA, and `compile` where there is no compiler."""
EVERYTHING = ",".join(("all", *(f"-{name}" for name in NOT_HERE)))
HERE = [toggle for toggle in REGISTRY if toggle.name not in NOT_HERE]
# Last the one that would have what comes after it compile once more, and the depth that makes target's toggles late.
HOT = sorted((toggle for toggle in HERE if toggle.hot), key=lambda toggle: ("compile", "queue").count(toggle.name))


def ways(run: Any, worker: str) -> dict[str, list[tuple[int | None, set[str]]]]:
    """Phase to `(step, words)` of its ways, in order."""
    found: dict[str, list[tuple[int | None, set[str]]]] = {}
    for mark in run.logs[worker].marks:
        if mark.name == "path":
            found.setdefault(mark.detail["phase"], []).append(
                (mark.detail["step"], set(mark.detail["way"].split(", ")))
            )
    return found


def goes(words: set[str], pattern: str) -> bool:
    return any(re.fullmatch(pattern, word) for word in words)


@pytest.fixture(scope="module")
def finished() -> dict[str, Any]:
    """Runs by toggle expression, each made by the first test that needs it."""
    return {}


@pytest.fixture
def run_of(train: Train, finished: dict[str, Any]) -> Callable[[str], Any]:
    def get(expression: str) -> Any:
        if expression not in finished:
            finished[expression] = train(expression, num_steps=NUM_STEPS)
        return finished[expression]

    return get


def test_every_toggle_that_a_cpu_can_honour_has_its_trace_here() -> None:
    assert {toggle.name for toggle in REGISTRY if "cuda" not in toggle.needs} == set(TRACES)


@pytest.mark.parametrize("toggle", HERE, ids=lambda toggle: toggle.name)
def test_two_settings_go_two_ways(run_of: Callable[[str], Any], toggle: Toggle) -> None:
    trace = TRACES[toggle.name]

    for expression, pattern, other in (("none", trace.off, trace.on), (EVERYTHING, trace.on, trace.off)):
        ((_, words),) = ways(run_of(expression), trace.worker)[trace.phase]

        assert goes(words, pattern)
        assert not goes(words, other)


def switched_on_and_off(train: Train, run_folder: Path) -> Any:
    """One run in which each hot toggle is switched on, then each off, one command after the other."""
    settings = [(toggle, toggle.on) for toggle in HOT] + [(toggle, toggle.default) for toggle in reversed(HOT)]

    def command() -> None:
        writer = CommandWriter(run_folder / "control")
        try:
            wait_for_lines(run_folder / "events" / "drafter-0.jsonl", '["step"', 2)
            for number, (toggle, value) in enumerate(settings, start=1):
                writer.send(CommandName.SET_TOGGLES, values={toggle.name: value})
                wait_for_lines(run_folder / "events" / "drafter-0.jsonl", '["ack"', number)
        finally:
            writer.send(CommandName.STOP)

    commander = threading.Thread(target=command, daemon=True)
    commander.start()
    run = train(num_steps=0)
    commander.join()
    return run


def test_a_hot_toggle_changes_the_way_at_the_acknowledged_step(train: Train, run_folder: Path) -> None:
    run = switched_on_and_off(train, run_folder)
    acks = run.logs["drafter-0"].acks
    changes = [(ack.step, *item) for ack in acks for item in ack.detail["values"].items()]

    assert 2 * len(HOT) == len(changes)
    for place in {(trace.worker, trace.phase) for trace in (TRACES[toggle.name] for toggle in HOT)}:
        mine = [change for change in changes if place == (TRACES[change[1]].worker, TRACES[change[1]].phase)]
        gone = ways(run, place[0])[place[1]]
        # One change a command, none besides.
        assert 1 + len(mine) == len(gone)
        for (step, name, value), (_, before), (begins, after) in zip(mine, gone, gone[1:], strict=False):
            off, on = TRACES[name].off, TRACES[name].on
            was, becomes = (on, off) if value == DEFAULTS[name] else (off, on)
            assert goes(before, was)
            assert goes(after, becomes)
            # The work that is under way in the queue, the target and the dispatcher was given out before.
            assert step <= begins <= step + (LATEST_WORK if TRACES[name].worker == "target-0" else 0)


def test_phases_have_the_same_names_whatever_the_toggles_are(run_of: Callable[[str], Any]) -> None:
    phases = [
        {name: {span.phase for span in log.spans} for name, log in run_of(expression).logs.items()}
        for expression in ("none", EVERYTHING)
    ]
    # Who waits for whom is up to the machine.
    for worker in phases[0]:
        waits = {"wait_hidden", "wait_work", "wait_targets", "wait_drafters", "wait_room"}
        assert phases[0][worker] - waits == phases[1][worker] - waits
