"""
What flame.js draws: the boxes of a flamegraph as parallel lists, small boxes left out, names fit to be shown.

Whatever a frame is called, its data are harmless: control characters, bidirectional marks and lone surrogates are
written as escapes, long names are cut, and a script element cannot be ended.
"""

from __future__ import annotations

import base64
import json
import math
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from flashprof.contracts.profiles import FrameId
from flashprof.report import figures
from flashprof.report.compare_sentences import plural
from flashprof.stats.flame_tree import FlameLane, FlameNode

PRUNE_SHARE = 0.001
"""Boxes below this share of their lane in both arms are a pixel wide at best: left out, and counted."""
MAX_NAME = 300
"""Characters of a name that are kept: the tooltip of a longer one would fill the screen."""
NUM_STEPS = 6
"""Intensities of a difference."""
PLAIN_BYTES = 4_000
"""Larger data are compressed, by 4 to 8 times."""

TORCH_PACKAGES = frozenset({"torch", "torchgen", "functorch", "triton", "torchvision"})
# fmt: off
LIBRARIES = frozenset({
    "accelerate", "click", "datasets", "deepspeed", "fsspec", "huggingface_hub", "lightning", "matplotlib", "megatron",
    "numpy", "pandas", "peft", "psutil", "pyarrow", "safetensors", "scipy", "sympy", "tokenizers", "tqdm",
    "transformer_engine", "transformers", "urllib3", "vllm", "yaml",
})
# fmt: on


class Origin(StrEnum):
    """Whose code a frame is; one colour each."""

    PHASE = "phase"
    OWN = "own"
    TORCH = "torch"
    LIBRARY = "library"
    STDLIB = "stdlib"
    NATIVE = "native"


ORIGIN_TITLES = MappingProxyType(
    {
        Origin.PHASE: "phases themselves",
        Origin.OWN: "own code",
        Origin.TORCH: "torch",
        Origin.LIBRARY: "other libraries",
        Origin.STDLIB: "standard library",
        Origin.NATIVE: "native or unknown",
    }
)


def origin_of(frame: FrameId) -> Origin:
    """Whose code *frame* is, by its file; samplers write paths from the package on."""
    if frame.is_phase:
        return Origin.PHASE
    path = frame.file.replace("\\", "/")
    if not path.endswith((".py", ".pyx")) and not path.startswith("<"):
        return Origin.NATIVE
    installed = re.search(r"(?:site|dist)-packages/(.*)", path)
    stdlib = re.search(r"/lib/python\d\.\d+/(.*)", path)
    within = installed or stdlib
    top = (within[1] if within else path).lstrip("./").split("/")[0].removesuffix(".py")
    if top in TORCH_PACKAGES:
        return Origin.TORCH
    if top in LIBRARIES or installed:
        return Origin.LIBRARY
    return Origin.STDLIB if stdlib or top in sys.stdlib_module_names or path.startswith("<frozen") else Origin.OWN


def shown(text: str) -> str:
    """*text* with escapes for what does not print or would turn its neighbours round, and cut in the middle."""
    if len(text) > MAX_NAME:
        text = f"{text[: MAX_NAME - 41]}…{text[-40:]}"
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shown_frame(frame: FrameId) -> str:
    """Its name; a phase with a mark."""
    return f"▸ {shown(frame.name)}" if frame.is_phase else shown(frame.name)


def place_of(frame: FrameId, line: int) -> str:
    """`file:line`; empty for a phase and where there is no file."""
    if frame.is_phase or not frame.file:
        return ""
    return f"{shown(frame.file)}:{line}" if line else shown(frame.file)


def flame_data(
    views: Mapping[str, Sequence[FlameLane]], *, names: tuple[str, str] = ("", ""), focus: str = ""
) -> dict[str, Any]:
    """
    All lanes as the script reads them.

    Nodes are parallel lists, a caller before its callees, because nested objects of a 100-frame stack meet the
    recursion limits of JSON readers. Frames are stored once.

    Args:
        views: What a lane's samples are of → lanes from `flame_tree`.
        names: How base and candidate are called.
        focus: Name or role of the lane that is shown first; empty for the first one.
    """
    frames: dict[tuple[FrameId, int], int] = {}
    lanes = [(title, lane) for title, of_view in views.items() for lane in of_view]
    drawn = [
        {"view": shown(title), **_lane_data(lane, frames, [shown(name) for name in names])} for title, lane in lanes
    ]
    opened = next((index for index, (_, lane) in enumerate(lanes) if focus in (lane.name, lane.role)), 0)
    return {
        "names": [shown(name) for name in names],
        "is_diff": any(lane.is_differential for _, lane in lanes),
        "opened": opened,
        "frames": {
            "name": [shown_frame(frame) for frame, _ in frames],
            "place": [place_of(frame, line) for frame, line in frames],
            "origin": [str(origin_of(frame)) for frame, _ in frames],
            "shade": [_shade(frame) for frame, _ in frames],
        },
        "lanes": drawn,
    }


