"""What a study of `flashprof compare` has on disk at one moment, and what of it a later answer has lost."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashprof.app.hot import hot_results
from flashprof.contracts.control import CommandName, CommandReader
from flashprof.contracts.errors import FormatError
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import WindowKind
from flashprof.decide.observations import ColdFailed, ColdLaunch, HotEnded, Observation, observation_from_json
from flashprof.store.tail import read_event_logs
from flashprof.windows.switches import cut_windows
from flashprof.windows.table import build_windows

DIFFERENCE_TOLERANCE = 1e-9
"""In log tok/s: the same events give the same block, but for the last bits."""
NUM_LOOKS = 5
"""FlashProf renames a launch's folder when it is over; who reads just then looks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundWindow:
    """A complete measure window in the events of one launch."""

    launch: str
    block: int
    """0 in a launch of one arm, which counts as a whole or not at all."""
    end_ns: int
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that the files of a study hold at one moment."""

    journal: bytes = b""
    """Its whole lines."""
    windows: frozenset[FoundWindow] = frozenset()
    differences: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """Of every complete hot block, by launch and number, from that launch's events alone."""
    whole_launches: frozenset[str] = frozenset()
    """Launches of one arm that have all their windows."""
    stopping: frozenset[str] = frozenset()
    """Launches without an end in the journal that FlashProf has asked to stop: it wants nothing more of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of the windows that were on disk at a kill."""

    num_windows: int
    num_lost: int
    """Gone from the events, or in no block of the answer though all that their block needs was there."""
    num_half: int
    """
    Of a hot block, or a launch of one arm, that the kill cut before its last window: kept in the events, in no block.
    """


def read_evidence(reports: Path, num_measure: int) -> Evidence:
    """
    Look at the one study in *reports*; nothing where none has begun.

    Args:
        reports: Folder of all runs and studies.
        num_measure: Windows of a launch of one arm.
    """
    study = find_study(reports)
    if study is None:
        return Evidence()
    for _ in range(NUM_LOOKS):
        with suppress(FileNotFoundError):
            return _read(study, num_measure)
    return _read(study, num_measure)


def find_study(reports: Path) -> Path | None:
    """
    The only study there; None where none has begun.

    Raises:
        RuntimeError: There are two: the same command asked another question, as when the source changes meanwhile.
    """
    studies = sorted(reports.glob("compare-*"))
    if len(studies) > 1:
        raise RuntimeError(f"the source or the machine changed while it was studied: {studies}")
    return studies[0] if studies else None


def read_result(reports: Path) -> dict[str, Any]:
    """What `comparison.json` says; empty where there is none."""
    study = find_study(reports)
    path = None if study is None else study / "comparison.json"
    return {} if path is None or not path.exists() else dict(json.loads(path.read_text(encoding="utf-8")))


def fate(before: Evidence, after: Evidence, result: Mapping[str, Any]) -> Fate:
    """
    Follow the windows that were there *before* into the answer.

    Args:
        before: Right after a kill.
        after: When the study has ended.
        result: Its `comparison.json`.
    """
    kept = [window for window in before.windows if window in after.windows]
    half = [window for window in kept if not _is_whole(window, before)]
    used = [window for window in kept if _is_whole(window, before) and _is_told(window, before, result)]
    num_windows = len(before.windows)
    return Fate(num_windows=num_windows, num_lost=num_windows - len(half) - len(used), num_half=len(half))


def is_journal_whole(before: Evidence, after: Evidence) -> bool:
    """Whether the journal still begins with the lines that it had, and every line can be read."""
    try:
        read_observations(after.journal)
    except (FormatError, ValueError):
        return False
    return after.journal.startswith(before.journal)


def read_observations(journal: bytes) -> tuple[Observation, ...]:
    """
    What the lines say.

    Raises:
        FormatError: A line is no observation.
        ValueError: A line is no JSON.
    """
    return tuple(observation_from_json(json.loads(line)) for line in journal.splitlines())


def outcome_of_hit(before: Evidence, after: Evidence) -> Outcome | None:
    """
    How the launch ended whose process was killed: the first end that the journal learnt of afterwards.

    None where none followed.
    """
    for observation in read_observations(after.journal[len(before.journal) :]):
        if isinstance(observation, ColdLaunch):
            return Outcome.COMPLETED
        if isinstance(observation, HotEnded | ColdFailed):
            return observation.outcome
    return None


def _read(study: Path, num_measure: int) -> Evidence:
    windows: set[FoundWindow] = set()
    differences: dict[tuple[str, int], float] = {}
    whole: set[str] = set()
    stopping: set[str] = set()
    for path in _folders(study / "launches"):
        launch = path.name.removeprefix(".").removesuffix(".part")
        if launch.startswith("hot-"):
            found, new = _hot(path, launch)
            differences |= {(launch, number): difference for number, difference in new.items()}
        else:
            found = _cold(path, launch)
            whole |= {launch} if len(found) >= num_measure else set()
        windows |= set(found)
        if any(command.name is CommandName.STOP for command in CommandReader(path / "control").poll()):
            stopping.add(launch)
    journal = _whole_lines(study / "journal.jsonl")
    return Evidence(
        journal=journal,
        windows=frozenset(windows),
        differences=differences,
        whole_launches=frozenset(whole),
        stopping=frozenset(stopping - _ended(journal)),
    )


def _ended(journal: bytes) -> set[str]:
    ends = (item for item in read_observations(journal) if isinstance(item, HotEnded | ColdLaunch | ColdFailed))
    return {end.run_id for end in ends}


def _hot(path: Path, launch: str) -> tuple[list[FoundWindow], dict[int, float]]:
    logs = read_event_logs(path / "events")
    found = [
        FoundWindow(launch=launch, block=window.switch.block, end_ns=window.end_ns, num_tokens=window.num_tokens)
        for window in cut_windows(logs)
    ]
    _, blocks = hot_results(logs, launch=launch)
    return found, {block.number: block.difference for block in blocks}


def _cold(path: Path, launch: str) -> list[FoundWindow]:
    rows = build_windows(read_event_logs(path / "events"), steady_ns=None)
    return [
        FoundWindow(launch=launch, block=0, end_ns=row.end_ns, num_tokens=row.num_tokens)
        for row in rows
        if row.kind is WindowKind.MEASURE and row.num_tokens
    ]


def _folders(launches: Path) -> Iterable[Path]:
    return sorted(path for path in launches.iterdir() if path.is_dir()) if launches.exists() else ()


def _whole_lines(journal: Path) -> bytes:
    content = journal.read_bytes() if journal.exists() else b""
    return content[: content.rfind(b"\n") + 1]


def _is_whole(window: FoundWindow, before: Evidence) -> bool:
    return (
        (window.launch, window.block) in before.differences if window.block else window.launch in before.whole_launches
    )


def _is_told(window: FoundWindow, before: Evidence, result: Mapping[str, Any]) -> bool:
    """Whether the answer has the window's block, with the same difference, or names the launch as failed."""
    blocks: Sequence[Mapping[str, Any]] = result.get("blocks", ())
    holding = [block for block in blocks if window.launch in block["launches"]]
    if not window.block:
        failures: Sequence[str] = result.get("failures", ())
        return bool(holding) or any(text.startswith(f"{window.launch}: ") for text in failures)
    expected = before.differences[window.launch, window.block]
    return any(
        block["number"] == window.block
        and math.isclose(block["difference"], expected, rel_tol=0, abs_tol=DIFFERENCE_TOLERANCE)
        for block in holding
    )
