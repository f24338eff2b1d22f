"""What a bisection says, sentence by sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import localisations
import pytest
import search_results
from search_results import BAD_COMMIT, CULPRIT, GOOD_COMMIT, belief, cell, interval

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.search import Cause, SearchResult
from flashprof.report import bisect_sentences as sentences

Make = Callable[[], SearchResult]


def named(*causes: tuple[str, ...], gains: tuple[tuple[str, ...], ...] = ()) -> SearchResult:
    """One culprit's result with these causes, without labels."""
    return replace(
        search_results.one_culprit(),
        culprits=tuple(map(Cause, causes)),
        gains=tuple(map(Cause, gains)),
        labels=None,
    )


@pytest.mark.parametrize(
    ("make", "start"),
    [
        (search_results.one_culprit, "swa (on → off) causes the drop: 14,480 → 12,018 tok/s (−17.0 %, 95 %: "),
        (search_results.commit, "3c3c3c3c3c3c Build the attention mask per document causes the drop: 14,480 → "),
        (search_results.no_regression, "all and none are alike: 14,480 → 14,437 tok/s (−0.3 %, 95 %: −0.7 to +0.1 %)"),
        (search_results.undecided, "inconclusive: swa (on → off) leads with 71 %: 14,480 → 13,872 tok/s"),
        (search_results.failed_end, "failed: no answer between all and none: none gave no reading (out of memory)"),
    ],
)
def test_the_answer_names_the_cause_and_the_drop(make: Make, start: str) -> None:
    assert sentences.answer(make()).startswith(start)


@pytest.mark.parametrize(
    ("causes", "start"),
    [
        ((("swa",),), "swa causes the drop: "),
        ((("swa",), ("queue",)), "swa and queue cause the drop: "),
        ((("a",), ("b",), ("c",)), "a, b and c cause the drop: "),
        ((("compile", "swa"),), "compile and swa cost only together: "),
        ((("queue",), ("compile", "swa")), "queue causes the drop; compile and swa cost only together: "),
        ((("swa",), ("compile", "swa")), "swa causes the drop; compile and swa cost more together: "),
        ((), "there is a drop without a named cause: "),
    ],
)
def test_what_costs_alone_is_told_from_what_costs_together(causes: tuple[tuple[str, ...], ...], start: str) -> None:
    assert sentences.answer(named(*causes)).startswith(start)


def test_a_bad_cell_that_is_faster_is_not_alike() -> None:
    result = replace(search_results.no_regression(), drop=interval(0.05, 0.01))

    assert sentences.answer(result).startswith("none is faster than all: 14,480 → 15,204 tok/s (+5.0 %")


def test_a_gain_that_masks_a_loss_is_said_with_its_effect() -> None:
    told = sentences.gains(search_results.two_culprits())

    assert told == "grad-norm (on → off) makes it faster and masks a part of the loss: +3.1 %, 95 %: +2.0 to +4.2 %"
    assert "a and b make it faster and mask" in sentences.gains(named(("swa",), gains=(("a",), ("b",))))
    assert sentences.gains(search_results.one_culprit()) == ""


def test_effects_are_those_of_the_hypothesis_that_names_the_culprits() -> None:
    swa, queue = Cause(("swa",)), Cause(("queue",))
    result = replace(
        search_results.one_culprit(),
        beliefs=(
            belief(0.6, (("queue",), -0.3), (("swa",), -0.1)),
            belief(0.3, (("swa",), -0.2)),
        ),
    )

    assert {swa: interval(-0.2, 0.011)} == sentences.effects(result)
    assert {queue, swa} == set(sentences.effects(replace(result, culprits=(swa, queue))))
    assert {} == sentences.effects(replace(result, culprits=(queue,), proofs=()))


def test_the_effect_of_a_culprit_that_no_hypothesis_names_alone_is_that_of_its_proof() -> None:
    result = replace(search_results.one_culprit(), beliefs=())
    alone = next(proof.comparison for proof in result.proofs if not proof.is_back)

    assert alone is not None
    assert {Cause(("swa",)): alone.effect} == sentences.effects(result)


