"""`docs/story.md`: the story of the 17 %. The prose stands here, the numbers come from `benchmarks.story`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from benchmarks.results_file import RESULTS
from flashprof.report.compare_sentences import plural

PAGE = RESULTS.parents[1] / "docs" / "story.md"
MAX_ROWS = 8
NOT_MEASURED = "*Not measured.*"
TEXT = Template("""\
# The story: 17 % of the throughput, and nobody knew where

Made by `python -m benchmarks.story write` from what `benchmarks.story measure` left; do not edit. $hardware.

A team trained a drafter beside its frozen target on one host: five GPUs extracted hidden states, three trained.
Throughput had been 14.5K tok/s. Weeks of changes later it was 12K, and nobody could say which change did it. It took
days of `py-spy`, `pidstat` and `top -H` by hand to find out: an attention mask evaluated twice in every forward pass,
document ids made by a slow path, a synchronisation for every metric and one more for the gradient norm, and a queue
too shallow to absorb a spike. All of it on the processor, in front of an accelerator that had nothing to do.

This page asks FlashProf the same question, on Qwen3-8B's shapes with random weights and the same six length buckets:
preset `qwen3-8b-random`, target and drafter on one card. Every optimisation of that team is a toggle of
[the trainer](training.md), so the bad state is the cell `none` and the good one is `all`.

## How much is lost

```
flashprof compare $good $bad
```

$drop

Both cells ran in one launch and took turns at step boundaries, so what a launch draws once (allocator, autotuning,
clocks) is the same for both. Toggles that only a launch can set stayed on in both.

## Where it is lost

$phases

The drafter's own log shows none of this: it prints a loss and a tok/s. What the phases say is where the time is, not
yet which switch brings it back: a phase can be long because it waits for another one.

## Which toggle

$cells

*Alone*: switched on in `none`. *Left out*: switched off in `all`. The two differ where either of two toggles is enough:
what one of them brings alone is not missed while the other is there. A target that is packed or compiled is such a
pair, and a mask that is compiled or analytic. Leaving out one at a time misses it; switching one on at a time shows the
gain of the pair, but with either of the two, so that it counts twice. So pairs were left out together too.

$pairs

## What the search says

```
flashprof bisect --good $good --bad $bad
```

$bisect

The search chose each window by what it would tell a second; the tables above took $num_windows.

## Both ends, launched with samplers

$runs

## What this does not show

$sources- One launch each. Another launch of the same cell may differ by more than the intervals, which speak of windows
  within a launch.
- Random weights: the work is the same, the losses mean nothing, so nothing is said about what `swa` costs in
  acceptance.
- One card for both roles: they take turns on it, so a target that needs it longer shows as longer phases of the
  drafter, and a gain of one side is seen diluted by the other's time. The team's eight cards are foretold by
  `benchmarks.scaling`.
