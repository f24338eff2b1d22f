"""Commits as cells: what each holds, over merges too, and what shows that one is to blame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_worlds import line_of_commits

from flashprof.contracts.search import Cause
from flashprof.decide.commit_space import CommitInfo, CommitSpace

DIAMOND = CommitSpace(
    commits=(
        CommitInfo(id="a", parents=("base",)),
        CommitInfo(id="side", parents=("base",), weight=3.0),
        CommitInfo(id="b", parents=("a",)),
        CommitInfo(id="merge", parents=("b", "side", "outside")),
    ),
    good="base",
    bad="merge",
    revertible=frozenset({"side"}),
)


def held(space: CommitSpace, cell: str) -> set[str]:
    return {commit.id for commit, is_there in zip(space.commits, space.rows([cell])[0], strict=True) if is_there}


def test_a_commit_holds_itself_and_its_ancestors_in_the_range() -> None:
    assert [set(), {"a"}, {"side"}, {"a", "b"}] == [held(DIAMOND, cell) for cell in ("base", "a", "side", "b")]
    assert {"a", "b", "side", "merge"} == held(DIAMOND, "merge")
    assert {"a", "b", "merge"} == held(DIAMOND, "bad-without:side")


def test_a_commit_is_shown_against_its_first_parent_and_back_where_a_revert_applies() -> None:
    assert ("base", "side") == DIAMOND.alone(Cause(("side",)))
    assert ("b", "merge") == DIAMOND.alone(Cause(("merge",)))
    assert ("bad-without:side", "merge") == DIAMOND.back(Cause(("side",)))
    assert DIAMOND.back(Cause(("a",))) is None


def test_each_commit_is_a_start_of_its_own() -> None:
    cells = DIAMOND.candidates(())

    assert {"base", "a", "side", "b", "merge"} == set(cells)
    assert len(cells) == len({DIAMOND.group(cell) for cell in cells})


def test_priors_follow_the_weights() -> None:
    priors = DIAMOND.terms.priors

    assert priors[1] == max(priors) > priors[0]


def test_a_commit_that_names_the_phase_which_slowed_is_likelier() -> None:
    commits = (CommitInfo(id="a", words=frozenset({"masks", "rule"})), CommitInfo(id="b", words=frozenset({"queue"})))
    space = CommitSpace(commits=commits, good="base", bad="b")

    assert space.terms_near(["mask"]).priors[0] == pytest.approx(3 * space.terms_near(["mask"]).priors[1])
    assert list(space.terms.priors) == list(space.terms_near(["backward"]).priors)


@given(st.integers(2, 40), st.integers(0, 10_000))
def test_rows_are_closed_under_parents(num: int, seed: int) -> None:
    commits = []
    for place in range(num):
        older = [f"c{item}" for item in range(place)]
        parents = (older[-1], older[seed % place]) if place else ("base",)
        commits.append(CommitInfo(id=f"c{place}", parents=parents))
    space = CommitSpace(commits=tuple(reversed(commits)), good="base", bad=f"c{num - 1}")

    for commit in commits:
        inside = held(space, commit.id)
        assert commit.id in inside
        assert all(held(space, parent) < inside for parent in commit.parents if parent != "base")


def test_a_line_has_one_more_commit_each_time() -> None:
    space = line_of_commits(5)

    assert [0, 1, 2, 3, 4, 5] == space.rows(space.candidates(())).sum(axis=1).tolist()


def test_the_bad_commit_must_be_a_suspect_and_the_good_one_none() -> None:
    with pytest.raises(AssertionError, match="last change"):
        CommitSpace(commits=(CommitInfo(id="a"),), good="base", bad="b")
    with pytest.raises(AssertionError, match="no suspect"):
        CommitSpace(commits=(CommitInfo(id="a"),), good="a", bad="a")
