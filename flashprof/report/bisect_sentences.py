"""What a bisection says in words: the same sentences for the console and for report.md. Pure."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TypeGuard

from flashprof.contracts.comparison import Method, Standing, Verdict
from flashprof.contracts.results import Interval
from flashprof.contracts.search import (
    BAD,
    GOOD,
    Belief,
    Cause,
    CellInfo,
    Proof,
    SearchKind,
    SearchResult,
    SearchRule,
    Stage,
)
from flashprof.report import figures
from flashprof.report.compare_sentences import candidate_tok_per_s, change, level, minutes, num_decimals, plural, span

SHORT_ID = 12
"""Digits of a commit's id, as git shows them in a large repository."""
NOTHING = "nothing matters"
RESUME = "flashprof bisect --resume"
_COMMIT_ID = re.compile(r"\b[0-9a-f]{40}(?:[0-9a-f]{24})?\b")


def is_failed(result: SearchResult) -> bool:
    """Whether an end was never measured because of failures: there is no question then. A stop is no failure."""
    return bool(result.failures) and result.drop is None and not result.is_interrupted


def answer(result: SearchResult) -> str:
    """The verdict with its numbers: the line to read if only one is read."""
    good, bad = ends(result)
    if is_failed(result):
        return f"failed: no answer between {good} and {bad}: {_failed_end(result)}"
    if result.verdict is Verdict.REGRESSION:
        return f"{_found(result)}: {drop(result)}"
    if result.verdict is Verdict.NO_REGRESSION:
        is_faster = result.drop is not None and result.drop.low > 0
        return f"{f'{bad} is faster than {good}' if is_faster else f'{good} and {bad} are alike'}: {drop(result)}"
    return f"inconclusive: {_leading(result)}: {drop(result)}"


def ends(result: SearchResult) -> tuple[str, str]:
    """How the good and the bad cell are called."""
    return title_of(result, result.good), title_of(result, result.bad)


def end_cells(result: SearchResult) -> tuple[CellInfo | None, CellInfo | None]:
    """The good cell and the bad one; None for one that was not looked at."""

    def find(names: set[str]) -> CellInfo | None:
        return next((info for info in result.cells if names & {info.cell, info.label}), None)

    return find({GOOD, result.good}), find({BAD, result.bad})


def is_number(rate: float | None) -> TypeGuard[float]:
    """Whether a cell has a speed."""
    return rate is not None and math.isfinite(rate)


def between(result: SearchResult) -> str:
    """What was searched."""
    good, bad = ends(result)
    return f"good: {good}; bad: {bad}"


def drop(result: SearchResult) -> str:
    """From good to bad in tok/s, and as a relative change with its interval."""
    found = result.drop
    if found is None:
        return "good and bad were not both measured"
    if not math.isfinite(found.estimate):
        return "the difference of good and bad is not known"
    good, _ = end_cells(result)
    base = good.tok_per_s if good is not None and is_number(good.tok_per_s) else None
    rates = f"{figures.rate(base)} → {figures.rate(base * (1 + found.estimate))} tok/s " if base else ""
    return f"{rates}({effect(found, tolerance(result))})"


def effect(found: Interval, least: float) -> str:
    """`−17.0 %, 95 %: −18.1 to −15.9 %`; *least* is the tolerance that no rounding may cross."""
    return f"{change(found.estimate, num_decimals(found, least))} %, {level(found)} {span(found, least)}"


def tolerance(result: SearchResult) -> float:
    """Of the search: its proofs know it."""
    rules = (proof.comparison.rule for proof in result.proofs if proof.comparison is not None)
    return next((rule.tolerance for rule in rules), SearchRule().tolerance)


def member_title(result: SearchResult, member: str) -> str:
    """A toggle with its change, `queue (8 → 1)`; a commit's short id and subject."""
    label = (result.labels or {}).get(member, "")
    if result.kind is SearchKind.COMMITS:
        return label or shorten_ids(member)
    values = label.removeprefix(f"{member}: ")
    return f"{member} ({values})" if values else member


def cause_title(result: SearchResult, cause: Cause) -> str:
    """A cause as a row of a table names it."""
    return " × ".join(member_title(result, member) for member in cause.members)


def belief_title(result: SearchResult, belief: Belief) -> str:
    """The causes of a hypothesis, without their values: several stand in one line."""
    if result.kind is SearchKind.COMMITS:
        return " + ".join(cause_title(result, cause) for cause in belief.causes) or NOTHING
    return causes_name(belief.causes)


def causes_name(causes: Sequence[Cause]) -> str:
    """The same without labels, for a live view."""
    return " + ".join(shorten_ids(cause.name) for cause in causes) or NOTHING


