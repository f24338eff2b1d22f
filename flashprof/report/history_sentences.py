"""What the history says in words: the same sentences for the console and for Markdown. Pure."""

from __future__ import annotations

import math

from flashprof.contracts.history import Change, ChangeStatus, History, HistoryGate, LaunchKind, Level, Series
from flashprof.contracts.results import Interval
from flashprof.report import figures
from flashprof.report.compare_sentences import change as change_pct
from flashprof.report.compare_sentences import level as level_text
from flashprof.report.compare_sentences import plural
from flashprof.report.site_text import clip, moment

COMMIT_DIGITS = 7
MAX_NOTE = 120
CHANGE_TITLES = ("since", "first run", "change %", "interval", "commits", "status")
GATE_TITLES = ("when", "gate", "verdict", "change %", "base", "head")


def headline(series: Series) -> str:
    """The line to read if only one is read: whether something is lost."""
    if series.standing is None:
        return f"no loss seen  {series.title}"
    return f"LOSS {pct(series.standing)}  {series.title}"


def facts(series: Series) -> str:
    """Which cell it is, and how many launches of what kind."""
    is_run = series.kind is LaunchKind.RUN
    count = (
        plural(len(series.launches), "run") if is_run else f"{plural(len(series.launches), 'launch')} ({series.kind})"
    )
    named = ", ".join(item.name for item in series.names)
    return f"cell {series.cell}, {count}{f'; baselines with a name: {named}' if named else ''}"


def standing(series: Series) -> str:
    """Today's level and what it is held against."""
    if series.standing is None:
        return f"level {_level(series.level)}"
    return f"today {_level(series.level)}; baseline {_level(series.baseline)}"


def remedies(series: Series) -> tuple[str, ...]:
    """The next commands where something is lost."""
    loss = next((change for change in series.changes if change.status is ChangeStatus.OPEN), None)
    if loss is None:
        return ()
    commits = [commit.partition("+")[0] for commit in loss.commits]
    bisect = (
        f"flashprof bisect --good {commits[0]} --bad {commits[1]}" if all(commits) and len(set(commits)) > 1 else ""
    )
    return tuple(filter(None, (bisect, f"flashprof history accept {loss.run_id} --why TEXT, if it is meant to be so")))


def change_cells(change: Change) -> tuple[str, ...]:
    """A change's row, as `CHANGE_TITLES` says."""
    return (
        moment(change.started).text,
        clip(change.run_id, 48),
        change_pct(change.effect.estimate),
        _span(change.effect),
        "..".join(commit[:COMMIT_DIGITS] for commit in change.commits if commit) or figures.DASH,
        str(change.status),
    )


def acknowledged(change: Change) -> str:
    """Who accepted it, and why; empty where nobody did."""
    word = change.acknowledgement
    if word is None:
        return ""
    why = clip(" ".join(word.why.split()), MAX_NOTE)
    return f"{word.run_id} accepted by {word.who}, {moment(word.at).text}: {why}"


def gate_cells(gate: HistoryGate) -> tuple[str, ...]:
    """A gate's row, as `GATE_TITLES` says."""
    return (
        moment(gate.at).text,
        gate.gate,
        "failed" if gate.is_failed else gate.verdict,
        figures.DASH if gate.change is None else change_pct(gate.change.estimate),
        clip(gate.base, 40),
        clip(gate.head, 40),
    )


def store(history: History) -> str:
    """Where it is kept, and how much."""
    return f"{plural(history.num_launches, 'launch')} in {history.path}"


def nothing(history: History) -> str:
    """What to say where there is no series; empty where there is one."""
    return "" if history.series else "no launch has been measured to its end yet"


def pct(effect: Interval) -> str:
    """A relative change with its interval."""
    return f"{change_pct(effect.estimate)} % ({level_text(effect)} {_span(effect)})"


def _level(level: Level) -> str:
    rate = level.tok_per_s
    span = f" ({figures.rate(rate.low)} to {figures.rate(rate.high)})" if math.isfinite(rate.high) else ""
    return f"{figures.rate(rate.estimate)} tok/s{span}, {plural(len(level.run_ids), 'run')} since {_day(level.since)}"


def _span(effect: Interval) -> str:
    if not math.isfinite(effect.high):
        return figures.DASH
    return f"{change_pct(effect.low)} to {change_pct(effect.high)} %"


def _day(iso: str) -> str:
    return moment(iso).text[:10]
