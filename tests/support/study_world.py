"""A whole `flashprof compare` in virtual time: a trainer of two toggles that is launched, switched, and may fail."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fake_world import PID, FakeClock, FakeProgress, FakeSubject, Script

from flashprof.app.compare import compare
from flashprof.app.session import Ports
from flashprof.contracts.comparison import DecisionRule, StudyResult
from flashprof.contracts.events import Mark, encode
from flashprof.contracts.experiment import SubjectSpec, WindowPlan
from flashprof.contracts.machine import MachineReading
from flashprof.contracts.ports import LaunchSpec, Meter
from flashprof.contracts.study import ArmSpec, CompareRequest, MethodChoice
from flashprof.contracts.toggles import ToggleValues, Value
from flashprof.emit import RUN_DIR_VARIABLE

WINDOWS = WindowPlan(
    num_measure=2,
    measure_s=1.0,
    num_profile=0,
    start_timeout_s=30.0,
    steady_timeout_s=20.0,
    hang_timeout_s=10.0,
    stop_timeout_s=2.0,
)
BASE = ArmSpec(expression="none", values={"swa": False, "queue": 2})
CANDIDATE = ArmSpec(expression="swa", values={"swa": True, "queue": 2})
STEP_S = 0.1


@dataclass
class Launch:
    """One start of the trainer, as the test may look at it."""

    run_id: str
    toggles: str
    env: Mapping[str, str]


@dataclass
class FakeMeter:
    """A machine on which nothing else runs, but for the stretches that a test asks for."""

    clock: FakeClock
    busy_s: list[tuple[float, float]] = field(default_factory=list)
    """From when to when, in seconds of the clock, another program keeps a core busy."""

    def be_busy(self, length_s: float) -> None:
        """Let another program begin now."""
        now_s = self.clock.now_ns / 1e9
        self.busy_s.append((now_s, now_s + length_s))

    def read(self, pids: Sequence[int]) -> MachineReading:
        assert PID in pids
        now_s = self.clock.now_ns / 1e9
        others_s = sum(max(0.0, min(end, now_s) - start) for start, end in self.busy_s if start < now_s)
        return MachineReading(
            at_ns=self.clock.now_ns,
            busy_cpu_s=now_s + others_s,
            stolen_cpu_s=0.0,
            subject_cpu_s=now_s,
            own_cpu_s=0.0,
            subject_delay_s=0.0,
            num_swapped_pages=0,
            governor="",
        )


@dataclass
class StudyWorld:
    """Everything around `compare`; change parts before a call."""

    root: Path
    factor: float = 1.0
    """What `swa` multiplies the time of a step by."""
    script: Callable[[Launch, Script], Script] = lambda launch, script: script
    """Changes what a launch does."""
    applied: ToggleValues | None = None
    """What the trainer says of its toggles after each start; None: it says nothing."""
    noise: float = 0.01
    """Standard deviation of a step's log time."""

    def __post_init__(self) -> None:
        self.reports = self.root / "reports"
        # A tree without a repository: the one of these tests changes while somebody works on it.
        package = self.root / "tree" / "pipeline"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
        self.clock = FakeClock()
        self.journal: list[str] = []
        self.launches: list[Launch] = []
        self.progress = FakeProgress()
        self.meter: Meter | None = None
        self.request = CompareRequest(
            base=BASE,
            candidate=CANDIDATE,
            subject=SubjectSpec(preset="tiny"),
            windows=WINDOWS,
            rule=DecisionRule(budget_s=600.0),
            explain=False,
            reports=self.reports,
        )

    def ask(self, **changes: object) -> None:
        """Change the question."""
        self.request = replace(self.request, **changes)  # type: ignore[arg-type]

    def cold_only(self) -> None:
        """Ask for launches of one arm each."""
        self.ask(method=MethodChoice.COLD)

    @property
    def ports(self) -> Ports:
        return Ports(
            clock=self.clock,
            launcher=self,
            samplers=(),
            find_targets=lambda watch, pid: (),
            env={"PATH": "/bin", "PYTHONPATH": str(self.root / "tree")},
            cwd=self.root,
            meter=self.meter,
        )

    def compare(self) -> StudyResult:
        """Give the command."""
        return compare(self.request, self.ports, self.progress)

    def launch(self, spec: LaunchSpec) -> FakeSubject:
        """Start the trainer; implements the port."""
        run_dir = Path(spec.env[RUN_DIR_VARIABLE])
        toggles = spec.command[spec.command.index("--toggles") + 1]
        launch = Launch(run_id=run_dir.name.removeprefix(".").removesuffix(".part"), toggles=toggles, env=spec.env)
        self.launches.append(launch)
        # The launches before it have ended, and need no more time.
        self.clock.on_sleep = [act for act in self.clock.on_sleep if not isinstance(_owner(act), FakeSubject)]
        subject = FakeSubject(self.script(launch, self._script(launch)), self.clock, spec, self.journal)
        if self.applied is not None:
            mark = Mark("toggles", self.clock.now_ns, {"values": self.applied, "refused": {}})
            with (run_dir / "events" / "trainer-0.jsonl").open("a") as file:
                file.write(encode(mark) + "\n")
        return subject

    def at_stage(self, text: str, act: Callable[[], object], *, nth: int = 1) -> None:
        """Do something once, in the first sleep of the *nth* stage whose text begins so."""
        done: list[bool] = []

        def look() -> None:
            stages = self.progress.stages
            is_there = stages[-1:] and stages[-1].startswith(text)
            if not done and is_there and sum(stage.startswith(text) for stage in stages) >= nth:
                done.append(True)
                act()

        self.clock.on_sleep.append(look)

    @property
    def run_ids(self) -> list[str]:
        """Of all launches so far."""
        return [launch.run_id for launch in self.launches]

    @property
    def study(self) -> Path:
        """The one study folder."""
        (path,) = self.reports.glob("compare-????????????")
        return path

    @property
    def journal_lines(self) -> list[str]:
        """Of the study."""
        return (self.study / "journal.jsonl").read_text().splitlines()

    def _script(self, launch: Launch) -> Script:
        rng = random.Random(launch.run_id)
        launch_factor = 1 + rng.gauss(0, self.noise / 3)
        factors = [launch_factor * (1 + rng.gauss(0, self.noise)) for _ in range(3000)]
        is_on = launch.toggles == CANDIDATE.expression

        def toggle_factor(values: Mapping[str, Value]) -> float:
            return self.factor if values.get("swa", is_on) else 1.0

        return Script(load_s=1.0, step_s=lambda index: STEP_S * factors[index % 3000], toggle_factor=toggle_factor)


def _owner(act: Callable[[], None]) -> object:
    return getattr(act, "__self__", None)
