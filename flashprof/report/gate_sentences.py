"""What a gate says in words: the same sentences for console, step summary, comment, annotations and JUnit. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.gate import EQUAL_PACE, PHASE, TOK_PER_S, GateMode, GateResult, MetricVerdict
from flashprof.contracts.localisation import FrameChange, Localisation
from flashprof.contracts.results import Interval
from flashprof.report import compare_sentences, figures, localisation_sentences
from flashprof.report.compare_sentences import change, minutes, num_decimals, plural
from flashprof.report.site_text import SHORT_COMMIT

METRIC_TITLES = ("metric", "base → head", "change %", "95 % interval", "allowed", "verdict")
MODES = MappingProxyType(
    {
        GateMode.INTERLEAVED: "base and head were launched in turn, on this machine, in this job",
        GateMode.STORED: "head was launched now, the baseline was measured earlier in the same cell",
    }
)
NO_ANSWER = "no answer about speed: the measuring failed, which is no regression"
MAX_ALSO = 4
"""Metrics that the answer names beside the first."""


class Ending(StrEnum):
    """How a gate ended; the machinery's failure is neither a pass nor a fail."""

    PASS = "pass"  # noqa: S105, a verdict
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    FAILED = "failed to measure"
    INTERRUPTED = "interrupted"


ENDINGS = MappingProxyType(
    {
        Verdict.NO_REGRESSION: Ending.PASS,
        Verdict.REGRESSION: Ending.FAIL,
        Verdict.INCONCLUSIVE: Ending.INCONCLUSIVE,
    }
)


def ending(result: GateResult) -> Ending:
    """The word for the whole."""
    if result.is_interrupted:
        return Ending.INTERRUPTED
    return Ending.FAILED if result.is_failed else ENDINGS[result.verdict]


def answer(result: GateResult) -> str:
    """The verdict with the metric that it is about: the line to read if only one is read."""
    return f"{ending(result)}  {result.base} → {result.head}: {essence(result)}"


def essence(result: GateResult) -> str:
    """The metric that the verdict is about, its change, and what is allowed."""
    if ending(result) is Ending.FAILED:
        return NO_ANSWER
    told = speaking(result)
    if told is None:
        return "nothing was measured"
    alike = [metric for metric in result.metrics if metric.verdict is result.verdict]
    also = ", ".join(name_of(metric) for metric in alike[1 : 1 + MAX_ALSO])
    is_fail = ending(result) is Ending.FAIL
    return f"{one_line(told)}{f'; {also} too' if also and is_fail else ''}"


def speaking(result: GateResult) -> MetricVerdict | None:
    """The first metric that the verdict comes from, None where there is none."""
    alike = [metric for metric in result.metrics if metric.verdict is result.verdict]
    return next(iter(alike or result.metrics), None)


def reason(result: GateResult) -> str:
    """Why the verdict is what it is, with the interval that it was read from."""
    told = speaking(result)
    return decided(told) if told is not None and told.reason == result.reason else result.reason


def other_reasons(result: GateResult) -> list[str]:
    """The same for each further metric that did not pass."""
    rest = [metric for metric in result.metrics if metric.verdict is not Verdict.NO_REGRESSION]
    told = result.reason
    return [f"{name_of(metric)}: {decided(metric)}" for metric in rest if metric.reason != told]


def one_line(metric: MetricVerdict) -> str:
    """`tok/s −5.2 % (95 %: −6.1 to −4.3 %), allowed −3 %`."""
    found = metric.change
    if found is None or not math.isfinite(found.estimate):
        return f"{name_of(metric)} was not measured"
    ends = f"{compare_sentences.level(found)} {span(metric, found)}"
    return f"{name_of(metric)} {change(found.estimate, _digits(metric, found))} % ({ends}), allowed {allowed(metric)}"


def metric_row(metric: MetricVerdict) -> tuple[str, ...]:
    """Its cells under `METRIC_TITLES`."""
    found = metric.change
    return (
        name_of(metric),
        f"{level(metric.base, metric.unit)} → {level(metric.head, metric.unit)}",
        figures.DASH if found is None else change(found.estimate, _digits(metric, found)),
        figures.DASH if found is None else span(metric, found),
        allowed(metric),
        word_of(metric),
    )


def word_of(metric: MetricVerdict) -> str:
    """Its verdict, in a gate's words."""
    return "not measured" if metric.change is None else str(ENDINGS[metric.verdict])


def decided(metric: MetricVerdict) -> str:
    """Why its verdict is what it is, and from which interval that was read."""
    if metric.comparison is None:
        return metric.reason
    found = metric.comparison.deciding
    return f"{metric.reason} (judged by {compare_sentences.level(found)} {span(metric, found)})"


def name_of(metric: MetricVerdict) -> str:
    """`tok/s`, `start-up`, `drafter mask`."""
    return metric.threshold.metric.removeprefix(PHASE)


def allowed(metric: MetricVerdict) -> str:
    """How far it may change for the worse: `−3 %` of tok/s, `+10 %` of what should be small."""
    sign = "−" if is_bigger_better(metric) else "+"
    return f"{sign}{100 * metric.threshold.max_regression:g} %"


def is_bigger_better(metric: MetricVerdict) -> bool:
    """Of tok/s, at whatever pace."""
    return metric.threshold.metric in (TOK_PER_S, EQUAL_PACE)


def span(metric: MetricVerdict, found: Interval) -> str:
    """Both ends, rounded so that they do not touch 0 or what is allowed."""
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return "no bound yet"
    digits = _digits(metric, found)
    return f"{change(found.low, digits)} to {change(found.high, digits)} %"


