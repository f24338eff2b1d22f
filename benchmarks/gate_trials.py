"""
Trials of `flashprof gate`: what each measured and said, and what a fixed threshold on one run would have said.

A lane of `benchmarks.gate_real` keeps a line of JSON a trial; lines of many lanes and machines are read together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.gate import EQUAL_PACE, TOK_PER_S
from flashprof.store.from_json import from_json

MAX_REGRESSION = 0.03
"""What `flashprof gate` allows of itself, and the fixed threshold beside it."""
LANE_FILES = "lane-*.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A launch of base and one of head, close in time."""

    order: str
    """`AB` or `BA`: A is the base."""
    difference: float
    """Head − base, log tok/s."""
    base_log_tok_per_s: float
    length_s: float
    """Both launches' whole life."""
    disturbances: tuple[str, ...] = ()
    """Why the gate left it out; empty for one that counts."""

    @property
    def later_minus_earlier(self) -> float:
        """The difference by time instead of by arm: in an A/A trial all that there is."""
        return self.difference if self.order == "AB" else -self.difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One real gate."""

    kind: str
    """Of `benchmarks.gate_real.KINDS`."""
    number: int
    """It seeds the repository, the order of the launches and the training data."""
    lane: int
    num_lanes: int
    """How many were at work at the same time, each on cores of its own."""
    settings: tuple[str, ...] = ()
    """As `--set` had them: lengths of windows."""
    budget_s: float
    started: str
    hardware: str
    commit: str
    """Of FlashProf, and of the pipeline in the repository."""
    status: int
    """With which `flashprof gate` ended."""
    verdict: str = ""
    """Empty where it gave none."""
    is_failed: bool = False
    """The machinery failed."""
    reason: str = ""
    change: tuple[float, float, float] | None = None
    """Estimate, low and high of tok/s at 95 %."""
    at_equal_pace: tuple[float, float, float] | None = None
    """The same of tok/s at equal pace; None where the gate does not tell it, as before 2026-11-30 20:55."""
    pairs: tuple[Pair, ...] = ()
    spent_s: float = 0.0
    """Of measuring."""
    wall_s: float = 0.0
    """Of the whole command, by this call if it was called again."""

    @property
    def is_regression(self) -> bool:
        """Whether the change may not land."""
        return self.verdict == Verdict.REGRESSION


def read_result(printed: str) -> dict[str, Any]:
    """
    The fields of a trial that `flashprof gate --json` gives; none where it printed no result.

    Args:
        printed: Its standard output.
    """
    try:
        found = json.loads(printed)
    except ValueError:
        return {}
    if not isinstance(found, dict) or "verdict" not in found:
        return {}
    return {
        "verdict": found["verdict"],
        "is_failed": found["is_failed"],
        "reason": found["reason"],
        "change": _change(found["metrics"], TOK_PER_S),
        "at_equal_pace": _change(found["metrics"], EQUAL_PACE),
        "pairs": tuple(_pair(block) for block in (found["study"] or {}).get("blocks", ())),
        "spent_s": found["spent_s"],
    }


def _change(metrics: Iterable[Mapping[str, Any]], name: str) -> tuple[float, ...] | None:
    change = next((metric["change"] for metric in metrics if metric["threshold"]["metric"] == name), None)
    ends = None if change is None else tuple(change[end] for end in ("estimate", "low", "high"))
    # An end of an interval that is not finite yet is null, and then nothing can be said of it.
    return None if ends is None or None in ends else ends


def threshold_says(difference: float) -> bool:
    """Whether one launch of head after one of base is a regression to a fixed threshold, from the log difference."""
    return difference < math.log1p(-MAX_REGRESSION)


def first_difference(trial: Trial) -> float | None:
    """Of the first launches of base and head, by which a fixed threshold judges; None where there are none."""
    return trial.pairs[0].difference if trial.pairs else None


def read_lane(path: Path) -> list[Trial]:
    """The trials of one lane; none where the file is not there yet."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [from_json(Trial, json.loads(line), f"{path}:{number}") for number, line in enumerate(lines, start=1)]


def write_lane(path: Path, trials: Iterable[Trial]) -> None:
    """Write all trials of a lane anew: whoever is killed meanwhile leaves the lines that were there."""
    part = path.with_suffix(".part")
    part.write_text("".join(json.dumps(asdict(trial), allow_nan=False) + "\n" for trial in trials), encoding="utf-8")
    part.replace(path)


def read_trials(folders: Iterable[Path]) -> list[Trial]:
    """All trials beneath *folders*, each once though it was copied."""
    paths = (path for folder in folders for path in sorted(folder.rglob(LANE_FILES)))
    return list(dict.fromkeys(trial for path in paths for trial in read_lane(path)))


def _pair(block: Mapping[str, Any]) -> Pair:
    return Pair(
        order=block["order"],
        difference=block["difference"],
        base_log_tok_per_s=block["base_log_tok_per_s"],
        length_s=block["length_s"],
        disturbances=tuple(block["disturbances"]),
    )
