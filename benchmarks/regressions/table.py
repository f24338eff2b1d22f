"""The suite's table, and the numbers that it comes down to."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.regressions.suite import Answer, Causes
from benchmarks.results_file import Goal, Measure
from flashprof.contracts.comparison import Verdict

NOT_NAMED = "–"
ID_LENGTH = 40
"""Of a full commit id, which the table cuts."""
COLUMNS = (
    ("case", 25), ("scenario", 8), ("expected", 24), ("named", 24), ("rank", 4), ("phase", 18), ("frame", 18),
    ("windows", 7), ("launches", 8), ("minutes", 7), ("verdict", 13), ("", 5),
)  # fmt: skip
"""Title and width."""


def header() -> str:
    """The columns' titles."""
    return _line([title for title, _ in COLUMNS])


def row(answer: Answer) -> str:
    """One case."""
    cells = (
        answer.case,
        answer.scenario,
        _names(answer.expected),
        _names(answer.culprits),
        NOT_NAMED if answer.rank is None else str(answer.rank),
        f"{'✓ ' * bool(answer.is_phase_right)}{answer.phase}" if answer.phase else NOT_NAMED,
        _frame(answer),
        str(answer.num_windows),
        str(answer.num_launches),
        f"{answer.minutes:.1f}",
        answer.verdict or f"failed ({answer.status})",
        _ending(answer),
    )
    return _line(cells)


def to_measures(answers: Sequence[Answer]) -> list[Measure]:
    """
    The goals are those of issue 5; what has no case in a partial run is left out.

    An answer with the right culprits and an open verdict counts as ranked first, and not as right.
    """
    positives = [answer for answer in answers if not answer.is_control]
    controls = [answer for answer in answers if answer.is_control]
    measures = []
    if positives:
        first = [answer.rank == 1 for answer in positives]
        measures += [
            _share("culprit_ranked_first", first, Goal(low=95)),
            _share("culprit_named_and_proved", [answer.is_right for answer in positives], None),
            _count("false_culprits_on_positives", sum(answer.num_false for answer in positives), Goal(high=0)),
            *_localised(positives),
        ]
    if controls:
        measures += [
            _count("false_culprits_on_controls", sum(answer.num_false for answer in controls), Goal(high=0)),
            _share("controls_called_no_regression", [answer.is_right for answer in controls], None),
        ]
    minutes = [answer.minutes for answer in answers]
    measures += [
        Measure(name="case_minutes_median", value=median(minutes), unit="min"),
        Measure(name="case_minutes_max", value=max(minutes), unit="min"),
        _count("failed_cases", sum(not answer.verdict for answer in answers), Goal(high=0)),
    ]
    return measures


def _localised(positives: Sequence[Answer]) -> list[Measure]:
    """Of those that name a phase, or frames."""
    measures = []
    phases = [bool(answer.is_phase_right) for answer in positives if answer.is_phase_right is not None]
    frames = [bool(answer.is_frame_right) for answer in positives if answer.is_frame_right is not None]
    explained = [100 * answer.explained_share for answer in positives if answer.explained_share is not None]
    if phases:
        measures.append(_share("phase_ranked_first", phases, Goal(low=95)))
    if frames:
        measures.append(_share("frame_in_top_three", frames, Goal(low=90)))
    if explained:
        measures.append(Measure(name="explained_by_clear_parts_median", value=median(explained), unit="%"))
    return measures


def _ending(answer: Answer) -> str:
    """Open: what is named is right, be it nothing, and the budget ended before it was shown."""
    if answer.is_right:
        return "ok"
    is_open = answer.verdict == Verdict.INCONCLUSIVE and answer.culprits == answer.expected
    return "open" if is_open else "WRONG"


def _frame(answer: Answer) -> str:
    """The first of those named, with a mark where the right one is among them."""
    return f"{'✓ ' * bool(answer.is_frame_right)}{answer.frames[0]}" if answer.frames else NOT_NAMED


def _share(name: str, are_right: Sequence[bool], goal: Goal | None) -> Measure:
    note = f"{sum(are_right)} of {len(are_right)} cases"
    return Measure(name=name, value=100 * sum(are_right) / len(are_right), unit="%", goal=goal, note=note)


def _count(name: str, value: int, goal: Goal) -> Measure:
    return Measure(name=name, value=value, unit="", goal=goal)


def _names(causes: Causes) -> str:
    return (
        ", ".join(" × ".join(member[:7] if len(member) == ID_LENGTH else member for member in c) for c in causes)
        or "none"
    )


def _line(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True)).rstrip()
