"""A world in virtual time: a clock that only moves when somebody sleeps, and a subject that trains by script."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashprof.app.measure import Recording, Schedule, plain_windows, record
from flashprof.app.session import Ports
from flashprof.app.watch import Watch
from flashprof.contracts.control import Command, CommandName, CommandReader
from flashprof.contracts.errors import ToolError
from flashprof.contracts.events import Ack, Gauge, Header, Mark, Record, Span, SpanKind, Step, encode, encode_header
from flashprof.contracts.experiment import Experiment, Output, SubjectKind, SubjectSpec, WindowPlan
from flashprof.contracts.ports import LaunchSpec, Meter, Sampler, SampleTarget
from flashprof.contracts.toggles import ToggleValues, Value
from flashprof.emit import RUN_DIR_VARIABLE
from flashprof.store.run_folder import RunFolder, create_run_folder

STEP_TOKENS = 1000
PID = 4242


class FakeClock:
    """Sleeping moves time at once and lets the rest of the world act."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.on_sleep: list[Callable[[], None]] = []

    def monotonic_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)
        for act in self.on_sleep:
            act()


@dataclass(frozen=True, kw_only=True)
class Script:
    """What a fake subject does, by seconds since its launch and by steps."""

    load_s: float | None = 2.0
    """When its first step begins; None: it never trains."""
    step_s: Callable[[int], float] = lambda _: 0.1
    shares: Mapping[str, float] = field(default_factory=lambda: {"forward": 1.0})
    """Phase → its part of a step, in the order of their running; together 1."""
    acknowledges: bool = True
    num_answers: float = math.inf
    """Commands that it answers before it goes deaf."""
    emits: bool = True
    """Whether it writes events; if not, it prints a throughput with each step."""
    silent_from_step: int | None = None
    exits: tuple[float, int] | None = None
    """(second, status) of an end of its own."""
    last_words: str = ""
    loss: Callable[[int], float] = lambda index: 5.0 - index / 1000
    counts_wrong: bool = False
    """Whether its `end` mark tells more tokens than its steps."""
    obeys_stop: bool = True
    obeys_sigint: bool = True
    toggle_factor: Callable[[Mapping[str, Value]], float] = lambda _: 1.0
    """By toggle values, what a step's time is multiplied by; at launch no toggle is set."""
    crashes: Callable[[Mapping[str, Value]], bool] = lambda _: False
    """By toggle values, whether it dies in its next step."""
    switch_lag_steps: int = 0
    """Steps after a switch that still run as before it: a queue that has to drain."""
    refuses: Mapping[str, str] = field(default_factory=dict)
    """Toggles that cannot be set, with the reason."""
    repeats_detail: bool = True
    """Whether the acknowledgement of a switch repeats what its command said of it."""


