"""A whole `flashprof bisect` in virtual time: a trainer with toggles that is launched, switched, and may fail."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fake_world import FakeClock, FakeProgress, FakeSubject, Script
from study_world import STEP_S, WINDOWS, Launch

from flashprof.app.search import bisect
from flashprof.app.session import Ports
from flashprof.contracts.events import Mark, encode
from flashprof.contracts.experiment import SubjectSpec
from flashprof.contracts.ports import LaunchSpec
from flashprof.contracts.search import Reading, SearchKind, SearchLook, SearchResult, SearchRule
from flashprof.contracts.search_request import BisectRequest
from flashprof.contracts.study import ArmSpec
from flashprof.contracts.toggles import Toggle, ToggleValues, Value, parse_toggles, toggles_to_json
from flashprof.decide.search_observations import Measured, SearchObservation
from flashprof.emit import RUN_DIR_VARIABLE
from flashprof.store.search_folder import SearchFolder

REGISTRY = (
    Toggle(name="swa", help="Sliding windows.", hot=True),
    Toggle(name="pin", help="Pinned memory.", hot=True),
    Toggle(name="fuse", help="Fused loss.", hot=True),
    Toggle(name="graphs", help="CUDA graphs.", hot=True, needs=("cuda",)),
)
CULPRIT = 1.2
"""What a step takes longer by where the culprit is off: a sixth of the tok/s."""


class Killed(BaseException):
    """Nothing that FlashProf could handle."""


class SearchProgressSpy(FakeProgress):
    """Collects what a user would see of a search, and may act on it."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[SearchLook] = []
        self.on_look: Callable[[SearchLook], object] = lambda look: None

    def look(self, look: SearchLook) -> None:
        self.looks.append(look)
        self.on_look(look)