def level(value: float, unit: str) -> str:
    """A metric's value with its unit: rates in tok/s, bytes in GiB or MiB, times a token in what suits."""
    if not math.isfinite(value):
        return figures.DASH
    if unit == "tok/s":
        return f"{figures.rate(value)} tok/s"
    if unit == "bytes":
        gib, mib = value / 2**30, value / 2**20
        return f"{figures.amount(gib)} GiB" if abs(gib) >= 1 else f"{figures.amount(mib)} MiB"
    if unit.startswith("ns"):
        return f"{figures.time_text(value)}{unit.removeprefix('ns')}"
    return f"{figures.amount(value)} {unit}".rstrip()


def where(result: GateResult) -> str:
    """Where a regression lies; empty where there is none to localise."""
    if result.localisation is not None:
        return localisation_sentences.headline(result.localisation)
    return localisation_sentences.missing(is_shown=True) if ending(result) is Ending.FAIL else ""


def culprit(result: GateResult) -> str:
    """The commit that a bisection proved; empty where none was looked for."""
    return f"culprit: commit {result.culprit[:SHORT_COMMIT]}, found and proved by bisection" if result.culprit else ""


def frames(localisation: Localisation | None, most: int) -> list[FrameChange]:
    """Clear frames that went the way of the change: those that the headline names before the others."""
    if localisation is None:
        return []
    named = localisation_sentences.named_parts(localisation)
    culprits = [localisation_sentences.culprit_frame(localisation, part) for part in named]
    sign = localisation.difference.estimate
    others = (frame for frame in localisation.frames if frame.is_clear and frame.own.estimate * sign > 0)
    return list(dict.fromkeys((*(frame for frame in culprits if frame), *others)))[:most]


def mode(result: GateResult) -> str:
    """What head was compared with, and how."""
    return MODES[result.mode]


def cost(result: GateResult) -> str:
    """What was spent of what was allowed, and on how many launches."""
    if not math.isfinite(result.spent_s):
        return ""
    if result.study is None or not result.study.comparisons:
        return f"measured for {minutes(result.spent_s)}"
    last = result.study.comparisons[-1]
    made = f"{plural(last.num_launches, 'launch')}, {plural(last.num_blocks, 'block')}"
    # Launches that explain, and a bisection, have budgets of their own.
    more = f"; {minutes(result.spent_s)} in all" if result.spent_s > result.study.spent_s + 1 else ""
    return f"{compare_sentences.cost(result.study)}: {made}{more}"


def interrupted(result: GateResult) -> str:
    """That there may be more to come; empty where nobody stopped it."""
    return "interrupted: what was measured is kept, and the same command goes on" if result.is_interrupted else ""


def to_resolve(result: GateResult) -> str:
    """What an open answer would still cost, and how to go on; empty for one that is not open."""
    if ending(result) is not Ending.INCONCLUSIVE:
        return ""
    found = [metric.comparison for metric in result.metrics if metric.verdict is Verdict.INCONCLUSIVE]
    times_s = [item.to_resolve_s for item in found if item is not None and item.to_resolve_s is not None]
    if not times_s or not all(map(math.isfinite, (*times_s, result.spent_s))):
        return "to be sure: how much longer it takes cannot be told; the same command with a larger --budget continues"
    # The budget counts what was spent already, too.
    total_min = math.ceil((result.spent_s + max(times_s)) / 60)
    return f"to be sure: about {minutes(max(times_s))} more; the same command with --budget {total_min}m continues"


def next_step(result: GateResult) -> tuple[str, str]:
    """What to type now, and what for; both empty where there is nothing to type."""
    match ending(result):
        case Ending.FAILED:
            return "flashprof doctor", "says what this machine can measure; what a launch printed is in its run folder"
        case Ending.FAIL if _short(result.culprit):
            return f"git show {_short(result.culprit)}", "shows what it changed"
        case Ending.FAIL if _has_range(result):
            commits = f"{_short(result.base_commit)}..{_short(result.head_commit)}"
            return f"flashprof bisect --commits {commits}", "names the commit"
    return "", ""


def cell(result: GateResult) -> str:
    """What base and head have in common, on one line."""
    return " · ".join(f"{name} {value}" for name, value in result.cell.items() if value)


def failures(result: GateResult, most: int) -> Iterator[str]:
    """Launches that failed, the first of them one by one."""
    yield from (f"failed: {failure}" for failure in result.failures[:most])
    rest = len(result.failures) - most
    if rest > 0:
        yield f"and {plural(rest, 'more failure')}, in report.md"


def notes(result: GateResult) -> Sequence[str]:
    """The gate's notes, then those of what it was read from, each once."""
    inner = () if result.study is None else compare_sentences.notes(result.study)
    return tuple(dict.fromkeys((*result.notes, *inner)))


def _digits(metric: MetricVerdict, found: Interval) -> int:
    """As few as keep the estimate and both ends apart from 0 and from what is allowed."""
    limit = metric.threshold.max_regression
    # `num_decimals` looks at −tolerance: what should be small may change by +limit.
    tolerance = limit if is_bigger_better(metric) else -limit
    alone = replace(found, low=found.estimate, high=found.estimate)
    return max(num_decimals(found, tolerance), num_decimals(alone, tolerance))


def _has_range(result: GateResult) -> bool:
    commits = {_short(result.base_commit), _short(result.head_commit)} - {""}
    return result.mode is GateMode.INTERLEAVED and len(commits) == 2


def _short(commit: str) -> str:
    """Empty for what is no commit: it becomes a part of a command."""
    return commit[:SHORT_COMMIT] if re.fullmatch("[0-9a-f]{7,64}", commit) else ""