def title_of(result: SearchResult, cell: str) -> str:
    """A cell as a person reads it, from its id or its name."""
    found = next((info.label for info in result.cells if info.cell == cell and info.label), "")
    return found or (result.labels or {}).get(cell, "") or shorten_ids(cell)


def shorten_ids(text: str) -> str:
    """Full commit ids become short ones."""
    return _COMMIT_ID.sub(lambda found: found.group()[:SHORT_ID], text)


def causes_heading(result: SearchResult) -> str:
    """Of the table of causes."""
    if result.verdict is Verdict.INCONCLUSIVE:
        return "Suspects"
    return "Culprits and gains" if result.gains else "Culprits"


def effects(result: SearchResult) -> dict[Cause, Interval]:
    """Of each culprit and gain, under the hypothesis that names exactly those; else as its proof shows it alone."""
    named = {*result.culprits, *result.gains}
    leading = next((belief for belief in result.beliefs if set(belief.causes) == named), None)
    if leading is not None:
        return dict(zip(leading.causes, leading.effects, strict=False))
    alone = (proof for proof in result.proofs if proof.stage is Stage.PROOF and not proof.is_back)
    return {proof.cause: proof.comparison.effect for proof in alone if proof.comparison is not None}


def gains(result: SearchResult) -> str:
    """What makes it faster and hides part of the loss; empty where nothing does."""
    if not result.gains:
        return ""
    named = _list([_together(result, cause) for cause in result.gains])
    is_one = _is_one(result.gains)
    does = "makes it faster and masks" if is_one else "make it faster and mask"
    known = effects(result)
    told = "; ".join(effect(known[cause], tolerance(result)) for cause in result.gains if cause in known)
    return f"{named} {does} a part of the loss{f': {told}' if told else ''}"


def standing(result: SearchResult) -> str:
    """How far the proof has come; empty where there is no answer to prove."""
    if result.verdict is Verdict.INCONCLUSIVE or not result.proofs:
        return ""
    if result.standing is Standing.CONFIRMED:
        return f"confirmed by launches of one cell each, {plural(len(result.proofs), 'comparison')} in all"
    return "shown within launches that hold several cells; not confirmed by launches of one cell each"


def proof_title(result: SearchResult, proof: Proof) -> str:
    """What was switched, and where."""
    if not proof.cause.members:
        return "good against bad"
    return f"{proof_heading(result, proof)}: {proof_place(proof)}"


def proof_heading(result: SearchResult, proof: Proof) -> str:
    """What was switched; a confirmation switches all culprits at once, whatever they do together."""
    if proof.stage is Stage.CONFIRM:
        return f"{_together(result, proof.cause)}, a launch each"
    return cause_title(result, proof.cause)


def proof_place(proof: Proof) -> str:
    """Alone in the good cell, or back in the bad one."""
    if not proof.cause.members:
        return "good against bad"
    return "back in bad" if proof.is_back else "alone in good"


def proof_answer(proof: Proof) -> str:
    """`shown`, `refuted`, `open`; for an empty cause, whether the ends are alike."""
    if proof.comparison is None:
        return "not measured"
    if not proof.cause.members:
        words = {Verdict.NO_REGRESSION: "alike", Verdict.REGRESSION: "not alike"}
        return words.get(proof.comparison.verdict, "open")
    return "shown" if proof.is_shown else "refuted" if proof.is_refuted else "open"


def proof_rates(proof: Proof) -> str:
    """Tok/s without and with the cause."""
    item = proof.comparison
    if item is None:
        return figures.DASH
    return f"{figures.rate(item.base_tok_per_s)} → {figures.rate(candidate_tok_per_s(item))}"


def proof_line(result: SearchResult, proof: Proof) -> str:
    """All of a proof in one sentence."""
    item = proof.comparison
    if item is None:
        return f"{proof_title(result, proof)}: not measured"
    made = f"{plural(item.num_blocks, 'block')} in {plural(item.num_launches, 'launch')}, {method(item.method)}"
    what = f"{proof_rates(proof)} tok/s, {effect(item.effect, item.rule.tolerance)}; {made}"
    return f"{proof_title(result, proof)}: {proof_answer(proof)}, {what}"


def method(how: Method) -> str:
    """How the two cells of a proof lay in launches."""
    return {Method.HOT: "within launches", Method.COLD: "between launches"}.get(how, str(how))


def cost(result: SearchResult) -> str:
    """What the answer took."""
    builds = f" and {plural(result.num_builds, 'build')}" if result.num_builds else ""
    left_out = f" ({result.num_left_out} of them disturbed and left out)" if result.num_left_out else ""
    made = f"{plural(result.num_readings, 'reading')}{left_out} in {plural(result.num_launches, 'launch')}{builds}"
    reused = f"; {plural(result.num_reused, 'reading')} from earlier calls" if result.num_reused else ""
    return f"{made}, measured for {minutes(result.spent_s)}{reused}"


