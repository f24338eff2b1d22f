"""
A gate for GitLab: a metrics report in OpenMetrics text, and Code Quality JSON, which marks lines in a merge request.

Formats: https://docs.gitlab.com/ci/testing/metrics_reports and https://docs.gitlab.com/ci/testing/code_quality.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.gate import EQUAL_PACE, MEMORY, START_UP, TOK_PER_S, GateResult, MetricVerdict
from flashprof.report import figures
from flashprof.report import gate_sentences as sentences
from flashprof.report.gate_json import measured
from flashprof.report.gate_sentences import Ending
from flashprof.report.gate_sources import Sources
from flashprof.report.gate_text import plain

FAMILIES = MappingProxyType(
    {
        TOK_PER_S: ("flashprof_tokens_per_second", "Tokens a second of head."),
        EQUAL_PACE: (
            "flashprof_equal_pace_tokens_per_second",
            "The same, had head's launches drawn the pace of base's.",
        ),
        START_UP: ("flashprof_start_up_seconds", "From launch to the end of the first training step of head."),
        MEMORY: ("flashprof_memory_bytes", "Most memory that head held."),
    }
)
PHASE_FAMILY = ("flashprof_phase_seconds_per_token", "Own time of a phase of head.")
CHANGE = ("flashprof_change_ratio", "Relative change from base to head.")
ALLOWED = ("flashprof_allowed_ratio", "How far it may change for the worse.")
REGRESSION = ("flashprof_regression", "1 where the change is shown, and larger than allowed.")
SECONDS = MappingProxyType({"ns": 1e-9, "µs": 1e-6, "ms": 1e-3})
CHECK = "flashprof-gate"
MAX_FRAMES = 10
MAX_DESCRIPTION = 800


def render_metrics(result: GateResult) -> str:
    """OpenMetrics text: levels of head, changes, what is allowed; no sample where nothing was measured."""
    families: dict[tuple[str, str], list[str]] = {}
    for metric in measured(result):
        for family, labels, value in _samples(metric):
            families.setdefault(family, []).append(f"{family[0]}{labels} {value:.6g}")
    lines = [
        line
        for (name, help_text), samples in families.items()
        for line in (f"# TYPE {name} gauge", f"# HELP {name} {help_text}", *dict.fromkeys(samples))
    ]
    return "\n".join((*lines, "# EOF")) + "\n"


def render_code_quality(result: GateResult, sources: Sources) -> str:
    """Frames of a regression that are lines of the repository; an empty list otherwise."""
    found = sentences.frames(result.localisation, MAX_FRAMES) if sentences.ending(result) is Ending.FAIL else []
    issues: dict[str, dict[str, Any]] = {}
    for place, frame in ((sources.place(frame), frame) for frame in found):
        if place is None:
            continue
        # Without line and numbers: the same finding at the next push is the same issue.
        key = "\0".join((CHECK, place.path, frame.role, frame.phase, frame.name))
        print_id = hashlib.sha256(key.encode(errors="replace")).hexdigest()
        change = figures.signed(frame.own.estimate, figures.time_text)
        issues[print_id] = {
            "description": plain(f"{frame.name}: {change} a token; {sentences.essence(result)}", MAX_DESCRIPTION),
            "check_name": CHECK,
            "fingerprint": print_id,
            "severity": "minor" if issues else "major",
            "location": {"path": place.path, "lines": {"begin": place.line}},
        }
    return json.dumps(list(issues.values()), indent=2, ensure_ascii=False) + "\n"


def _samples(metric: MetricVerdict) -> Iterator[tuple[tuple[str, str], str, float]]:
    name = metric.threshold.metric
    family = FAMILIES.get(name, PHASE_FAMILY)
    is_time = family not in (FAMILIES[TOK_PER_S], FAMILIES[EQUAL_PACE], FAMILIES[MEMORY])
    unit_s = SECONDS.get(metric.unit.split(" ")[0].split("/")[0], 1.0) if is_time else 1.0
    yield family, _labels("phase", sentences.name_of(metric)) if family is PHASE_FAMILY else "", metric.head * unit_s
    labels = _labels("metric", sentences.name_of(metric))
    if metric.change is not None and math.isfinite(metric.change.estimate):
        yield CHANGE, labels, metric.change.estimate
    yield ALLOWED, labels, metric.threshold.max_regression
    yield REGRESSION, labels, float(metric.verdict is Verdict.REGRESSION)


def _labels(name: str, value: str) -> str:
    """GitLab splits lines as a shell does, and cuts them at `#`: a value keeps to letters, digits and a few signs."""
    return f'{{{name}="{re.sub(r"[^A-Za-z0-9_./:+-]+", "_", value)}"}}'
