"""
Stack samples for other tools: folded stacks (flamegraph.pl, inferno) and speedscope's file format.

Formats: https://github.com/brendangregg/FlameGraph#2-fold-stacks, https://www.speedscope.app/file-format-schema.json.
A phase is a frame `phase mask` in both: what is below it ran within the phase.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flashprof.contracts.profiles import FrameId, StackCounts, StackView

SPEEDSCOPE_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_SEPARATORS = str.maketrans({";": ",", "\n": " ", "\r": " "})


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneProfile:
    """The samples of one thread name of one rank, over all profile windows of a run."""

    role: str
    rank: int
    thread: str = "main"
    view: StackView = StackView.ALL
    stacks: StackCounts
    lines: Mapping[FrameId, int] = field(default_factory=dict)
    """The line at which each frame was seen most."""

    @property
    def name(self) -> str:
        """`drafter 0`, `drafter 0/feeder`, with ` (gil)` for another view than all."""
        thread = "" if self.thread == "main" else f"/{self.thread}"
        view = "" if self.view is StackView.ALL else f" ({self.view})"
        return f"{self.role} {self.rank}{thread}{view}"


def folded_lines(lanes: Iterable[LaneProfile]) -> Iterator[str]:
    """
    One line a stack: `drafter 0;thread feeder;function (file);… samples`, in alphabetical order within a lane.

    Equal stacks are one line: what FlameGraph and inferno expect.
    """
    for lane in lanes:
        roots = [f"{lane.role} {lane.rank}", *([] if lane.thread == "main" else [f"thread {lane.thread}"])]
        named: Counter[str] = Counter()
        for frames, num_samples in _in_order(lane.stacks):
            named[";".join(part.translate(_SEPARATORS) for part in (*roots, *map(_label, frames)))] += num_samples
        yield from (f"{stack} {num_samples}\n" for stack, num_samples in named.items())


def speedscope_document(lanes: Sequence[LaneProfile], *, name: str, version: str) -> dict[str, Any]:
    """
    One sampled profile a lane; weights are samples.

    The samples have no order in time: they stand by stack, so that the view `Time Order` merges what `Left Heavy` does.

    Args:
        lanes: The one with the most distinct stacks is shown first.
        name: Of the run.
        version: Of FlashProf.
    """
    indices: dict[tuple[FrameId, int], int] = {}
    profiles = [_profile(lane, indices) for lane in lanes]
    richest = max(range(len(lanes)), key=lambda index: len(lanes[index].stacks), default=0)
    return {
        "$schema": SPEEDSCOPE_SCHEMA,
        "name": name,
        "exporter": f"flashprof {version}",
        "activeProfileIndex": richest,
        "shared": {"frames": [_frame(frame, line) for frame, line in indices]},
        "profiles": profiles,
    }


def speedscope_text(lanes: Sequence[LaneProfile], *, name: str, version: str) -> str:
    """The document of `speedscope_document` as JSON."""
    return json.dumps(speedscope_document(lanes, name=name, version=version), separators=(",", ":")) + "\n"


def _profile(lane: LaneProfile, indices: dict[tuple[FrameId, int], int]) -> dict[str, Any]:
    samples, weights = [], []
    for frames, num_samples in _in_order(lane.stacks):
        keys = [(frame, lane.lines.get(frame, 0)) for frame in frames]
        samples.append([indices.setdefault(key, len(indices)) for key in keys])
        weights.append(num_samples)
    return {
        "type": "sampled",
        "name": lane.name,
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def _frame(frame: FrameId, line: int) -> dict[str, Any]:
    if frame.is_phase:
        return {"name": f"phase {frame.name}"}
    file = {"file": frame.file} if frame.file else {}
    return {"name": frame.name, **file, **({"line": line} if line else {})}


def _label(frame: FrameId) -> str:
    if frame.is_phase:
        return f"phase {frame.name}"
    return f"{frame.name} ({frame.file})" if frame.file else frame.name


def _in_order(stacks: StackCounts) -> list[tuple[tuple[FrameId, ...], int]]:
    return sorted(stacks.items())