def embed(data: dict[str, Any]) -> tuple[str, str]:
    """The text of a script element and its encoding, `json` or `zlib` (of JSON, in base64)."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    if len(text) > PLAIN_BYTES:
        return base64.b64encode(zlib.compress(text.encode(), 9)).decode(), "zlib"
    return text.replace("<", "\\u003c").replace(">", "\\u003e"), "json"


def _lane_data(lane: FlameLane, frames: dict[tuple[FrameId, int], int], names: Sequence[str]) -> dict[str, Any]:
    kept, parents = _kept(lane.nodes)
    data: dict[str, Any] = {
        "name": shown(lane.name),
        "is_time": lane.is_time,
        "facts": _facts(lane, names),
        "notes": _notes(lane, kept, names),
        "frame": [frames.setdefault((node.frame, node.line), len(frames)) for node in kept],
        "parent": parents,
        "base": [_short(node.base) for node in kept],
        "own": [_short(node.base_own) for node in kept],
        "samples": [node.num_samples[0] for node in kept],
    }
    if lane.is_differential:
        data |= {
            "candidate": [_short(node.candidate) for node in kept],
            "candidate_own": [_short(node.candidate_own) for node in kept],
            "candidate_samples": [node.num_samples[1] for node in kept],
            "half": [
                _short(node.difference.high - node.difference.estimate) if node.difference else 0 for node in kept
            ],
            "step": _steps(kept),
            "was": {index: shown(node.was.name) for index, node in enumerate(kept) if node.was},
            "has_interval": lane.nodes[0].difference is not None,
        }
    else:
        data["origins"] = _origins(lane)
    return data


def _facts(lane: FlameLane, names: Sequence[str]) -> str:
    """`drafter: base 133 µs a token → candidate 184 µs a token: +51.9 µs (95 %: …); 4 windows with 407 samples and`."""
    root = lane.nodes[0]
    arms = range(2 if lane.is_differential else 1)
    known = [plural(root.num_samples[arm], "sample") for arm in arms]
    if lane.is_time or lane.is_differential:
        known = [f"{plural(lane.num_windows[arm], 'window')} with {known[arm]}" for arm in arms]
    cost = ""
    if lane.is_time:
        costs = (root.base, root.candidate)
        cost = " → ".join(f"{names[arm]} {figures.time_text(costs[arm])} a token".strip() for arm in arms)
    if cost and root.difference:
        ends = (root.difference.estimate, root.difference.low, root.difference.high)
        change, low, high = (figures.signed(end, figures.time_text) for end in ends)
        cost += f": {change} (95 %: {low} to {high})"
    return f"{shown(lane.name)}: {'; '.join(filter(None, (cost, ' and '.join(known))))}."


def _notes(lane: FlameLane, kept: Sequence[FlameNode], names: Sequence[str]) -> dict[str, str]:
    """What the widths of either arm do not show."""
    num_pruned = len(lane.nodes) - len(kept)
    pruned = f"{plural(num_pruned, 'box')} below {figures.percent(PRUNE_SHARE)} of the lane left out."
    notes = [pruned if num_pruned else ""] * 2
    for arm, other in ((0, 1), (1, 0)) if lane.is_differential else ():
        num_only = sum(node.num_samples[other] > 0 == node.num_samples[arm] for node in kept)
        if num_only:
            notes[arm] += f" {plural(num_only, 'box')} only in {names[other]}: choose its widths to see them."
    return {"base": notes[0].strip(), "candidate": notes[1].strip()}


def _origins(lane: FlameLane) -> list[tuple[str, str, str]]:
    """Each origin with the share of the lane in which the innermost frame is its."""
    own = dict.fromkeys(Origin, 0.0)
    for node in lane.nodes[1:]:
        own[origin_of(node.frame)] += node.base_own
    whole = lane.nodes[0].base
    return [(str(one), title, figures.percent(own[one] / whole)) for one, title in ORIGIN_TITLES.items() if own[one]]


def _kept(nodes: Sequence[FlameNode]) -> tuple[list[FlameNode], list[int]]:
    """Boxes that are wide enough in either arm, with their parents' new indices; a callee is never wider."""
    place: dict[int, int] = {-1: -1}
    kept: list[FlameNode] = []
    parents: list[int] = []
    for index, node in enumerate(nodes):
        is_wide = node.base >= PRUNE_SHARE * nodes[0].base > 0 or node.candidate >= PRUNE_SHARE * nodes[0].candidate > 0
        if index == 0 or (is_wide and node.parent in place):
            place[index] = len(kept)
            kept.append(node)
            parents.append(place[node.parent])
    return kept, parents


def _steps(nodes: Sequence[FlameNode]) -> list[int]:
    """How strong each box's colour is, negative for a faster one; 0 within noise. The strongest is the whole change."""
    sizes = [abs(node.candidate - node.base) for node in nodes]
    largest = max(size for index, size in enumerate(sizes) if index == 0 or nodes[index].is_clear) or 1.0
    return [
        max(1, math.ceil(NUM_STEPS * math.sqrt(size / largest))) * (1 if node.candidate > node.base else -1)
        if node.is_clear
        else 0
        for node, size in zip(nodes, sizes, strict=True)
    ]


def _short(value: float) -> float:
    """Five digits: a ten-thousandth of the lane is less than a pixel."""
    return float(f"{value:.5g}")


def _shade(frame: FrameId) -> int:
    """0 to 7, the same for all frames of a file, in every graph."""
    return zlib.crc32((frame.file or frame.name).encode(errors="replace")) % 8
