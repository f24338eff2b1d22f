"""What a comparison says in words: the same sentences for the console and for report.md. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flashprof.contracts.comparison import Block, Comparison, Method, PhaseChange, Standing, StudyResult, Verdict
from flashprof.contracts.results import Interval
from flashprof.report import figures

MAX_DECIMALS = 3
MAX_LEFT_OUT = 6
"""Left-out blocks that are given their reason one by one; more are counted."""


def is_failed(result: StudyResult) -> bool:
    """Whether launches failed and nothing was measured that could be compared; what the user stopped did not fail."""
    return (
        bool(result.failures)
        and not result.is_interrupted
        and not any(item.num_launches for item in result.comparisons)
    )


def answer(result: StudyResult) -> str:
    """The verdict with its effect: the line to read if only one is read."""
    verdict = "failed" if is_failed(result) else str(result.verdict)
    return f"{verdict}  {arms(result)}: {_effect(result)}"


def arms(result: StudyResult) -> str:
    """Which is compared with which."""
    return f"{result.base} → {result.candidate}"


def deciding(comparison: Comparison) -> str:
    """The interval that the verdict is read from, and the tolerance that it is held against."""
    rule = comparison.rule
    kind = "fixed sample" if comparison.method is Method.EXISTING else "however often one looks"
    tolerance = f"tolerance {figures.percent(rule.tolerance)}"
    return f"judged by {level(comparison.deciding)} {span(comparison.deciding, rule.tolerance)} ({kind}), {tolerance}"


def speaking(result: StudyResult) -> Comparison | None:
    """
    The comparison that the verdict comes from, None where there is none.

    The last one; but cold launches that stay inconclusive leave a screened verdict as it was.
    """
    agreeing = [item for item in result.comparisons if item.verdict is result.verdict]
    return next(reversed(agreeing or result.comparisons), None)


def one_line(item: Comparison) -> str:
    """Method, effect, what it was made of, verdict."""
    tolerance = item.rule.tolerance
    estimate = change(item.effect.estimate, num_decimals(item.effect, tolerance))
    return f"{item.method}: {estimate} % ({span(item.effect, tolerance)}), {_made(item)}: {item.verdict}"


def standing(result: StudyResult) -> str:
    """How far the verdict has come, launches being what confirms it; empty where nothing was compared."""
    shown = speaking(result)
    if shown is None:
        return ""
    if shown.method is Method.EXISTING:
        return f"from {plural(shown.num_launches, 'run')} measured earlier, each for itself"
    made = _made(shown)
    if result.standing is Standing.CONFIRMED:
        return f"confirmed by {made}"
    last = result.comparisons[-1]
    if shown.method is Method.HOT and last.method is Method.COLD:
        return f"screened in {made}; {_made(last)} that should confirm it stay {last.verdict}"
    return f"screened in {made}; not confirmed by cold launches" if shown.method is Method.HOT else f"from {made}"


def cost(result: StudyResult) -> str:
    """What was spent of what was allowed, and what an earlier call had spent; empty where nothing was launched."""
    if any(item.method is Method.EXISTING for item in result.comparisons):
        return ""
    budget_s = max((item.rule.budget_s for item in result.comparisons), default=0.0)
    allowed = f" of {minutes(budget_s)} allowed" if budget_s else ""
    reused = f"; {plural(result.num_reused, 'block')} measured by an earlier call" if result.num_reused else ""
    return f"measured for {minutes(result.spent_s)}{allowed}{reused}"


def interrupted(result: StudyResult) -> str:
    """That there may be more to come; empty where nobody stopped it."""
    return "interrupted: what was measured is kept, and the same command goes on" if result.is_interrupted else ""


def to_resolve(result: StudyResult) -> str:
    """What an open answer would still cost, and how to go on; empty for one that is resolved."""
    last = next(reversed(result.comparisons), None)
    if last is None or last.verdict is not Verdict.INCONCLUSIVE or is_failed(result):
        return ""
    if last.method is Method.EXISTING:
        return "to resolve: measure more runs, or flashprof calibrate; comparing toggles interleaves the launches"
    goal = "to resolve" if result.verdict is Verdict.INCONCLUSIVE else "to confirm"
    if last.to_resolve_s is None or not math.isfinite(last.to_resolve_s):
        return f"{goal}: how much longer it takes cannot be told; the same command with a larger --budget continues"
    # The budget counts what earlier calls have spent, too.
    total_min = math.ceil(max(result.spent_s + last.to_resolve_s, last.rule.budget_s) / 60)
    return f"{goal}: about {minutes(last.to_resolve_s)} more; the same command with --budget {total_min} continues"


def cell(result: StudyResult) -> str:
    """What both arms have in common, on one line."""
    return " · ".join(f"{name} {value}" for name, value in result.cell.items() if value)


def left_out(blocks: Sequence[Block]) -> tuple[str, ...]:
    """Blocks that do not count, each with its reason."""
    chosen = [block for block in blocks if block.disturbances]
    lines = [
        f"{block.method} block {block.number} left out: {'; '.join(dict.fromkeys(block.disturbances))}"
        for block in chosen[:MAX_LEFT_OUT]
    ]
    rest = len(chosen) - len(lines)
    return (*lines, f"and {plural(rest, 'more block')} left out") if rest else tuple(lines)


def phases(comparison: Comparison) -> str:
    """How many phases changed, and how that was judged; empty where phases were not compared."""
    if not comparison.phases:
        return ""
    changed = sum(phase.is_changed for phase in comparison.phases)
    who = f"{plural(changed, 'phase')} of {len(comparison.phases)} changed" if changed else "no phase changed"
    return f"{who}; among those named, at most 5 % in expectation are no changes"


def by_weight(changes: Sequence[PhaseChange]) -> list[PhaseChange]:
    """Changed phases first, the largest change before the smaller ones."""
    return sorted(changes, key=lambda item: (not item.is_changed, -_size(item.difference.estimate)))


def with_phases(comparisons: Sequence[Comparison]) -> Comparison | None:
    """The last comparison that knows phases; cold launches confirm the total, and may not have looked at them."""
    return next((item for item in reversed(comparisons) if item.phases), None)


def phase_cells(phase: PhaseChange) -> tuple[str, str, str, str, str, str]:
    """Role, phase, kind, the base's time, the change and its interval, in µs a token."""
    difference = phase.difference
    digits = min(_num_digits(difference.low), _num_digits(difference.high))
    change_us, low, high = (
        _microseconds(ns, digits, sign="+") for ns in (difference.estimate, difference.low, difference.high)
    )
    base = _microseconds(phase.base_ns_per_token, _num_digits(phase.base_ns_per_token))
    return phase.role, phase.phase, phase.kind, base, change_us, f"{low} to {high}"


