"""The tables of a bisection, row by row, and what is drawn in them. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flashprof.contracts.search import CellInfo, Proof, SearchResult
from flashprof.report import bisect_sentences as sentences
from flashprof.report import figures
from flashprof.report.compare_sentences import change, num_decimals, span


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Characters of the drawings."""

    full: str
    empty: str
    point: str
    end: str


ASCII = Marks(full="#", empty=".", point="*", end="|")
UNICODE = Marks(full="█", empty="░", point="●", end="│")

BELIEF_TITLES = ("probability", "", "exactly these matter", "effects %")
CAUSE_TITLES = ("cause", "change %", "95 % interval", "of the drop")
PROOF_TITLES = ("switched", "answer", "tok/s", "change %", "interval", "blocks", "launches")
CELL_TITLES = ("cell", "launches", "readings", "tok/s")


def cause_rows(result: SearchResult) -> list[tuple[str, str, str, str]]:
    """Culprits, then gains: title, change, interval, share of the drop in log tok/s."""
    known, least = sentences.effects(result), sentences.tolerance(result)
    rows = []
    for cause in (*result.culprits, *result.gains):
        title, found = sentences.cause_title(result, cause), known.get(cause)
        if found is None:
            rows.append((title, figures.DASH, figures.DASH, figures.DASH))
            continue
        estimate = change(found.estimate, num_decimals(found, least))
        rows.append((title, estimate, span(found, least), _share(found.estimate, result)))
    return rows


def proof_row(proof: Proof) -> tuple[str, ...]:
    """Where it was switched, answer, tok/s before and after, change, interval, blocks, launches."""
    head = (sentences.proof_place(proof), sentences.proof_answer(proof), sentences.proof_rates(proof))
    item = proof.comparison
    if item is None:
        return (*head, figures.DASH, figures.DASH, "0", "0")
    least = item.rule.tolerance
    estimate = change(item.effect.estimate, num_decimals(item.effect, least))
    return (*head, estimate, span(item.effect, least), str(item.num_blocks), str(item.num_launches))


def belief_rows(result: SearchResult, *, width: int, marks: Marks) -> list[tuple[str, str, str, str]]:
    """Probability, bar, causes, effects; the likeliest first."""
    return [
        (
            figures.percent(belief.probability),
            bar(belief.probability, width=width, marks=marks),
            sentences.belief_title(result, belief),
            ", ".join(change(found.estimate) for found in belief.effects),
        )
        for belief in result.beliefs
    ]


def bar(share: float, *, width: int, marks: Marks) -> str:
    """A share of 0 to 1 as a bar; no share that is above 0 is drawn as none."""
    if not math.isfinite(share):
        return marks.empty * width
    inside = min(max(share, 0.0), 1.0)
    num_full = min(width, max(math.ceil(width * inside - 0.5), int(inside > 0)))
    return marks.full * num_full + marks.empty * (width - num_full)


def cell_row(info: CellInfo) -> tuple[str, str, str, str]:
    """Label, launches, readings, tok/s."""
    rate = math.nan if info.tok_per_s is None else info.tok_per_s
    label = info.label or sentences.shorten_ids(info.cell)
    return label, str(info.num_launches), str(info.num_readings), figures.rate(rate)


def in_order(result: SearchResult) -> list[CellInfo]:
    """Both ends, what was measured in between from fast to slow, then what has no number."""
    ends = [info for info in sentences.end_cells(result) if info is not None]
    rest = [info for info in result.cells if info not in ends]
    return [*ends, *sorted(rest, key=lambda info: math.inf if info.tok_per_s is None else -info.tok_per_s)]


def strips(result: SearchResult, *, width: int, marks: Marks) -> dict[str, str]:
    """Cell id → where it lies between the slowest cell (left) and the fastest (right); both ends are marked in each."""
    rates = {info.cell: info.tok_per_s for info in result.cells if sentences.is_number(info.tok_per_s)}
    if not rates:
        return {}
    low, reach = min(rates.values()), max(rates.values()) - min(rates.values())

    def column(rate: float) -> int:
        return round((width - 1) * (rate - low) / reach) if reach > 0 else width // 2

    ends = [column(rates[info.cell]) for info in sentences.end_cells(result) if info is not None and info.cell in rates]
    drawn = {}
    for cell, rate in rates.items():
        drawing = [marks.end if place in ends else " " for place in range(width)]
        drawing[column(rate)] = marks.point
        drawn[cell] = "".join(drawing).rstrip()
    return drawn


def _share(effect: float, result: SearchResult) -> str:
    """Of the drop, in logs, where effects add up; a gain's share is negative."""
    whole = result.drop.estimate if result.drop is not None else math.nan
    if not (-1 < whole < 0 and -1 < effect < math.inf):
        return figures.DASH
    return figures.percent(math.log1p(effect) / math.log1p(whole))