def one_at_a_time(result: SearchResult) -> str:
    """What the usual way costs: a start for each toggle and for both ends. It sees no pair."""
    num_toggles = len(result.labels or {})
    if result.kind is SearchKind.COMMITS or num_toggles < 2:
        return ""
    return f"one toggle at a time would take {num_toggles + 2} starts, and see no pair"


def interrupted(result: SearchResult) -> str:
    """That there may be more to come; empty where nobody stopped it."""
    return "interrupted: what was measured is kept" if result.is_interrupted else ""


def to_resolve(result: SearchResult) -> str:
    """What an open answer would still cost; empty for one that is resolved, stopped or failed."""
    if result.verdict is not Verdict.INCONCLUSIVE or result.is_interrupted or is_failed(result):
        return ""
    more_s = result.to_resolve_s
    if more_s is None or not math.isfinite(more_s):
        return "to resolve: how much longer it takes cannot be told"
    return f"to resolve: about {minutes(more_s)} more"


def next_step(result: SearchResult) -> tuple[str, str]:
    """What to type now, and what for; both empty where there is nothing more to do."""
    if is_failed(result):
        return _resume(result), "once the end that failed runs"
    if result.is_interrupted:
        return _resume(result), "goes on"
    if result.verdict is Verdict.INCONCLUSIVE:
        return _go_on(result), "goes on"
    return _look_closer(result) if result.verdict is Verdict.REGRESSION else ("", "")


def cell(result: SearchResult) -> str:
    """What all cells have in common, on one line."""
    return " · ".join(f"{name} {value}" for name, value in result.cell.items() if value)


def _resume(result: SearchResult) -> str:
    """With the folder of all searches, where that is not the usual one."""
    reports = dict(result.paths).get("search", "").rpartition("/")[0]
    return f"{RESUME} --reports {shlex.quote(reports)}" if reports not in ("", "reports") else RESUME


def _go_on(result: SearchResult) -> str:
    more_s = result.to_resolve_s
    # Nobody knows: as much again. The budget counts what earlier calls have spent, too.
    more_s = result.spent_s if more_s is None or not math.isfinite(more_s) else more_s
    total_s = result.spent_s + more_s
    return f"{_resume(result)} --budget {math.ceil(total_s / 60)}m" if math.isfinite(total_s) else _resume(result)


def _look_closer(result: SearchResult) -> tuple[str, str]:
    """The first culprit that is shown: its change, its picture where it was localised, or the phases that it costs."""
    shown = next((proof for proof in result.proofs if proof.is_shown and not proof.is_back), None)
    if shown is None or not shown.cause.members:
        return "", ""
    if result.kind is SearchKind.COMMITS:
        return f"git show {shown.cause.members[0][:SHORT_ID]}", "shows what it changed"
    folder = dict(result.paths).get("search")
    if result.localisation is not None and folder:
        return f"flashprof report {shlex.quote(str(Path(folder).parent))}", "draws where it costs its time"
    labels = {info.cell: info.label for info in result.cells}
    base, candidate = labels.get(shown.base), labels.get(shown.candidate)
    if not (base and candidate):
        return "", ""
    return f"flashprof compare {shlex.quote(base)} {shlex.quote(candidate)}", "shows the phases that it costs"


def _found(result: SearchResult) -> str:
    singles = [cause for cause in result.culprits if len(cause.members) == 1]
    pairs = [cause for cause in result.culprits if len(cause.members) > 1]
    named, joint = (_list([_together(result, cause) for cause in causes]) for causes in (singles, pairs))
    if not singles:
        return f"{joint} cost only together" if pairs else "there is a drop without a named cause"
    caused = f"{named} {'causes' if _is_one(singles) else 'cause'} the drop"
    if not pairs:
        return caused
    alone = {member for cause in singles for member in cause.members}
    is_more = any(alone & set(cause.members) for cause in pairs)
    return f"{caused}; {joint} cost {'more' if is_more else 'only'} together"


def _together(result: SearchResult, cause: Cause) -> str:
    return _list([member_title(result, member) for member in cause.members])


def _leading(result: SearchResult) -> str:
    if not result.beliefs:
        return "nothing was measured"
    first = result.beliefs[0]
    title = " + ".join(cause_title(result, cause) for cause in first.causes) or NOTHING
    return f"{title} leads with {figures.percent(first.probability)}"


def _failed_end(result: SearchResult) -> str:
    for info in end_cells(result):
        if info is not None and info.outcome and info.num_readings == 0:
            return f"{info.label} gave no reading ({info.outcome})"
    return "launches failed"


def _is_one(causes: Sequence[Cause]) -> bool:
    return len(causes) == 1 and len(causes[0].members) == 1


def _list(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(part for part in (", ".join(items[:-1]), *items[-1:]) if part)