@pytest.mark.parametrize(
    ("make", "step"),
    [
        (search_results.one_culprit, ("flashprof compare all all,-swa", "shows the phases that it costs")),
        (search_results.commit, ("git show 3c3c3c3c3c3c", "shows what it changed")),
        (search_results.pure_pair, ("", "")),
        (search_results.no_regression, ("", "")),
        (search_results.undecided, ("flashprof bisect --resume --budget 14m", "goes on")),
        (search_results.commits_open, ("flashprof bisect --resume --budget 61m", "goes on")),
        (search_results.failed_end, ("flashprof bisect --resume", "once the end that failed runs")),
        (search_results.interrupted, ("flashprof bisect --resume", "goes on")),
    ],
)
def test_the_next_command_can_be_typed(make: Make, step: tuple[str, str]) -> None:
    assert step == sentences.next_step(make())


def test_what_was_localised_is_drawn_next() -> None:
    paths = (("search", "/work/my reports/bisect-1"),)
    result = replace(search_results.one_culprit(), localisation=localisations.one_phase(), paths=paths)

    assert ("flashprof report '/work/my reports'", "draws where it costs its time") == sentences.next_step(result)


def test_the_next_command_finds_searches_that_lie_elsewhere() -> None:
    result = replace(search_results.interrupted(), paths=(("search", "my runs/bisect-4f1c2ab09d3e"),))

    assert sentences.next_step(result)[0] == "flashprof bisect --resume --reports 'my runs'"


def test_an_open_answer_says_what_it_would_still_cost() -> None:
    assert sentences.to_resolve(search_results.undecided()) == "to resolve: about 3.9 min more"
    assert sentences.to_resolve(search_results.commits_open()).endswith("cannot be told")
    assert sentences.to_resolve(search_results.interrupted()) == ""
    assert sentences.to_resolve(search_results.one_culprit()) == ""


def test_a_failure_in_between_is_not_a_failed_search() -> None:
    assert sentences.is_failed(search_results.failed_end())
    assert not sentences.is_failed(search_results.commits_open())
    assert not sentences.is_failed(replace(search_results.failed_end(), is_interrupted=True))


def test_proofs_are_shown_refuted_or_open() -> None:
    proof = search_results.one_culprit().proofs[0]
    answers = [
        sentences.proof_answer(replace(proof, comparison=search_results.comparison(-0.1, verdict)))
        for verdict in (Verdict.REGRESSION, Verdict.NO_REGRESSION, Verdict.INCONCLUSIVE)
    ]

    assert answers == ["shown", "refuted", "open"]
    assert sentences.proof_answer(replace(proof, comparison=None)) == "not measured"


def test_a_proof_that_nothing_matters_is_not_refuted_by_its_own_answer() -> None:
    (proof,) = search_results.no_regression().proofs
    other = replace(proof, comparison=search_results.comparison(-0.1))

    assert sentences.proof_answer(proof) == "alike"
    assert sentences.proof_answer(other) == "not alike"
    assert sentences.proof_title(search_results.no_regression(), proof) == "good against bad"


def test_commits_are_short_where_they_have_no_label() -> None:
    result = replace(search_results.commit(), labels=None, cells=(), good=GOOD_COMMIT, bad=BAD_COMMIT)

    assert sentences.answer(result).startswith("3c3c3c3c3c3c causes the drop: (−17.0 %")
    assert sentences.between(result) == "good: 0a0a0a0a0a0a; bad: 5e5e5e5e5e5e"
    assert sentences.shorten_ids(f"build of {CULPRIT}, {'a' * 64} and {'b' * 39}") == (
        f"build of 3c3c3c3c3c3c, aaaaaaaaaaaa and {'b' * 39}"
    )


def test_the_usual_way_is_told_for_toggles_only() -> None:
    assert sentences.one_at_a_time(search_results.one_culprit()).startswith("one toggle at a time would take 8 starts")
    assert sentences.one_at_a_time(search_results.commit()) == ""
    assert sentences.one_at_a_time(replace(search_results.one_culprit(), labels=None)) == ""


def test_an_end_without_a_number_leaves_the_change_alone() -> None:
    cells = (cell(BAD_COMMIT, "", None),)

    assert sentences.drop(replace(search_results.commit(), cells=cells)) == "(−17.0 %, 95 %: −18.2 to −15.8 %)"
