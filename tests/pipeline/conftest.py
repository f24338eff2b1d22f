"""Whole runs: data that are built once, workers from one fork server, events read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from trainer_config import some_config

from flashprof.contracts.events import EventLog, decode
from flashprof.contracts.toggles import parse_toggles
from flashprof.emit import RUN_DIR_VARIABLE
from pipeline.forkserver import fork_server
from pipeline.presets import TINY
from pipeline.signals import StopSignals
from pipeline.toggles import REGISTRY
from pipeline.topology import parse_topology

LIGHT = replace(TINY, data=replace(TINY.data, token_budget=1024), drafter=replace(TINY.drafter, num_anchors=16))
"""The tiny preset on the same data with a third of the work a step: 20 steps/s on a core of its own."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that has ended."""

    logs: dict[str, EventLog]
    """By worker name."""
    said: str

    def gauges(self, name: str, worker: str = "drafter-0") -> dict[int, float]:
        """Step to value."""
        return {gauge.step: gauge.value for gauge in self.logs[worker].gauges if gauge.name == name}


def read_events(folder: Path) -> dict[str, EventLog]:
    return {
        path.stem: decode(path.read_text(encoding="utf-8").splitlines(), where=str(path))
        for path in sorted(folder.glob("events/*.jsonl"))
    }


def clear_away(folder: Path) -> None:
    if folder.exists():
        folder.rename(folder.with_name(f"run-{sum(1 for _ in folder.parent.iterdir())}"))


@pytest.fixture(scope="session")
def run_cache(pytestconfig: pytest.Config) -> Path:
    """Kept between sessions: the tiny preset's data take some 15 s to build. It is checked whenever it is opened."""
    return pytestconfig.cache.mkdir("pipeline-runs")


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the run that is under way writes; workers know it from the fork server's environment."""
    return tmp_path_factory.mktemp("runs") / "current"


@pytest.fixture(scope="session")
def worker_context(run_folder: Path) -> Iterator[Any]:
    """One fork server for all runs: imports are paid once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RUN_DIR_VARIABLE, str(run_folder))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        with fork_server() as context:
            # The server has them. What other tests of this session start must not: it would obey the control channel of
            # whatever run was the last, and write into its folder.
            patch.undo()
            yield context


@pytest.fixture
def train(
    worker_context: Any,
    run_cache: Path,
    run_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[..., Run]:
    """Run the light preset in this process, with real workers; raises what it raises."""
    from pipeline.supervise import train as run

    # Before the test begins: what waits for this run's events must not find those of the last one.
    clear_away(run_folder)

    def start(
        expression: str = "none",
        *,
        topology: str = "1+1",
        num_steps: int = 12,
        signals: StopSignals | None = None,
        **changes: Any,
    ) -> Run:
        clear_away(run_folder)
        (run_folder / "control").mkdir(parents=True)
        monkeypatch.setenv(RUN_DIR_VARIABLE, str(run_folder))
        config = some_config(
            preset=changes.pop("preset", LIGHT),
            topology=parse_topology(topology),
            toggles=parse_toggles(expression, REGISTRY),
            num_steps=num_steps,
            cache=run_cache,
            **changes,
        )
        run(config, worker_context, signals or StopSignals())
        return Run(logs=read_events(run_folder), said=capfd.readouterr().out)

    return start
