"""Folders of reports, as runs, comparisons and bisects leave them: healthy ones, to be spoilt by tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import run_summaries
import search_results
import study_results

from flashprof.contracts.comparison import StudyResult
from flashprof.contracts.events import Header, encode_header
from flashprof.contracts.localisation import FrameChange, Localisation, Part, ResourceChange, Ruling, Suspect
from flashprof.contracts.results import Interval, RunSummary
from flashprof.contracts.search import SearchResult
from flashprof.contracts.site import Series, Timeline, TimelineLane
from flashprof.store import run_folder, timeline_file
from flashprof.store.search_result import search_to_json
from flashprof.store.study_result import study_to_json
from flashprof.store.summary_file import summary_to_json

FIRST = datetime(2026, 11, 1, 12, tzinfo=UTC)
FACTS = {
    "workload.preset": "tiny",
    "topology": "1+1",
    "toggles.swa": "off",
    "source.commit": "1c0ffee1c0ffee1c0ffee1c0ffee1c0ffee1c0ff",
    "machine.host": "bench",
}
STACKS = (
    "train (pipeline/train.py:10);step (pipeline/train.py:20);build_masks (pipeline/mask.py:30) 8",
    "train (t.py:1) 2",
)

TIMELINE = Timeline(
    start_s=5.0,
    length_s=0.4,
    lanes=(
        TimelineLane(
            name="drafter 0",
            phases=("mask", "wait_hidden"),
            kinds=("work", "wait"),
            pieces=tuple((at, at + 30_000, at // 50_000 % 2) for at in range(0, 400_000, 50_000)),
        ),
    ),
    series=(Series(name="queue of drafter 0", at_s=(1.0, 2.0, 3.0), values=(0.0, 4.0, 2.0)),),
)


def write_run(
    path: Path,
    *,
    hours: float = 0.0,
    rate: float | None = None,
    facts: Mapping[str, str] = FACTS,
    summary: RunSummary | None = None,
) -> Path:
    """
    A run folder.

    Args:
        path: Where; it must not be there.
        hours: When it began, after `FIRST`.
        rate: Its tok/s; None for those of the summary.
        facts: Of its cell.
        summary: None for a healthy run's.
    """
    made = replace(summary or run_summaries.healthy(), run_id=path.name)
    if rate is not None:
        made = replace(made, tok_per_s=interval(rate))
    (path / "events").mkdir(parents=True)
    wall_ns = int((FIRST + timedelta(hours=hours)).timestamp() * 1e9)
    header = Header(
        role="drafter", rank=0, host="bench", pid=1, trains=True, wall_ns=wall_ns, monotonic_ns=1_000_000_000
    )
    (path / "events" / "drafter-0.jsonl").write_text(encode_header(header) + "\n", encoding="utf-8")
    manifest = {"run_id": path.name, "outcome": str(made.outcome), "cell_facts": dict(facts)}
    dump(path / "manifest.json", {"format": run_folder.FORMAT, "version": run_folder.VERSION, **manifest})
    (path / "summary.json").write_text(summary_to_json(made), encoding="utf-8")
    (path / timeline_file.FILE).write_text(timeline_file.timeline_to_json(TIMELINE), encoding="utf-8")
    for window in made.windows:
        if window.kind == "profile":
            (path / "samples" / window.label).mkdir(parents=True)
            (path / "samples" / window.label / "drafter-0.folded").write_text(
                "\n".join(STACKS) + "\n", encoding="utf-8"
            )
    return path


def write_compare(path: Path, result: StudyResult | None = None, *, num_launches: int = 2) -> Path:
    """A comparison's folder, with launches."""
    for number in range(num_launches):
        write_run(path / "launches" / f"cold-{number + 1}", hours=number)
    made = replace(result or study_results.regression(), study=path.name)
    (path / "comparison.json").write_text(study_to_json(made), encoding="utf-8")
    return path


def write_bisect(path: Path, result: SearchResult | None = None) -> Path:
    """A bisect's folder."""
    write_run(path / "launches" / "launch-1", hours=3)
    made = replace(result or search_results.one_culprit(), search=path.name)
    (path / "result.json").write_text(search_to_json(made), encoding="utf-8")
    return path


def localisation(role: str, text: str) -> Localisation:
    """One part, one frame, one resource and one suspect, whose words are all *text*."""
    zero = interval(1.0)
    part = Part(
        role=role,
        phase=text,
        kind="work",
        base_ns_per_token=1.0,
        candidate_ns_per_token=2.0,
        charge=zero,
        share=1.0,
        through=(text,),
        is_clear=True,
    )
    frame = FrameChange(
        role=role,
        name=text,
        where=text,
        phase=text,
        was=text,
        base_ns_per_token=1.0,
        candidate_ns_per_token=2.0,
        inclusive=zero,
        own=zero,
        is_clear=True,
    )
    return Localisation(
        base=text,
        candidate=text,
        base_ns_per_token=1.0,
        difference=zero,
        limiting=(role, role),
        parts=(part,),
        explained_share=1.0,
        frames=(frame,),
        resources=(ResourceChange(place=text, name=text, unit=text, base=1.0, candidate=2.0),),
        suspects=(Suspect(name=text, ruling=Ruling.NAMED, evidence=text),),
        notes=(text,),
    )


def interval(rate: float, half: float = 0.005) -> Interval:
    """An interval of tok/s; *half* its half width, as a share."""
    return Interval(
        estimate=rate, low=rate * (1 - half), high=rate * (1 + half), level=0.95, num_samples=5, method="t-interval"
    )


def edit(path: Path, **changes: Any) -> None:
    """Change entries of a JSON document."""
    dump(path, {**json.loads(path.read_text(encoding="utf-8")), **changes})


def dump(path: Path, document: Any) -> None:
    """Write JSON, NaN and all."""
    path.write_text(json.dumps(document), encoding="utf-8")
