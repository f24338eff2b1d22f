"""What real gates are asked: kinds of changes, each a repository of two commits, and a neighbour that is in the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from benchmarks.regressions.case import Case, Edit, PlantedCommit, Role, load_case
from benchmarks.regressions.history import make_history
from benchmarks.regressions.trees import ROOT
from flashprof.contracts.comparison import Verdict

HARMLESS = "documentation_only"
BRAKE = "pipeline/brake.py"
BRAKE_SHARE = "share = int(toggles.get(BRAKE, 0)) / 1000"
"""The brake holds the drafter up by a known share; the hidden toggle says by which, a planted commit says another."""
COMPETITOR = """
import os, random, sys, time
rng, parent = random.Random(int(sys.argv[1])), os.getppid()
while os.getppid() == parent:
    until_s = time.monotonic() + rng.expovariate(1 / 5)
    while time.monotonic() < until_s:
        pass
    time.sleep(rng.expovariate(1 / 10))
"""
"""A core for 5 s, then nothing for 10 s, on the average: shorter than a launch, so that launches differ by it."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What head does, and what the machine does meanwhile."""

    loss: float = 0.0
    """Share of the drafter's tok/s that head lacks."""
    is_busy: bool = False

    @property
    def is_harmless(self) -> bool:
        """Whether the only right answer but `inconclusive` is that it may land."""
        return not self.loss


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "aa-docs": Kind(),
        "aa-busy": Kind(is_busy=True),
        "planted-5": Kind(loss=0.05),
        "planted-17": Kind(loss=0.17),
    }
)


def make_case(kind: Kind) -> Case:
    """A case whose history of one commit is the change."""
    case = load_case(HARMLESS)
    if kind.is_harmless:
        return case
    edit = Edit(file=BRAKE, old=BRAKE_SHARE, new=f"share = {kind.loss}")
    planted = PlantedCommit(subject="Forward: hold on", role=Role.LOSS, edits=(edit,))
    return replace(case, name=f"gate_{1000 * kind.loss:.0f}", verdict=Verdict.REGRESSION, commits=(planted,))


def make_repo(case: Case, folder: Path, number: int, source: Mapping[str, str] | None = None) -> Path:
    """
    The repository of one trial; one that is there already is the same, and is taken.

    Args:
        case: Of `make_case`.
        folder: Of the trial.
        number: Of the trial: which file head touches, where any would do.
        source: As in `make_history`.
    """
    repo, part = folder / "repo", folder / "repo.part"
    if not repo.exists():
        shutil.rmtree(part, ignore_errors=True)
        make_history(case, part, num_commits=1, seed=number, source=source)
        part.rename(repo)
    return repo


def gate_arguments(case: Case, repo: Path, *, number: int, budget_s: float, settings: Sequence[str]) -> tuple[str, ...]:
    """What `flashprof gate` is given."""
    fault = () if case.is_control else ("--fault", "brake")
    return (
        *("--base-ref", "HEAD~1", "--repo", str(repo), "--seed", str(number), "--budget", f"{budget_s:g}s"),
        *("--preset", "tiny", "--topology", "1+1", "--toggles", case.toggles),
        *("--train", " ".join(("--device", "cpu", *case.train_options, *fault))),
        *(word for setting in settings for word in ("--set", setting)),
        # Where the time goes is the suite's question; here it would be two launches more, after the verdict.
        *("--no-explain", "--json"),
    )


def gate_env(environ: Mapping[str, str]) -> dict[str, str]:
    """Today's FlashProf, no GPU, one thread a process as everywhere in the suite."""
    path = os.pathsep.join(part for part in (str(ROOT), environ.get("PYTHONPATH", "")) if part)
    return {**environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


@contextmanager
def competitor(seed: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that wants a core of those that this one may use, in bursts; it ends with this one at the latest."""
    process = subprocess.Popen([sys.executable, "-c", COMPETITOR, str(seed)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()