""")


def make_page(found: Mapping[str, Any]) -> str:
    """Markdown, of what `benchmarks.story.collect` found; a part that is not there says so."""
    compare, cells = found["compare"], found["cells"]
    return TEXT.substitute(
        hardware=found["hardware"],
        good=compare["good"] if compare else "all",
        bad=compare["bad"] if compare else "none",
        drop=_drop(compare),
        phases=_phases(compare),
        cells=_cells(cells),
        pairs=_pairs(cells),
        bisect="\n\n".join(filter(None, (_bisect(found["bisect"]), found["bisect_note"]))),
        num_windows=_num_windows(cells) if cells else "no windows",
        runs=_runs(found["runs"]),
        sources=_sources(found["sources"]),
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def change(interval: Mapping[str, Any] | None) -> str:
    """`−14.2 % (95 %: −15.0 to −13.4)`."""
    if interval is None:
        return "not measured"
    ends = [interval["low"], interval["high"]]
    if None in ends or min(ends) <= -1:
        return f"{_pct(interval['estimate'])} % (no bound yet)"
    return f"{_pct(interval['estimate'])} % (95 %: {_pct(ends[0])} to {_pct(ends[1])})"


def _drop(compare: Mapping[str, Any] | None) -> str:
    if compare is None or compare["effect"] is None:
        return NOT_MEASURED
    good = compare["base_tok_per_s"]
    bad = good * (1 + compare["effect"]["estimate"])
    return (
        f"**{change(compare['effect'])}**: {good:,.0f} → {bad:,.0f} tok/s, verdict *{compare['verdict']}* "
        f"({compare['reason']}), {compare['num_blocks']} blocks, {compare['spent_s'] / 60:.1f} minutes."
    )


def _phases(compare: Mapping[str, Any] | None) -> str:
    parts = compare["parts"] if compare else []
    if not parts:
        return NOT_MEASURED
    rows = [
        [
            f"`{part['role']} {part['phase']}`",
            part["kind"],
            f"{part['base_ns_per_token'] / 1000:.2f}",
            f"{part['candidate_ns_per_token'] / 1000:.2f}",
            _share(part["share"]) + ("" if part["is_clear"] else " (not clear)"),
        ]
        for part in parts[:MAX_ROWS]
    ]
    return table(["phase", "kind", "good, µs a token", "bad", "of the drop"], rows)


def _cells(cells: Mapping[str, Any] | None) -> str:
    if not cells or not cells["effects"]:
        return NOT_MEASURED
    by_toggle: dict[str, dict[str, Mapping[str, Any]]] = {}
    for effect in cells["effects"]:
        if len(effect["members"]) == 1:
            by_toggle.setdefault(effect["members"][0], {})[effect["group"]] = effect
    order = sorted(by_toggle, key=lambda name: -max(effect["share"] for effect in by_toggle[name].values()))
    rows = [[f"`{name}`", *_cell(by_toggle[name].get("none")), *_cell(by_toggle[name].get("all"))] for name in order]
    refused = "".join(f"\n`{name}` is not in the table: {why}.\n" for name, why in cells["refused"].items())
    head = ["toggle", "alone", "of the drop", "left out", "of the drop"]
    counted = f"\n{_num_windows(cells)}, of {len(cells['effects'])} cells, in one launch, in rounds of random order."
    return f"{table(head, rows)}\n{counted}\n{refused}".rstrip()


def _num_windows(cells: Mapping[str, Any]) -> str:
    """The others let the queue drain after a switch, or were disturbed."""
    return f"{cells['num_windows']} windows, {cells['num_counted']} of which counted"


def _cell(effect: Mapping[str, Any] | None) -> tuple[str, str]:
    return ("–", "–") if effect is None else (change(effect["effect"]), _share(effect["share"]))


def _pairs(cells: Mapping[str, Any] | None) -> str:
    if not cells or not cells["pairs"]:
        return "Pairs: not measured."
    rows = [
        [" and ".join(f"`{name}`" for name in pair), f"{_pct(together)} %", f"{_pct(apart)} %"]
        for pair, together, apart in cells["pairs"]
    ]
    return table(["left out together", "change of log tok/s", "both left out alone, added"], rows)


def _bisect(search: Mapping[str, Any] | None) -> str:
    if search is None:
        return NOT_MEASURED
    named = ", ".join("`" + " × ".join(members) + "`" for members in search["culprits"]) or "nothing"
    launches = plural(search["num_launches"], "launch")
    lines = [
        f"*{search['verdict']}*: {named}. {search['reason']}.",
        f"{search['num_readings']} windows in {launches}, {search['spent_s'] / 60:.1f} minutes.",
    ]
    proofs = [proof for proof in search["proofs"] if proof["comparison"]]
    if proofs:
        rows = [
            [
                "`" + " × ".join(proof["cause"]) + "`",
                "back in bad" if proof["is_back"] else "alone in good",
                change(proof["comparison"]["effect"]),
                "shown" if proof["is_shown"] else "refuted" if proof["is_refuted"] else "open",
            ]
            for proof in proofs
        ]
        lines += ["", table(["cause", "switched", "change", "proof"], rows)]
    return "\n".join(lines)


def _runs(runs: Mapping[str, Any]) -> str:
    if not runs:
        return NOT_MEASURED
    rows = []
    for name, run in runs.items():
        rate = run["tok_per_s"]
        cost = run["sampling_cost"]
        rows.append(
            [
                f"`{name}`",
                f"{rate['estimate']:,.0f} ({rate['low']:,.0f} to {rate['high']:,.0f})" if rate else run["outcome"],
                ", ".join(
                    f"{_lane(lane)} {lane['capacity_tok_per_s']:,.0f}"
                    for lane in run["lanes"]
                    if lane["capacity_tok_per_s"]
                ),
                f"{100 * cost['estimate']:.1f} %" if cost else "–",
            ]
        )
    return table(["cell", "tok/s (95 %, windows of one launch)", "capacity of each lane, tok/s", "sampling cost"], rows)


def _sources(sources: Mapping[str, str]) -> str:
    """A sentence where parts were not all measured at once; empty where they were."""
    if len(set(sources.values())) < 2:
        return ""
    parts: dict[str, list[str]] = {}
    for part, source in sources.items():
        parts.setdefault(source, []).append(f"`{part}`")
    told = "; ".join(f"{', '.join(names)}: {source}" for source, names in parts.items())
    return f"- Parts were measured in different calls, so only changes within a part are like for like. {told}.\n"


def _lane(lane: Mapping[str, Any]) -> str:
    where = lane["lane"]
    suffix = "" if where["thread"] == "main" else f"/{where['thread']}"
    return f"{where['role']} {where['rank']}{suffix}"


def _share(share: float) -> str:
    return f"{round(100 * share)} %".replace("-", "−")


def _pct(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")