@dataclass
class BisectWorld:
    """Everything around `bisect`; change parts before a call."""

    root: Path
    slower: dict[str, float] = field(default_factory=dict)
    """Toggle → what it multiplies the time of a step by where it is off."""
    script: Callable[[Launch, Script], Script] = lambda launch, script: script
    """Changes what a launch does."""
    applied: ToggleValues | None = None
    """What the trainer says of its toggles after each start; None: it says nothing."""
    crashes: Callable[[Mapping[str, Value]], bool] = lambda values: False
    """By all toggle values, whether the trainer dies of them."""
    step_s: Callable[[LaunchSpec], float] = lambda spec: STEP_S
    noise: float = 0.01
    """Standard deviation of a step's log time."""

    def __post_init__(self) -> None:
        self.reports = self.root / "reports"
        self.tree = self.root / "tree"
        # All of our pipeline that a search asks before it launches.
        package = self.tree / "pipeline"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(f"print({json.dumps(toggles_to_json(REGISTRY))!r})\n")
        self.clock = FakeClock()
        self.journal: list[str] = []
        self.launches: list[Launch] = []
        self.progress = SearchProgressSpy()
        self.cwd = self.root
        self.request = toggle_request(self.reports, "swa,pin,fuse", "none")

    def ask(self, **changes: object) -> None:
        """Change the question."""
        self.request = replace(self.request, **changes)  # type: ignore[arg-type]

    @property
    def env(self) -> dict[str, str]:
        """FlashProf's own. No GPU is to be seen, whatever machine this is."""
        return {"PATH": os.environ["PATH"], "PYTHONPATH": str(self.tree), "CUDA_VISIBLE_DEVICES": ""}

    @property
    def ports(self) -> Ports:
        return Ports(
            clock=self.clock,
            launcher=self,
            samplers=(),
            find_targets=lambda watch, pid: (),
            env=self.env,
            cwd=self.cwd,
        )

    def bisect(self) -> SearchResult:
        """Give the command."""
        return bisect(self.request, self.ports, self.progress)

    def stop_at(self, num: int, error: BaseException) -> None:
        """Raise *error* behind the *num*-th reading, once."""

        def look(seen: SearchLook) -> None:
            if seen.num_readings == num:
                self.progress.on_look = lambda look: None
                raise error

        self.progress.on_look = look

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be where the user is, for what asks the process itself: `status`, `undo`, `skip`."""
        monkeypatch.chdir(self.cwd)
        for name, value in self.env.items():
            monkeypatch.setenv(name, value)

    def launch(self, spec: LaunchSpec) -> FakeSubject:
        """Start the trainer; implements the port."""
        run_dir = Path(spec.env[RUN_DIR_VARIABLE])
        words = spec.command
        toggles = words[words.index("--toggles") + 1] if "--toggles" in words else ""
        launch = Launch(run_id=run_dir.name.removeprefix(".").removesuffix(".part"), toggles=toggles, env=spec.env)
        self.launches.append(launch)
        # The launches before it have ended, and need no more time.
        acts = self.clock.on_sleep
        self.clock.on_sleep = [act for act in acts if not isinstance(getattr(act, "__self__", None), FakeSubject)]
        script = self.script(launch, self._script(launch, self.step_s(spec)))
        subject = FakeSubject(script, self.clock, spec, self.journal)
        if self.applied is not None:
            mark = Mark("toggles", self.clock.now_ns, {"values": self.applied, "refused": {}})
            with (run_dir / "events" / "trainer-0.jsonl").open("a") as file:
                file.write(encode(mark) + "\n")
        return subject

    def copied(self, root: Path, reports: Path) -> BisectWorld:
        """The same machine, another time: what it finds is a copy of *reports*."""
        later = BisectWorld(root, slower=self.slower, script=self.script, crashes=self.crashes)
        later.tree = self.tree
        shutil.copytree(reports, later.reports)
        later.request = replace(self.request, reports=later.reports)
        return later

    @property
    def run_ids(self) -> list[str]:
        """Of all launches so far."""
        return [launch.run_id for launch in self.launches]

    @property
    def folder(self) -> SearchFolder:
        """The one search folder."""
        (path,) = self.reports.glob("bisect-????????????")
        return SearchFolder(path)

    @property
    def facts(self) -> tuple[SearchObservation, ...]:
        """What the journal holds."""
        return self.folder.observations()

    @property
    def readings(self) -> list[Reading]:
        """All that the journal holds, by time."""
        return [fact.reading for fact in self.facts if isinstance(fact, Measured)]

    def _script(self, launch: Launch, step_s: float) -> Script:
        rng = random.Random(launch.run_id)
        level = step_s * (1 + rng.gauss(0, self.noise / 3))
        factors = [1 + rng.gauss(0, self.noise) for _ in range(3000)]
        at_launch = parse_toggles(launch.toggles, REGISTRY)

        def toggle_factor(values: Mapping[str, Value]) -> float:
            now, slow = {**at_launch, **values}, 1.0
            for name, factor in self.slower.items():
                slow *= 1.0 if now[name] else factor
            return slow

        return Script(
            load_s=1.0,
            step_s=lambda index: level * factors[index % len(factors)],
            toggle_factor=toggle_factor,
            # Not before its first switch: it would only seem unable to load.
            crashes=lambda values: bool(values) and self.crashes({**at_launch, **values}),
            last_words="RuntimeError: boom",
        )


def toggle_request(reports: Path, good: str, bad: str, registry: Sequence[Toggle] = REGISTRY) -> BisectRequest:
    """A search among toggles."""
    ends = {name: ArmSpec(expression=text, values=parse_toggles(text, registry)) for name, text in pairs(good, bad)}
    return BisectRequest(
        kind=SearchKind.TOGGLES,
        good=ends["good"],
        bad=ends["bad"],
        cold_toggles=tuple(toggle.name for toggle in registry if not toggle.hot),
        subject=SubjectSpec(preset="tiny", toggles=good),
        windows=WINDOWS,
        rule=SearchRule(budget_s=3600.0),
        explain=False,
        reports=reports,
    )


def pairs(good: str, bad: str) -> Sequence[tuple[str, str]]:
    """Both ends by name."""
    return ("good", good), ("bad", bad)
