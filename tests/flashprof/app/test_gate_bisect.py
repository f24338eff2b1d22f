"""From a failed gate to the commit: when that is not asked for, and when it cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gate_results
import pytest
from gate_world import GateWorld

from flashprof.app.gate_bisect import bisect_gate
from flashprof.app.gate_launches import Tree, Trees
from flashprof.contracts.gate import GateResult

BASE, HEAD = Tree(commit="a" * 40, label="base"), Tree(commit="b" * 40, label="head")


def bisected(
    tmp_path: Path, result: GateResult, *, base: Tree = BASE, head: Tree = HEAD, asked: bool = True
) -> GateResult:
    world = GateWorld(tmp_path).make()
    world.want(bisect=asked)
    trees = Trees(top=world.repo, base=base, head=head)
    return bisect_gate(world.gated, trees, result, world.ports, world.progress)


@pytest.mark.parametrize("result", [gate_results.passed(), gate_results.inconclusive(), gate_results.broken()])
def test_what_is_not_shown_to_be_slower_is_not_bisected(tmp_path: Path, result: GateResult) -> None:
    assert result is bisected(tmp_path, result)


def test_an_interrupted_gate_and_one_that_did_not_ask_are_not_bisected(tmp_path: Path) -> None:
    stopped = replace(gate_results.failed(), is_interrupted=True)
    unasked = gate_results.failed()

    assert stopped is bisected(tmp_path / "1", stopped)
    assert unasked is bisected(tmp_path / "2", unasked, asked=False)


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        (replace(BASE, commit=""), HEAD, "the baseline does not say of which commit it is"),
        (BASE, replace(HEAD, changes="c"), "changes that are in no commit"),
        (BASE, BASE, "the same commit"),
    ],
)
def test_a_range_that_is_none_is_said_and_the_verdict_stays(tmp_path: Path, base: Tree, head: Tree, said: str) -> None:
    before = gate_results.failed()
    found = bisected(tmp_path, before, base=base, head=head)

    assert (before.verdict, "") == (found.verdict, found.culprit)
    assert found.notes[-1].startswith("not bisected: ")
    assert said in found.notes[-1]


def test_a_search_that_cannot_begin_leaves_the_verdict(tmp_path: Path) -> None:
    found = bisected(tmp_path, replace(gate_results.failed(), spent_s=0.0))

    assert found.notes[-1].startswith("not bisected: ")
