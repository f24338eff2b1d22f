"""Tables and measures of `benchmarks.bisect_simulation`, from the rows of its trials. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from benchmarks.bisect_worlds import GAUSSIAN
from benchmarks.results_file import Goal, Measure
from flashprof.stats.power import share_of

Row = Mapping[str, Any]
Cases = Mapping[tuple[str, ...], Sequence[Row]]
"""(study, kind, case, noise) → rows."""

COMMIT_GOALS = {("17", "gauss_2"): (99.0, 12.0), ("17", "gauss_5"): (99.0, 15.0), ("5", "gauss_2"): (95.0, 35.0)}
"""Right in so many per cent, in so many windows: the goals of the table of published methods."""
TOGGLE_GOALS = {
    ("one", "gauss_2"): 99.0,
    ("one", "gauss_5"): 99.0,
    ("two", "gauss_2"): 95.0,
    ("two", "gauss_5"): 90.0,
    ("pair", "gauss_2"): 95.0,
    ("pair", "gauss_5"): 90.0,
}
"""Exact in so many per cent within 24 windows."""
WRONG = Goal(high=5.0)
RIGHT = Goal(low=93.0, high=97.0)
SAVED = Goal(low=5.0)
STATED_LOW, STATED_HIGH = 0.93, 0.97


def table_lines(cases: Cases) -> Iterator[str]:
    """Right / windows: a row a method, a column a case."""
    for study in ("commits", "toggles"):
        own = {key[2:]: rows for key, rows in cases.items() if key[0] == study}
        if not own:
            continue
        yield ""
        yield f"{study}: right / windows" + (
            "; for flashprof a pair and two toggles differ" if study == "toggles" else ""
        )
        heads = [" ".join(key) for key in own]
        yield f"{'':22}" + "".join(f"{head:>20}" for head in heads)
        methods = dict.fromkeys(row["method"] for rows in own.values() for row in rows)
        for method in methods:
            cells = [_cell([row for row in rows if row["method"] == method]) for rows in own.values()]
            yield f"{method:22}" + "".join(f"{cell:>20}" for cell in cells)
    yield ""


def bisect_measures(cases: Cases) -> Iterator[Measure]:
    """All measures of what was simulated."""
    makers = {"commits": _compared, "toggles": _compared, "beliefs": _beliefs}
    for (study, kind, case, noise), rows in cases.items():
        if study in makers:
            yield from makers[study](kind, case, noise, rows)
    for kind in ("toggles", "commits"):
        proofs = [row for key, rows in cases.items() if key[:2] == ("proofs", kind) for row in rows]
        if proofs:
            yield from _proofs(kind, proofs)


def is_right(row: Row) -> bool:
    """What counts: FlashProf must tell a pair from two toggles, others need only name the toggles."""
    return bool(row["is_exact"] if row["method"].startswith("flashprof") else row["is_right"])


def _cell(rows: Sequence[Row]) -> str:
    return f"{fmean(map(is_right, rows)):.2f} / {fmean(row['windows'] for row in rows):.1f}"


def _compared(kind: str, case: str, noise: str, rows: Sequence[Row]) -> Iterator[Measure]:
    place = f"{kind}_{case}{'_pct' * (kind == 'commits')}_{noise}"
    low, high = COMMIT_GOALS.get((case, noise), (None, None))
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        goal = low if method == "flashprof" else None
        if method == "flashprof_24":
            goal = TOGGLE_GOALS.get((case, noise))
        yield _share(f"{place}_{method}", [is_right(row) for row in own], None if goal is None else Goal(low=goal), own)
    own = [row for row in rows if row["method"] == "flashprof"]
    windows = [row["windows"] for row in own]
    yield Measure(
        name=f"{place}_flashprof_windows",
        value=fmean(windows),
        unit="windows",
        goal=None if high is None else Goal(high=high),
        note=f"median {median(windows):g}, most {max(windows)}; inconclusive {_num_open(own)} of {len(own)}",
    )
    wrong = [row["is_named"] and not row["is_exact"] for row in own]
    yield _share(f"{place}_flashprof_wrong", wrong, WRONG if noise.startswith(GAUSSIAN) else None, own)


def _beliefs(kind: str, case: str, noise: str, rows: Sequence[Row]) -> Iterator[Measure]:
    del case
    goal = RIGHT if noise == "believed" else None
    yield _share(f"{kind}_credible_set_{noise}", [row["covers"] for row in rows], goal)
    yield _share(f"{kind}_credible_set_early_{noise}", [row["covers_early"] for row in rows], goal)
    certain = [row for row in rows if row["is_certain"]]
    near = [row["is_right"] for row in certain if STATED_LOW <= row["stated"] <= STATED_HIGH]
    if near:
        yield _share(f"{kind}_stated_95_pct_{noise}", near, goal)
    if certain:
        right = [row["is_right"] for row in certain]
        measure = _share(f"{kind}_certain_{noise}", right, None)
        stated_pct = 100 * fmean(row["stated"] for row in certain)
        yield Measure(
            name=measure.name,
            value=measure.value,
            unit=measure.unit,
            note=f"{measure.note}; stated {stated_pct:.1f} % on average; {len(rows) - len(certain)} inconclusive",
        )


def _proofs(kind: str, rows: Sequence[Row]) -> Iterator[Measure]:
    shown = [row["verdict"] == "regression" for row in rows]
    yield _share(
        f"{kind}_proved", [row["is_right"] and is_shown for row, is_shown in zip(rows, shown, strict=True)], None
    )
    for name in ("search", "proof"):
        windows = [row[f"num_{name}"] for row in rows]
        note = f"median {median(windows):g}, most {max(windows)}"
        yield Measure(name=f"{kind}_windows_{name}", value=fmean(windows), unit="windows", note=note)
    same = [row["is_same"] for row in rows]
    yield _share(f"{kind}_killed_same_verdict", same, Goal(low=100.0))
    twice, lost = (sum(row[name] for row in rows) for name in ("num_twice", "num_lost"))
    yield Measure(
        name=f"{kind}_killed_measured_twice",
        value=twice,
        unit="windows",
        goal=Goal(high=0),
        note=f"{len(rows)} kills; {lost} windows of blocks that a kill cut, which must share a launch",
    )
    if kind == "toggles":
        saved = [row["saved"] for row in rows]
        note = f"{min(saved):.1f} to {max(saved):.1f}; eight-minute starts, one per cell visited; search and proof, hot"
        yield Measure(name="toggles_hot_saves", value=median(saved), unit="times", goal=SAVED, note=note)


def _num_open(rows: Sequence[Row]) -> int:
    return sum(not row["is_named"] for row in rows)


def _share(name: str, shown: Sequence[bool], goal: Goal | None, rows: Sequence[Row] = ()) -> Measure:
    share = share_of(sum(shown), len(shown))
    note = f"{share.count} of {share.total} (95 %: {100 * share.low:.1f} to {100 * share.high:.1f} %)"
    if rows:
        note += f"; {fmean(row['windows'] for row in rows):.1f} windows"
    return Measure(name=name, value=100 * share.share, unit="%", goal=goal, note=note)
