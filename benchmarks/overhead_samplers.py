"""
What samplers cost the whole pipeline: one launch, short windows with and without each; `benchmarks.overhead` runs it.

A block is four windows, ABBA or BAAB by a coin: in A nothing is attached, in B one configuration is. All configurations
have their turn in each round, in random order, so that drift falls on all alike. A window is begun by a command that
sets no toggle, so windows are cut, adjusted for their batches and joined to blocks as those of `flashprof compare`.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.overhead_configurations import DEFAULT, Configuration
from benchmarks.results_file import Goal, Measure
from flashprof.app.session import Session
from flashprof.contracts.control import CommandName
from flashprof.contracts.errors import SubjectError, ToolError
from flashprof.contracts.events import EventLog
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.ports import Sampler, SampleTarget
from flashprof.decide.orders import ARM_OF, block_order
from flashprof.stats.composition import adjusted_log_rates
from flashprof.windows.switches import (
    Switch,
    arm_window,
    blocks_of,
    cut_window,
    cut_windows,
    find_switch,
    find_switches,
    switch_detail,
)

SAMPLING_GOAL = Goal(high=1.0)
SETTLE_STEPS = 4
"""Dropped after a sampler came or went: the queue holds two steps of hidden states that were made before."""
WINDOW_TIMEOUT_S = 120.0
BARE = "without samplers"
AROUND_BLOCK_S = 4.0
"""Steps that are dropped, attaching and detaching; tiny preset on two cores."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One block."""

    configuration: Configuration
    order: str
    """`ABBA` or `BAAB`; A is without."""


@dataclass(frozen=True, kw_only=True)
class SamplerCost:
    """What one configuration costs."""

    name: str
    differences: tuple[float, ...]
    """With − without, mean log tok/s, one a block."""
    half: float
    """Of the 95 % interval of their mean, by the spread of all configurations' blocks."""
    note: str

    def as_measure(self) -> Measure:
        """Share of tok/s that it costs."""
        mean = float(np.mean(self.differences))
        value, low, high = (100 * -math.expm1(mean + side * self.half) for side in (0, 1, -1))
        return Measure(
            name=self.name,
            value=value,
            unit="% tok/s",
            goal=SAMPLING_GOAL if self.name == DEFAULT else None,
            note=f"95 %: {low:.1f} to {high:.1f}; {len(self.differences)} blocks of 4 windows{self.note}",
        )


def plan_turns(configurations: Sequence[Configuration], *, num_rounds: int, seed: int) -> list[Turn]:
    """
    Who is measured when.

    Args:
        configurations: Those that can be had.
        num_rounds: Each has its turns in each round.
        seed: Of the orders, within a round and within a block.
    """
    rng = random.Random(seed)
    num_given: Counter[str] = Counter()
    turns = []
    for _ in range(num_rounds):
        once = [index for index, one in enumerate(configurations) for _ in range(one.turns_a_round)]
        for index in rng.sample(once, len(once)):
            configuration = configurations[index]
            num_given[configuration.name] += 1
            # A coin of its own for each, since two blocks under one coin are mirror images.
            order = block_order(1000 * seed + index, num_given[configuration.name])
            turns.append(Turn(configuration=configuration, order=order))
    return turns


