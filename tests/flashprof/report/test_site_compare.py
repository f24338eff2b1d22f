"""The view of a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import localisations
import pytest
import study_results
from sites import Outline

from flashprof.contracts.comparison import StudyResult
from flashprof.contracts.profiles import FrameId, ProfiledWindow
from flashprof.contracts.site import CompareView
from flashprof.report.localisation_sentences import headline
from flashprof.report.site_compare import render_compare

MAKERS = [
    study_results.regression,
    study_results.no_regression,
    study_results.inconclusive,
    study_results.failed_arm,
    study_results.existing,
]
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


def _view(result: StudyResult, **fields: object) -> CompareView:
    return CompareView(folder="compare-1/", result=result, started="2026-11-29T12:00:00+00:00", **fields)  # type: ignore[arg-type]


def _profile(name: str, samples: int) -> ProfiledWindow:
    stacks = {(FrameId("train", "a.py"), FrameId(name, "a.py")): samples, (FrameId("train", "a.py"),): 50}
    return ProfiledWindow(launch=name, label="p", role="drafter", num_ranks=1, ns_per_token=2e5, stacks=stacks)


def _text(document: str) -> str:
    return " ".join(" ".join(Outline(document).text).split())


@pytest.mark.parametrize("make", MAKERS)
def test_it_is_one_section_with_the_verdict(make: Callable[[], StudyResult]) -> None:
    outline = Outline(render_compare(_view(make()), "compare/x"))

    assert ([], []) == (outline.unbalanced, outline.open)
    assert outline.elements[0] == (
        "section",
        {"class": "page", "id": "compare/x", "data-title": outline.elements[0][1]["data-title"]},
    )
    assert len(outline.values("id")) == len(set(outline.values("id")))


def test_the_verdict_comes_with_its_method_and_evidence() -> None:
    text = _text(render_compare(_view(study_results.regression()), "c"))
    pieces = (
        "▼ regression",
        "compile,swa → none: −17.3 % tok/s",
        "slower by at least 15.5 %, 99 % sure",
        "judged by 99 %: −19.0 to −15.5 % (however often one looks), tolerance 1.0 %",
        "confirmed by 8 launches",
        "failed: cold-2-candidate: killed by a signal (9); launched again",
        "hot block 5 left out: other processes used 1.1 cores (typically 0.1)",
        "measured for 10.0 min of 10.0 min allowed",
    )

    assert [piece for piece in pieces if piece not in text] == []


def test_a_localisation_is_drawn_in_words_pictures_and_tables() -> None:
    found = localisations.one_phase()
    outline = Outline(render_compare(_view(study_results.regression(), localisation=found), "compare/x"))
    text = " ".join(" ".join(outline.text).split())

    assert headline(found).replace("`", "").replace(" ", "") in text.replace(" ", "")
    assert "waterfall-compare-x" in outline.values("id")
    assert [title for title in ("Frames that changed", "The usual suspects", "Resources") if title not in text] == []
    assert "Stacks, before and after" not in text
    assert "masks took 2.4 µs → 41.4 µs a token" in text


def test_stacks_of_both_arms_make_a_differential_flamegraph() -> None:
    both = {"base_profiles": (_profile("mask", 10),), "candidate_profiles": (_profile("mask", 90),)}
    found = localisations.one_phase()
    document = render_compare(_view(study_results.regression(), localisation=found, **both), "compare/x")
    half = render_compare(
        _view(study_results.regression(), localisation=found, base_profiles=both["base_profiles"]), "compare/x"
    )

    assert "flame-compare-x" in Outline(document).values("id")
    assert "flame-compare-x" not in Outline(half).values("id")


def test_without_a_localisation_it_says_why() -> None:
    shown = _text(render_compare(_view(study_results.regression()), "c"))
    alike = _text(render_compare(_view(study_results.inconclusive()), "c"))

    assert "where it lies is not known" in shown
    assert "no difference is shown, so there is none to localise" in alike


def test_an_open_answer_says_how_to_go_on() -> None:
    text = _text(render_compare(_view(study_results.inconclusive()), "c"))

    assert "to resolve: about 3.9 min more; the same command with --budget 14 continues" in text


def test_nothing_of_a_run_is_markup() -> None:
    result = study_results.regression()
    hostile = replace(
        result,
        study=HOSTILE,
        base=HOSTILE,
        candidate=HOSTILE,
        cell={HOSTILE: HOSTILE},
        failures=(HOSTILE,),
        notes=(HOSTILE,),
        paths=((HOSTILE, HOSTILE), ("x", "javascript:alert(1)"), ("y", "/etc/passwd")),
        blocks=tuple(
            replace(it, launches=(HOSTILE,), site=HOSTILE, disturbances=(HOSTILE,) if it.disturbances else ())
            for it in result.blocks
        ),
    )
    profiles = {"base_profiles": (_profile(HOSTILE, 9),), "candidate_profiles": (_profile(HOSTILE, 90),)}
    document = render_compare(_view(hostile, localisation=localisations.hostile(HOSTILE), **profiles), "c")
    plain = render_compare(
        _view(
            result,
            localisation=localisations.hostile("n"),
            base_profiles=(_profile("n", 9),),
            candidate_profiles=(_profile("n", 90),),
        ),
        "c",
    )
    outline = Outline(document)

    assert ([], []) == (outline.unbalanced, outline.open)
    assert {tag for tag, _ in outline.elements} == {tag for tag, _ in Outline(plain).elements}
    assert not [name for _, it in outline.elements for name in it if name.startswith("on")]
    assert [link for link in outline.values("href") if not link.startswith("./compare-1")] == []


def test_numbers_that_are_not_finite_become_dashes() -> None:
    result = study_results.regression()
    nan = study_results.interval(math.nan, -math.inf, math.inf)
    broken = replace(
        result,
        comparisons=tuple(replace(it, effect=nan, deciding=nan, base_tok_per_s=math.nan) for it in result.comparisons),
        blocks=tuple(replace(it, difference=math.nan, length_s=0.0) for it in result.blocks),
        spent_s=math.nan,
    )
    text = _text(render_compare(_view(broken, localisation=localisations.odd()), "c"))

    assert "the effect is not known" in text
    assert "nan" not in text
