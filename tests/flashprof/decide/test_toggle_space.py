"""Cells between two settings of toggles: ids, values, what is allowed, what shows a cause."""

from __future__ import annotations

import pytest
from search_worlds import toggle_space

from flashprof.contracts.search import Cause
from flashprof.decide.toggle_space import ToggleSpace

NAMES = ("compile", "queue", "swa")


def test_a_cells_id_names_what_is_bad_in_the_order_of_the_space() -> None:
    space = toggle_space(NAMES)

    assert ["good", "compile+swa", "bad"] == [space.cell(item) for item in ((), ("swa", "compile"), NAMES)]
    assert all(cell == space.cell(space.subset(cell)) for cell in space.candidates(()))


def test_values_are_those_of_every_toggle() -> None:
    space = ToggleSpace(
        names=("queue", "swa"),
        good_values={"queue": 8, "swa": True, "fused": True},
        bad_values={"queue": 1, "swa": False, "fused": True},
    )

    assert {"queue": 1, "swa": True, "fused": True} == space.values("queue")
    assert space.bad_values == space.values("bad")


def test_a_pair_is_there_where_both_are_bad() -> None:
    space = toggle_space(NAMES)
    names = [tuple(members) for members in space.terms.names]
    rows = space.rows(["good", "compile", "compile+swa", "bad"])

    assert [0, 1, 1, 1] == rows[:, names.index(("compile",))].tolist()
    assert [0, 0, 1, 1] == rows[:, names.index(("compile", "swa"))].tolist()
    assert (0, len(names)) == space.rows([]).shape


def test_only_cold_toggles_make_groups() -> None:
    space = toggle_space(NAMES, cold=("compile",))

    assert ["compile=on", "compile=on", "compile=off"] == [space.group(cell) for cell in ("good", "swa", "bad")]
    assert {""} == {toggle_space(NAMES).group(cell) for cell in space.candidates(())}


def test_what_is_on_has_what_it_needs() -> None:
    space = toggle_space(NAMES, requires={"swa": ("compile",)}, refused=frozenset({"queue"}))

    # All on is good: compile off leaves swa on without it.
    assert {"good", "swa", "queue+swa", "compile+swa", "bad"} == set(space.candidates(()))
    assert space.alone(Cause(("compile",))) is None
    assert ("compile+swa", "bad") == space.back(Cause(("queue",)))


def test_a_cause_is_shown_alone_and_back() -> None:
    space, pair = toggle_space(NAMES), Cause(("compile", "swa"))

    assert (("good", "compile+swa"), ("queue", "bad")) == (space.alone(pair), space.back(pair))
    assert pair in [space.cause(term) for term in range(len(space.terms.names))]


@pytest.mark.parametrize("num", [9, 12])
def test_of_many_toggles_a_fixed_and_balanced_choice_is_tried(num: int) -> None:
    names = [f"t{place}" for place in range(num)]
    cells = toggle_space(names).candidates(())
    shares = toggle_space(names).rows(cells).mean(axis=0)[:num]

    assert cells == toggle_space(names).candidates(())
    assert {"good", "bad", "t0", "t0+t1"} < set(cells)
    assert 2**num > len(cells) == len(set(cells)) <= 256 + 2 * (1 + num + num * num)
    assert [0.5] * num == shares.tolist()


def test_equal_ends_are_refused() -> None:
    with pytest.raises(AssertionError, match="swa"):
        ToggleSpace(names=("swa",), good_values={"swa": True}, bad_values={"swa": True})
