"""The suite's runs: each case through the real command line, judged against what is known of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.regressions.case import Case
from benchmarks.regressions.history import make_history
from benchmarks.regressions.trees import good_files, source_files, write_tree
from benchmarks.results_file import hardware, versions
from flashprof.contracts.comparison import Verdict
from flashprof.contracts.search import SearchKind

ENDED = (0, 1, 3)
"""Exit statuses of a search that came to an end: alike, found, inconclusive."""
SLACK_S = 1800.0
"""How much longer than its budget a search may take: starts, builds, and the window that is under way."""

NUM_FRAMES = 3
Causes = tuple[tuple[str, ...], ...]
"""Toggles, pairs of them, or commits, sorted."""
SHORT_WINDOWS = ("--set", "windows.num_measure=3", "--set", "windows.measure_s=4")
"""A launch for each commit: three windows of 4 s hold 400 steps, and the start costs as much."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a case asks of `flashprof bisect`, and the answer."""

    arguments: tuple[str, ...]
    env: dict[str, str]
    """Beside today's."""
    expected: Causes


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How all cases are run."""

    num_commits: int
    budget_s: float
    """Of measuring, a case."""
    seed: int
    """Of the histories and of the searches."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of a case."""

    case: str
    scenario: str
    kind: str
    is_control: bool
    expected_verdict: str
    expected: Causes
    status: int
    """With which `flashprof bisect` ended."""
    verdict: str = ""
    """Empty where it gave none."""
    culprits: Causes = ()
    rank: int | None = None
    """Place, from 1, of the hypothesis that is true, among those that the search reports."""
    phase: str = ""
    """The part with the largest charge: `drafter mask`; empty where nothing was localised."""
    frames: tuple[str, ...] = ()
    """The first three."""
    explained_share: float | None = None
    """Of the change, by clear parts."""
    is_phase_right: bool | None = None
    is_frame_right: bool | None = None
    num_windows: int = 0
    num_launches: int = 0
    num_builds: int = 0
    minutes: float = 0.0
    """Of wall time, starts and builds among them."""
    reason: str = ""
    hardware: str = ""
    commit: str = ""
    """Of FlashProf and of the pipeline in which the regression was planted."""

    @property
    def is_right(self) -> bool:
        """Whether it names exactly the culprits, with the right verdict."""
        return self.verdict == self.expected_verdict and self.culprits == self.expected

    @property
    def num_false(self) -> int:
        """Causes that it calls proved and that are none."""
        named = self.culprits if self.verdict == Verdict.REGRESSION else ()
        return sum(cause not in self.expected for cause in named)


def run_case(case: Case, settings: Settings, folder: Path) -> Answer:
    """Ask FlashProf; its reports, with all that it measured, stay in *folder*."""
    with TemporaryDirectory(prefix="regressions-") as scratch:
        question = ask(case, settings, Path(scratch))
        reports = folder / "reports"
        command = (sys.executable, "-m", "flashprof.cli", "bisect", *question.arguments, "--reports", str(reports))
        begin_s = time.monotonic()
        with (folder / "stderr").open("w", encoding="utf-8") as stderr:
            done = subprocess.run(
                (*command, "--json", "--budget", f"{settings.budget_s:g}s", "--seed", str(settings.seed)),
                cwd=scratch,
                env={**os.environ, **question.env},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                timeout=settings.budget_s + SLACK_S,
                check=False,
            )
        minutes = (time.monotonic() - begin_s) / 60
    answer = judge(case, question, done.returncode, done.stdout, minutes)
    return replace(answer, hardware=hardware(), commit=versions()["commit"])