class Study:
    """Takes the turns in a launch; `run` is its schedule."""

    def __init__(
        self, configurations: Sequence[Configuration], samples: Path, *, num_rounds: int, window_s: float, seed: int = 0
    ) -> None:
        """
        Plan all turns.

        Args:
            configurations: Those that can be had, as far as that is known.
            samples: Folder for what the samplers write.
            num_rounds: Each has its turns in each round.
            window_s: Length of a window at the steady pace.
            seed: Of all orders.
        """
        self.turns = plan_turns(configurations, num_rounds=num_rounds, seed=seed)
        self.left_out: dict[str, str] = {}
        """Name → why it could not be attached."""
        self.remarks: dict[str, list[str]] = defaultdict(list)
        """Name → what its samplers had to say."""
        self._notes = {one.name: one.note for one in configurations}
        self._samples = samples
        self._window_s = window_s
        self._window_tokens = 0
        self._cpu_s: dict[str, float] = defaultdict(float)
        self._attached_s: dict[str, float] = defaultdict(float)

    @property
    def length_s(self) -> float:
        """About how long it takes, in seconds."""
        return len(self.turns) * (4 * self._window_s + AROUND_BLOCK_S)

    def run(self, session: Session) -> None:
        """Measure all blocks; a configuration that cannot be attached loses this turn and those to come."""
        watch = session.watch
        num_ranks = sum(1 for log in watch.trainers if log.steps)
        self._window_tokens = round(self._window_s * watch.lead_tok_per_s(session.steady_ns) * num_ranks)
        for number, turn in enumerate(self.turns, start=1):
            name = turn.configuration.name
            if name in self.left_out:
                continue
            session.progress.stage(f"block {number} of {len(self.turns)}: {name}")
            try:
                self._take_turn(session, number, turn)
            except ToolError as error:
                self.left_out[name] = error.what
                session.progress.note(f"{name} is left out: {error.what}")

    def costs(self, logs: Sequence[EventLog]) -> list[SamplerCost]:
        """What the launch's events say of each configuration with a complete block, in the order they were given."""
        differences = self._differences(logs)
        half = _pooled_halves(differences)
        return [
            SamplerCost(name=name, differences=tuple(values), half=half[name], note=self._note(name))
            for name, values in differences.items()
        ]

    def _differences(self, logs: Sequence[EventLog]) -> dict[str, list[float]]:
        cut = cut_windows(logs)
        rates = adjusted_log_rates(cut)
        windows = [
            arm_window(window, launch="overhead", log_tok_per_s=rate) for window, rate in zip(cut, rates, strict=True)
        ]
        differences: dict[str, list[float]] = defaultdict(list)
        for block in blocks_of(windows, find_switches(logs)):
            differences[self.turns[block.number - 1].configuration.name].append(block.difference)
        return {name: differences[name] for name in self._notes if name in differences}

    def _take_turn(self, session: Session, number: int, turn: Turn) -> None:
        # A sampler stays attached from one of its windows to the next.
        for letter, run in groupby(enumerate(turn.order), key=lambda item: item[1]):
            places = [place for place, _ in run]
            folder = self._samples / f"{number}-{places[0] + 1}"
            with self._attach(turn.configuration if letter == "B" else None, session, folder):
                for place in places:
                    settle_steps = SETTLE_STEPS if place == places[0] else 1
                    self._take_window(session, number, turn, place, settle_steps=settle_steps)

    @contextmanager
    def _attach(self, configuration: Configuration | None, session: Session, folder: Path) -> Iterator[None]:
        name = BARE if configuration is None else configuration.name
        samplers = () if configuration is None else configuration.samplers
        logs = [log for log in session.watch.logs if log.steps]
        targets = [SampleTarget(role=log.header.role, rank=log.header.rank, pid=log.header.pid) for log in logs]
        folder.mkdir(parents=True, exist_ok=True)
        start_s, cpu_s = time.monotonic(), _own_cpu_s()
        with ExitStack() as attached:
            for sampler in samplers:
                sampler.start(targets, folder)
                attached.callback(self._detach, name, sampler)
            yield
        self._attached_s[name] += time.monotonic() - start_s
        self._cpu_s[name] += _own_cpu_s() - cpu_s

    def _detach(self, name: str, sampler: Sampler) -> None:
        remarks = sampler.stop()
        if remarks:
            self.remarks[name].extend(remarks)

    def _take_window(self, session: Session, number: int, turn: Turn, place: int, *, settle_steps: int) -> None:
        planned = Switch(
            command_id=0,
            at_ns=0,
            cell=ARM_OF[turn.order[place]],
            block=number,
            position=place,
            order=turn.order,
            label=f"{number}.{place + 1} {turn.configuration.name}",
            settle_steps=settle_steps,
            window_tokens=self._window_tokens,
        )
        watch = session.watch
        ack = session.command(CommandName.SET_TOGGLES, values={}, **switch_detail(planned))
        switch = None if ack is None else find_switch(watch.logs, ack.command_id)
        if switch is None:
            raise SubjectError("the subject does not answer", outcome=Outcome.TIMED_OUT)
        # Asked for again each time: the lead rank's own acknowledgement may come after another's.
        window = watch.wait(
            lambda: cut_window(watch.logs, find_switch(watch.logs, switch.command_id) or switch),
            timeout_s=WINDOW_TIMEOUT_S,
            progress=session.progress,
        )
        if window is None:
            raise SubjectError(f"window {planned.label} did not end", outcome=Outcome.TIMED_OUT)

    def _note(self, name: str) -> str:
        cores = self._busy_cores(name) - self._busy_cores(BARE)
        notes = [f"{cores:.2f} cores busy, attaching included", self._notes[name]]
        if name in self.left_out:
            notes.append(f"later left out: {self.left_out[name]}")
        return "".join(f"; {note}" for note in notes if note)

    def _busy_cores(self, name: str) -> float:
        """What this process and its samplers kept busy while attached."""
        seconds = self._attached_s[name]
        return self._cpu_s[name] / seconds if seconds else 0.0


def _pooled_halves(differences: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """
    Half of each 95 % interval, by the spread of all.

    Two or three blocks of one configuration tell little of their spread, those of all together do: what spreads is the
    machine's noise, the same for all.
    """
    freedom = sum(len(values) - 1 for values in differences.values())
    if not freedom:
        raise ToolError("no configuration has two blocks", next_command="--rounds 2")
    squares = sum(float(np.var(values)) * len(values) for values in differences.values())
    quantile = float(stats.t.ppf(0.975, freedom))
    return {name: quantile * math.sqrt(squares / freedom / len(values)) for name, values in differences.items()}


def _own_cpu_s() -> float:
    """Of this process and of those of its children that have ended, as a sampler's have when it is detached."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
