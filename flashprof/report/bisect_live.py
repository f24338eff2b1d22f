"""A search while it goes on: a panel of a few lines for a terminal, a line now and then for a log. Pure."""

from __future__ import annotations

from flashprof.contracts.search import SearchLook
from flashprof.report import figures
from flashprof.report.bisect_rows import ASCII, Marks, bar
from flashprof.report.bisect_sentences import causes_name, shorten_ids
from flashprof.report.compare_sentences import minutes, plural

NUM_BARS = 3
BAR_WIDTH = 20
TOLD_READINGS = 16
"""A log tells of readings 1, 2, 4, 8, and then of every so many: they come every few seconds, for minutes."""


def panel(look: SearchLook, *, width: int, marks: Marks = ASCII) -> tuple[str, ...]:
    """
    The leading hypotheses as bars, what comes next and why, what was spent and is to come.

    Args:
        look: What is believed.
        width: Columns; longer lines are cut.
        marks: Characters of the bars.
    """
    told = [
        f"{bar(belief.probability, width=BAR_WIDTH, marks=marks)} {figures.percent(belief.probability):>6}"
        f"  {causes_name(belief.causes)}"
        for belief in look.beliefs[:NUM_BARS]
    ]
    return tuple(_cut(text, width) for text in (*told, _following(look), _cost(look)) if text)


def line(look: SearchLook) -> str:
    """All of it in one line, for a log."""
    leading = [
        f"{causes_name(belief.causes)} {figures.percent(belief.probability)}" for belief in look.beliefs[:NUM_BARS]
    ]
    return "; ".join(part for part in (", ".join(leading), _cost(look), _following(look)) if part)


def is_due(num_readings: int) -> bool:
    """Whether a log is told after so many readings."""
    return num_readings in (1, 2, 4, 8) or (num_readings > 0 and num_readings % TOLD_READINGS == 0)


def _following(look: SearchLook) -> str:
    if not look.next_cell:
        return ""
    why = f": {shorten_ids(look.why)}" if look.why else ""
    return f"next {shorten_ids(look.next_cell)}{why}"


def _cost(look: SearchLook) -> str:
    made = f"{plural(look.num_readings, 'reading')} in {plural(look.num_launches, 'launch')}"
    to_come = "" if look.to_come_s is None else f", about {minutes(look.to_come_s)} to come"
    return f"{made}, {minutes(look.spent_s)}{to_come}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"