def ask(case: Case, settings: Settings, scratch: Path) -> Question:
    """Write the case's tree or history into *scratch*, and say what `flashprof bisect` is given."""
    train = ("--train", " ".join(("--device", "cpu", *case.train_options)), "--preset", "tiny", "--topology", "1+1")
    train += SHORT_WINDOWS if case.kind is SearchKind.COMMITS else ()
    if case.kind is SearchKind.TOGGLES:
        tree = write_tree(good_files(case, source_files()), scratch / "tree")
        # FlashProf itself is today's: `-m flashprof.cli` would find the tree's, and that is the same.
        return Question(
            arguments=("--good", case.good, "--bad", case.bad, *train),
            # After it what was there: on a lent machine libraries come by that path.
            env={"PYTHONPATH": os.pathsep.join(filter(None, (str(tree), os.environ.get("PYTHONPATH"))))},
            expected=_sorted(case.culprits),
        )
    planted = make_history(case, scratch / "repo", num_commits=settings.num_commits, seed=settings.seed)
    commits = ("--commits", f"{planted.good}..{planted.bad}", "--repo", str(planted.repo), "--toggles", case.toggles)
    return Question(
        arguments=(*commits, *train),
        env={},
        expected=_sorted((commit,) for commit in planted.losses),
    )


def judge(case: Case, question: Question, status: int, printed: str, minutes: float) -> Answer:
    """
    Hold what `flashprof bisect --json` *printed* against what is true.

    A frame counts as named where it is among the first three.
    """
    facts: dict[str, Any] = {
        "case": case.name,
        "scenario": case.scenario,
        "kind": str(case.kind),
        "is_control": case.is_control,
        "expected_verdict": str(case.verdict),
        "expected": question.expected,
        "status": status,
        "minutes": minutes,
    }
    found = _document(printed) if status in ENDED else None
    if found is None:
        return Answer(**facts, reason="it failed: see stderr in the case's folder")
    localised = found.get("localisation") or {}
    phase = next((f"{part['role']} {part['phase']}" for part in localised.get("parts", ())), "")
    frames = tuple(frame["name"].rpartition(".")[2] for frame in localised.get("frames", ()))[:NUM_FRAMES]
    return Answer(
        **facts,
        verdict=found["verdict"],
        culprits=_sorted(found["culprits"]),
        rank=_rank(found, question.expected),
        phase=phase,
        frames=frames,
        explained_share=localised.get("explained_share"),
        is_phase_right=phase in case.phases if phase and case.phases else None,
        is_frame_right=not set(frames).isdisjoint(case.frames) if frames and case.frames else None,
        num_windows=found["num_readings"],
        num_launches=found["num_launches"],
        num_builds=found["num_builds"],
        reason=found["reason"],
    )


def _document(printed: str) -> dict[str, Any] | None:
    try:
        found = json.loads(printed)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _rank(found: Mapping[str, Any], expected: Causes) -> int | None:
    """Of the hypothesis that holds the expected causes and no other slow one; gains may be with them."""
    gains = set(_sorted(found["gains"]))
    for place, belief in enumerate(found["beliefs"], start=1):
        if set(_sorted(belief["causes"])) - gains == set(expected):
            return place
    return None


def _sorted(causes: Any) -> Causes:
    return tuple(sorted(tuple(sorted(members)) for members in causes))


def save_answer(answer: Answer, settings: Settings, folder: Path) -> None:
    """Beside the case's reports, so that the suite goes on where it was stopped."""
    part = folder / "answer.part"
    part.write_text(json.dumps({"settings": asdict(settings), "answer": asdict(answer)}, indent=1), encoding="utf-8")
    part.replace(folder / "answer.json")


def saved_answer(settings: Settings, folder: Path) -> Answer | None:
    """What an earlier call got under the same settings."""
    kept = kept_answer(folder)
    return kept[1] if kept is not None and kept[0] == settings else None


def kept_answer(folder: Path) -> tuple[Settings, Answer] | None:
    """What an earlier call got, and under which settings."""
    path = folder / "answer.json"
    if not path.exists():
        return None
    document = json.loads(path.read_text(encoding="utf-8"))
    raw = document["answer"]
    read = {"expected": _sorted(raw["expected"]), "culprits": _sorted(raw["culprits"]), "frames": tuple(raw["frames"])}
    return Settings(**document["settings"]), Answer(**{**raw, **read})
