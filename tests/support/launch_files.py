"""Events and counters of a launch, made up: what a study finds in its folders."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flashprof.contracts.comparison import Arm
from flashprof.contracts.control import CommandName
from flashprof.contracts.events import Ack, EventLog, Gauge, Header, Record, Span, SpanKind, Step, encode, encode_header
from flashprof.contracts.machine import MachineReading
from flashprof.decide.orders import ARM_OF
from flashprof.store.counters_file import CountersWriter
from flashprof.windows.switches import Switch, switch_detail

MS = 1_000_000
STEP_TOKENS = 1000
PHASES = {"forward": 60.0, "backward": 30.0, "queue": 10.0}
"""Milliseconds of each in a step; `queue` is waiting."""


@dataclass
class Trainer:
    """Trains step by step and writes down what happens."""

    jitter: float = 0.01
    seed: int = 0
    now_ns: int = 0
    num_steps: int = 0
    num_commands: int = 0
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def train(self, num_steps: int, phases: Mapping[str, float] = PHASES, *, loss: float | None = None) -> None:
        """Some steps."""
        for _ in range(num_steps):
            for name, length_ms in phases.items():
                kind = SpanKind.WAIT if name == "queue" else SpanKind.WORK
                start_ns = self.now_ns
                self.now_ns += round(length_ms * MS * (1 + self._rng.gauss(0, self.jitter)))
                self.records.append(Span(name, kind, "main", start_ns, self.now_ns, 0, True))
            value = 5.0 - self.num_steps / 1000 if loss is None else loss
            self.records.append(Gauge("loss", self.num_steps, self.now_ns, value))
            self.records.append(Step(self.num_steps, self.now_ns, STEP_TOKENS, STEP_TOKENS // 2, 0))
            self.num_steps += 1

    def obey(self, name: CommandName, **detail: object) -> None:
        """Acknowledge a command."""
        self.num_commands += 1
        self.records.append(Ack(self.num_commands, str(name), self.num_steps, self.now_ns, dict(detail)))

    def take_window(self, number: int, phases: Mapping[str, float] = PHASES, *, num_steps: int = 10) -> None:
        """A measure window of a launch of one arm."""
        self.train(2, phases)
        self.obey(CommandName.WINDOW_START, label=f"measure-{number}", kind="measure")
        self.train(num_steps, phases)
        if not num_steps:
            self.now_ns += 500 * MS
        self.obey(CommandName.WINDOW_END, label=f"measure-{number}")

    def take_block(self, number: int, order: str, phases: Mapping[Arm, Mapping[str, float]]) -> None:
        """A block of a launch of both arms: windows of four steps."""
        for position, letter in enumerate(order):
            arm = ARM_OF[letter]
            label = f"{number}.{position + 1} {arm}"
            switch = Switch(
                command_id=0,
                at_ns=0,
                cell=arm,
                block=number,
                position=position,
                order=order,
                label=label,
                settle_steps=1,
                window_tokens=4 * STEP_TOKENS,
            )
            self.obey(CommandName.SET_TOGGLES, values={}, refused={}, **switch_detail(switch))
            self.train(5, phases[arm])

    @property
    def log(self) -> EventLog:
        """As it is read back."""
        log = EventLog(header=header())
        for record in self.records:
            log.add(record)
        return log

    def write(self, folder: Path) -> None:
        """The events file of a run folder."""
        (folder / "events").mkdir(parents=True)
        lines = [encode_header(header()), *(encode(record) for record in self.records)]
        (folder / "events" / "trainer-0.jsonl").write_text("\n".join(lines) + "\n")


def header() -> Header:
    return Header(role="trainer", rank=0, host="here", pid=1, trains=True, wall_ns=0, monotonic_ns=0)


def cold_launch(phases: Mapping[str, float] = PHASES, *, num_windows: int = 3, seed: int = 0) -> Trainer:
    """A launch of one arm with its measure windows."""
    trainer = Trainer(seed=seed)
    trainer.train(20, phases)
    for number in range(1, num_windows + 1):
        trainer.take_window(number, phases)
    return trainer


def write_counters(
    path: Path, *, until_s: float, busy_s: Sequence[tuple[float, float]] = (), from_s: float = 0
) -> None:
    """
    One reading each half second.

    Args:
        path: Of the file.
        until_s: Of the last reading.
        busy_s: From when to when another program keeps a core busy, in seconds of the launch.
        from_s: Of the first reading.
    """
    writer = CountersWriter(path)
    for half in range(round(2 * from_s), round(2 * until_s) + 1):
        now_s = half / 2
        others_s = sum(max(0.0, min(end, now_s) - start) for start, end in busy_s)
        writer.write(reading(now_s, busy_cpu_s=now_s + others_s))
    writer.close()


def reading(now_s: float, *, busy_cpu_s: float) -> MachineReading:
    """The subject alone keeps one core busy."""
    return MachineReading(
        at_ns=round(now_s * 1e9),
        busy_cpu_s=busy_cpu_s,
        stolen_cpu_s=0.0,
        subject_cpu_s=now_s,
        own_cpu_s=0.0,
        subject_delay_s=0.0,
        num_swapped_pages=0,
        governor="",
    )