class FakeSubject:
    """One training process; implements the port."""

    def __init__(self, script: Script, clock: FakeClock, spec: LaunchSpec, journal: list[str]) -> None:
        self._script = script
        self._clock = clock
        self._journal = journal
        self._log = spec.log_path
        self._run_dir = Path(spec.env[RUN_DIR_VARIABLE])
        self._events = self._run_dir / "events" / "trainer-0.jsonl"
        self._commands = CommandReader(self._run_dir / "control")
        self._start_ns = clock.now_ns
        self._num_steps = 0
        self._num_commands = 0
        self._begin_ns = self._start_ns + round((script.load_s or 0) * 1e9)
        self._status: int | None = None
        self._values: ToggleValues = {}
        self._switches: list[tuple[int, ToggleValues]] = []
        self._log.write_text("loading\n")
        if script.emits:
            header = Header(
                role="trainer",
                rank=0,
                host="fake",
                pid=PID,
                trains=True,
                wall_ns=0,
                monotonic_ns=self._start_ns,
            )
            self._events.write_text(encode_header(header) + "\n")
        clock.on_sleep.append(self._act)

    @property
    def pid(self) -> int:
        return PID

    def returncode(self) -> int | None:
        return self._status

    def interrupt(self) -> None:
        self._journal.append("SIGINT")
        if self._script.obeys_sigint and self._status is None:
            self._end(-2)

    def kill_tree(self) -> int:
        self._journal.append("kill_tree")
        killed = int(self._status is None)
        if killed:
            self._status = -15
        return killed

    def _act(self) -> None:
        script = self._script
        if script.exits and self._status is None and self._clock.now_ns >= self._start_ns + script.exits[0] * 1e9:
            self._end(script.exits[1])
        while self._status is None and self._step_ends_ns() <= self._clock.now_ns:
            self._step(self._begin_ns, round(self._step_ends_ns()))

    def _step_ends_ns(self) -> float:
        script, index = self._script, self._num_steps
        is_silent = script.silent_from_step is not None and index >= script.silent_from_step
        if script.load_s is None or is_silent:
            return math.inf
        return self._begin_ns + script.step_s(index) * script.toggle_factor(self._values) * 1e9

    def _step(self, begin_ns: int, end_ns: int) -> None:
        script, index = self._script, self._num_steps
        if script.crashes(self._values):
            self._end(1)
            return
        self._num_steps += 1
        self._begin_ns = end_ns
        if not script.emits:
            self._say(f"step={index} tok/s={STEP_TOKENS / script.step_s(index):,.0f}")
            return
        self._emit(
            *self._spans(begin_ns, end_ns),
            Gauge("loss", index, end_ns, script.loss(index)),
            Step(index, end_ns, STEP_TOKENS, STEP_TOKENS // 2, 0),
        )
        if script.acknowledges:
            self._obey(index, end_ns)
        while self._switches and self._switches[0][0] <= self._num_steps:
            self._values.update(self._switches.pop(0)[1])

    def _spans(self, begin_ns: int, end_ns: int) -> list[Span]:
        spans = []
        at_ns, shares = begin_ns, self._script.shares
        for place, (phase, share) in enumerate(shares.items(), start=1):
            until_ns = end_ns if place == len(shares) else at_ns + round(share * (end_ns - begin_ns))
            spans.append(Span(phase, SpanKind.WORK, "main", at_ns, until_ns, 0, True))
            at_ns = until_ns
        return spans

    def _obey(self, index: int, at_ns: int) -> None:
        for command in self._commands.poll():
            self._num_commands += 1
            self._journal.append(f"{command.name} {command.detail.get('label', '')}".strip())
            if self._num_commands > self._script.num_answers:
                continue
            if command.name is CommandName.STOP and not self._script.obeys_stop:
                continue
            detail = self._set_toggles(command) if command.name is CommandName.SET_TOGGLES else command.detail
            self._emit(Ack(command.command_id, str(command.name), index, at_ns, detail))
            if command.name is CommandName.STOP:
                self._end(0)

    def _set_toggles(self, command: Command) -> dict[str, Any]:
        """As the pipeline: what can be set is set, and the acknowledgement repeats the command's detail."""
        refused = {name: why for name, why in self._script.refuses.items() if name in command.detail["values"]}
        values = {name: value for name, value in command.detail["values"].items() if name not in refused}
        self._switches.append((self._num_steps + self._script.switch_lag_steps, values))
        told = command.detail if self._script.repeats_detail else {}
        return {**told, "values": values, "refused": refused}

    def _end(self, status: int) -> None:
        self._status = status
        if self._script.last_words:
            self._say(self._script.last_words)
        if self._script.emits and status == 0:
            extra = int(self._script.counts_wrong)
            detail = {"num_tokens": self._num_steps * STEP_TOKENS + extra, "num_steps": self._num_steps}
            self._emit(Mark("end", self._clock.now_ns, detail))

    def _emit(self, *records: Record) -> None:
        with self._events.open("a") as file:
            file.writelines(encode(item) + "\n" for item in records)

    def _say(self, line: str) -> None:
        with self._log.open("a") as file:
            file.write(line + "\n")


@dataclass
class FakeLauncher:
    """Starts one fake subject."""

    script: Script
    clock: FakeClock
    journal: list[str]
    spec: LaunchSpec | None = None

    def launch(self, spec: LaunchSpec) -> FakeSubject:
        self.spec = spec
        return FakeSubject(self.script, self.clock, spec, self.journal)


@dataclass
class FakeSampler:
    """Writes down when it came and went."""

    journal: list[str]
    name: str = "sampler"
    refusal: ToolError | None = None
    on_start: Callable[[], None] | None = None
    stop_error: Exception | None = None
    notes: tuple[str, ...] = ()

    def start(self, targets: Sequence[SampleTarget], folder: Path) -> None:
        assert targets
        self.journal.append(f"{self.name} on {folder.name}")
        if self.refusal is not None:
            raise self.refusal
        if self.on_start is not None:
            self.on_start()

    def stop(self) -> list[str]:
        self.journal.append(f"{self.name} off")
        if self.stop_error is not None:
            raise self.stop_error
        return list(self.notes)


class FakeProgress:
    """Collects what a user would see."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.notes: list[str] = []

    def stage(self, text: str, *, total_s: float | None = None) -> None:
        assert total_s is None or total_s > 0
        self.stages.append(text)

    def advance(self, done_s: float, detail: str = "") -> None:
        """Nothing to see."""

    def note(self, text: str) -> None:
        self.notes.append(text)


PLAN = WindowPlan(
    num_measure=3, measure_s=2.0, num_profile=2, profile_s=1.0, steady_timeout_s=20.0, start_timeout_s=60.0
)


@dataclass
class World:
    """Everything around `record`, ready to run; change parts before `record` is called."""

    reports: Path
    script: Script = field(default_factory=Script)
    plan: WindowPlan = PLAN
    kind: SubjectKind = SubjectKind.PIPELINE
    pattern: str = ""

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.journal: list[str] = []
        self.progress = FakeProgress()
        self.samplers: list[FakeSampler] = [FakeSampler(self.journal)]
        self.meter: Meter | None = None

    @property
    def experiment(self) -> Experiment:
        subject = SubjectSpec(kind=self.kind, command=("trainer",), tok_per_s_pattern=self.pattern)
        return Experiment(subject=subject, windows=self.plan, output=Output(reports=self.reports, run_id="run"))

    @property
    def ports(self) -> Ports:
        samplers: list[Sampler] = list(self.samplers)
        return Ports(
            clock=self.clock,
            launcher=FakeLauncher(self.script, self.clock, self.journal),
            samplers=samplers,
            find_targets=_targets,
            env={"PATH": "/bin"},
            cwd=self.reports,
            meter=self.meter,
        )

    def record(self, schedule: Schedule = plain_windows) -> tuple[Recording, RunFolder]:
        folder = create_run_folder(self.reports, "run")
        return record(self.experiment, folder, self.ports, self.progress, schedule), folder

    def when_stage(self, text: str, act: Callable[[], Any]) -> None:
        """Do something once, in the first sleep of a stage whose text begins so."""
        done: list[bool] = []

        def look() -> None:
            if not done and self.progress.stages[-1:] and self.progress.stages[-1].startswith(text):
                done.append(True)
                act()

        self.clock.on_sleep.append(look)


def press_ctrl_c() -> None:
    """What Python does in the main thread at SIGINT."""
    raise KeyboardInterrupt


def _targets(watch: Watch, pid: int) -> list[SampleTarget]:
    return [SampleTarget(role="trainer", rank=0, pid=pid)]