def notes(result: StudyResult) -> tuple[str, ...]:
    """The study's notes, then those of its comparisons, each once."""
    return tuple(dict.fromkeys((*result.notes, *(note for item in result.comparisons for note in item.notes))))


def candidate_tok_per_s(comparison: Comparison) -> float:
    """What the base's tok/s become."""
    return comparison.base_tok_per_s * (1 + comparison.effect.estimate)


def block_change(block: Block) -> float:
    """A block's difference as a relative change of tok/s."""
    return math.expm1(block.difference) if math.isfinite(block.difference) else math.nan


def change(share: float, num_decimals: int = 1) -> str:
    """A relative change with its sign, as a percentage."""
    if not math.isfinite(share):
        return figures.DASH
    text = f"{100 * share:+.{num_decimals}f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


def span(interval: Interval, tolerance: float) -> str:
    """Both ends of an interval of relative changes."""
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return "no bound yet"
    digits = num_decimals(interval, tolerance)
    return f"{change(interval.low, digits)} to {change(interval.high, digits)} %"


def num_decimals(interval: Interval, tolerance: float) -> int:
    """As few as keep both ends apart from 0 and from −tolerance: rounding must not contradict the verdict."""
    ends = [end for end in (interval.low, interval.high) if math.isfinite(end)]
    marks = (0.0, -tolerance)
    for digits in range(1, MAX_DECIMALS):
        if all(round(100 * end, digits) != round(100 * mark, digits) for end in ends for mark in marks):
            return digits
    return MAX_DECIMALS


def level(interval: Interval) -> str:
    """`95 %:`, without decimals that say nothing."""
    return f"{100 * interval.level:.6g} %:"


def minutes(length_s: float) -> str:
    """Seconds below two minutes, else minutes."""
    if not math.isfinite(length_s):
        return figures.DASH
    return f"{length_s:.0f} s" if length_s < 119.5 else f"{length_s / 60:,.1f} min"


def plural(count: int, noun: str) -> str:
    """The count with its noun."""
    ending = "" if count == 1 else "es" if noun.endswith(("ch", "x")) else "s"
    return f"{count:,} {noun}{ending}"


def _made(item: Comparison) -> str:
    counts = ((item.num_launches, "launch"), (item.num_blocks, "block"), (item.num_windows, "window"))
    return ", ".join(plural(count, noun) for count, noun in counts)


def _effect(result: StudyResult) -> str:
    shown = speaking(result)
    if is_failed(result):
        return "no answer: launches failed"
    if shown is None:
        return "nothing was measured"
    tolerance, effect = shown.rule.tolerance, shown.effect
    if not math.isfinite(effect.estimate):
        return "the effect is not known"
    estimate = change(effect.estimate, num_decimals(effect, tolerance))
    rates = f"{figures.rate(shown.base_tok_per_s)} → {figures.rate(candidate_tok_per_s(shown))} tok/s"
    return f"{estimate} % tok/s ({level(effect)} {span(effect, tolerance)}), {rates}"


def _num_digits(ns: float) -> int:
    """Decimals that a time in µs needs for about three digits."""
    return 1 if abs(ns) >= 9_995 else 2 if abs(ns) >= 99.5 else 3


def _microseconds(ns: float, num_digits: int, *, sign: str = "") -> str:
    if not math.isfinite(ns):
        return figures.DASH
    text = f"{ns / 1e3:{sign},.{num_digits}f}"
    return text.lstrip("+-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def _size(value: float) -> float:
    return abs(value) if math.isfinite(value) else 0.0
