"""The view of a bisect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import localisations
import pytest
import search_results
from sites import Outline

from flashprof.contracts.search import SearchResult
from flashprof.contracts.site import BisectView
from flashprof.report.site_bisect import bisect_page, proof_effects, render_bisect

MAKERS = [
    search_results.one_culprit,
    search_results.two_culprits,
    search_results.pure_pair,
    search_results.commit,
    search_results.commits_open,
    search_results.no_regression,
    search_results.undecided,
    search_results.failed_end,
    search_results.interrupted,
    search_results.broken,
]
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


def _view(result: SearchResult, **fields: object) -> BisectView:
    return BisectView(folder="bisect-1/", result=result, **fields)  # type: ignore[arg-type]


def _text(document: str) -> str:
    return " ".join(" ".join(Outline(document).text).split())


@pytest.mark.parametrize("make", MAKERS)
def test_it_is_one_section(make: Callable[[], SearchResult]) -> None:
    outline = Outline(render_bisect(_view(make(), localisation=localisations.one_phase()), "bisect/x"))

    assert ([], []) == (outline.unbalanced, outline.open)
    assert "bisect/x" in outline.values("id")
    assert not [piece for piece in outline.text if "nan" in piece.split()]


def test_culprit_proofs_hypotheses_cells_and_cost_are_told() -> None:
    text = _text(render_bisect(_view(search_results.one_culprit()), "b"))
    pieces = (
        "swa (on → off) causes the drop",
        "confirmed by launches of one cell each",
        "next: flashprof compare all all,-swa",
        "alone in good, within launches",
        "back in bad, between launches",
        "97 %",
        "12,060",
        "46 readings (1 of them disturbed and left out) in 9 launches",
        "one toggle at a time would take 8 starts, and see no pair",
        "the drafter waits for memory in all cells",
    )

    assert [piece for piece in pieces if piece not in text] == []


def test_commits_stand_in_their_order_with_the_culprit_marked() -> None:
    page = bisect_page(_view(search_results.commit()), "b")

    assert [line.label[:4] for line in page.commits] == ["0a0a", "2b2b", "3c3c", "4d4d", "5e5e"]
    assert [line.role for line in page.commits] == ["good", "", "culprit", "", "bad"]
    assert [line.outcome for line in page.commits] == ["", "", "", "build failed", ""]


def test_a_commit_that_was_not_measured_has_a_place_and_no_number() -> None:
    result = search_results.commit()
    fewer = replace(result, cells=tuple(it for it in result.cells if it.cell != search_results.BEFORE))
    line = bisect_page(_view(fewer), "b").commits[1]

    assert (line.label[:4], line.rate, line.at) == ("2b2b", "", None)


def test_toggles_have_no_strip_of_commits_and_a_culprit_that_is_not_proved_is_a_suspect() -> None:
    page = bisect_page(_view(search_results.commits_open()), "b")

    assert bisect_page(_view(search_results.one_culprit()), "b").commits == ()
    assert [line.role for line in page.commits if line.label.startswith("3c3c")] == ["suspect"]


def test_an_open_search_says_how_to_go_on() -> None:
    text = _text(render_bisect(_view(search_results.undecided()), "b"))

    assert "to resolve: about 3.9 min more" in text
    assert "next: flashprof bisect --resume --budget 14m" in text


def test_what_the_search_looked_at_is_said() -> None:
    focused = replace(search_results.one_culprit(), focus=("mask",))

    assert "looked at the time of mask" in _text(render_bisect(_view(focused), "b"))
    assert "looked at" not in _text(render_bisect(_view(search_results.one_culprit()), "b"))


def test_proofs_are_lines_of_one_picture_and_name_the_cause_where_there_are_several() -> None:
    one = [it.label for it in proof_effects(search_results.one_culprit())]
    two = [it.label for it in proof_effects(search_results.two_culprits())]

    assert one[:2] == ["alone in good, within launches", "back in bad, within launches"]
    assert two == ["queue: alone in good", "queue: back in bad", "compile × swa: alone in good"]


def test_nothing_of_a_run_is_markup() -> None:
    result = search_results.commit()
    hostile = replace(
        result,
        search=HOSTILE,
        cell={HOSTILE: HOSTILE},
        reason=HOSTILE,
        failures=(HOSTILE,),
        notes=(HOSTILE,),
        labels=dict.fromkeys(result.labels or {}, HOSTILE),
        cells=tuple(replace(it, label=HOSTILE, outcome=HOSTILE) for it in result.cells),
        paths=((HOSTILE, HOSTILE), ("x", "javascript:alert(1)")),
        focus=(HOSTILE,),
    )
    outline = Outline(render_bisect(_view(hostile, localisation=localisations.hostile(HOSTILE)), "b"))
    plain = Outline(render_bisect(_view(result, localisation=localisations.one_phase()), "b"))

    assert ([], []) == (outline.unbalanced, outline.open)
    assert {tag for tag, _ in outline.elements} == {tag for tag, _ in plain.elements}
    assert not [name for _, it in outline.elements for name in it if name.startswith("on")]
    assert [link for link in outline.values("href") if not link.startswith("./bisect-1")] == []
