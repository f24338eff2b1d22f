"""Where a change lies, as views of a comparison and of a bisect show it: waterfall, differential flamegraph, tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from flashprof.contracts.localisation import Localisation
from flashprof.contracts.profiles import ProfiledWindow
from flashprof.report import localisation_sentences as sentences
from flashprof.report.flame import render_flame
from flashprof.report.localisation_rows import (
    Row,
    Table,
    frame_table,
    part_table,
    resource_table,
    suspect_table,
)
from flashprof.report.site_text import clip
from flashprof.report.waterfall import render_waterfall
from flashprof.stats.flame_tree import flame_tree

MAX_NAME = 160
MAX_EVIDENCE = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalisationView:
    """All that the template needs."""

    totals: str
    facts: tuple[str, ...]
    notes: tuple[str, ...]
    waterfall: Markup
    parts: Table
    flame: Markup
    """Empty where an arm has no stack samples."""
    frames: Table
    resources: Table
    suspects: Table
    suspect_counts: str


def localisation_view(
    localisation: Localisation | None,
    page_id: str,
    *,
    base: Sequence[ProfiledWindow],
    candidate: Sequence[ProfiledWindow],
) -> LocalisationView | None:
    """
    Prepare the part of a view that says where a change lies; None where nothing does.

    Args:
        localisation: What was found.
        page_id: Of the view's section: ids of what is in it begin with it.
        base: Stack samples.
        candidate: Stack samples.
    """
    if localisation is None:
        return None
    facts = (sentences.explained(localisation), *sentences.facts(localisation))
    return LocalisationView(
        totals=sentences.totals(localisation),
        facts=tuple(clip(fact) for fact in facts if fact),
        notes=tuple(map(clip, localisation.notes)),
        waterfall=render_waterfall(localisation, id=f"waterfall-{page_id}"),
        parts=clipped(part_table(localisation)),
        flame=_flame(localisation, page_id, base, candidate),
        frames=clipped(frame_table(localisation)),
        resources=clipped(resource_table(localisation)),
        suspects=clipped(suspect_table(localisation), length=MAX_EVIDENCE),
        suspect_counts=sentences.suspect_counts(localisation.suspects),
    )


def clipped(table: Table, *, length: int = MAX_NAME) -> Table:
    """With texts cut: a name of a run may be megabytes long."""
    rows = (Row(cells=tuple(clip(cell, length) for cell in row.cells), is_clear=row.is_clear) for row in table.rows)
    return replace(table, titles=tuple(map(clip, table.titles)), rows=tuple(rows))


def _flame(
    localisation: Localisation,
    page_id: str,
    base: Sequence[ProfiledWindow],
    candidate: Sequence[ProfiledWindow],
) -> Markup:
    if not (any(window.num_samples for window in base) and any(window.num_samples for window in candidate)):
        return Markup()
    named = sentences.named_parts(localisation)
    drawn = render_flame(
        flame_tree(base, candidate),
        id=f"flame-{page_id.replace('/', '-')}",
        base=localisation.base,
        candidate=localisation.candidate,
        focus=named[0].role if named else "",
    )
    return Markup(drawn)  # noqa: S704 (escaped there)
