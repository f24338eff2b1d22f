"""
A gate for programs: what `flashprof gate --json` prints, and entries for github-action-benchmark's dashboards.

Format history
    1  2026-11  GateResult as it is, but for paths, which are an object
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from flashprof.contracts.gate import GateResult, MetricVerdict
from flashprof.report import gate_sentences as sentences
from flashprof.report.gate_text import plain

FORMAT = "flashprof-gate-result"
VERSION = 1
_SURROGATE = re.compile("[\ud800-\udfff]")


def gate_to_json(result: GateResult) -> str:
    """One JSON document; a number that is not finite becomes null."""
    document = {"format": FORMAT, "version": VERSION, **asdict(result), "paths": dict(result.paths)}
    # Once through JSON: `parse_constant` is asked for each NaN and infinity.
    return _text(json.loads(json.dumps(document), parse_constant=lambda _: None))


def bigger_is_better(result: GateResult) -> str:
    """tok/s of head for `tool: customBiggerIsBetter`; no entry where nothing was measured."""
    return _text([_entry(metric, result) for metric in measured(result) if sentences.is_bigger_better(metric)])


def smaller_is_better(result: GateResult) -> str:
    """Start-up, memory, and phases of head for `tool: customSmallerIsBetter`."""
    return _text([_entry(metric, result) for metric in measured(result) if not sentences.is_bigger_better(metric)])


def measured(result: GateResult) -> Iterator[MetricVerdict]:
    """Metrics with a number; none of a gate whose machinery failed, or a broken night would be a baseline."""
    if not result.is_failed:
        yield from (it for it in result.metrics if it.change is not None and math.isfinite(it.head))


def _entry(metric: MetricVerdict, result: GateResult) -> dict[str, Any]:
    half = _half_width(metric)
    extra = (sentences.one_line(metric), f"{result.base} → {result.head}", sentences.cell(result))
    return {
        "name": plain(sentences.name_of(metric)) or "unnamed",
        "unit": plain(metric.unit) or "1",
        "value": metric.head,
        # The action reads a number behind the sign, without separators.
        **({"range": f"± {half:.6g}"} if half is not None else {}),
        "extra": "\n".join(plain(line) for line in extra if line),
    }


def _half_width(metric: MetricVerdict) -> float | None:
    """Of the change's interval, in the metric's unit; None where it has no ends."""
    assert metric.change is not None
    half = abs(metric.base) * (metric.change.high - metric.change.low) / 2
    return half if math.isfinite(half) else None


def _text(document: Any) -> str:
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    # File names may hold bytes that are no text, and UTF-8 cannot.
    return _SURROGATE.sub("\ufffd", text) + "\n"
