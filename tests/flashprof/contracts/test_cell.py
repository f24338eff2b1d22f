"""Cells: equal facts have equal hashes, unlike ones are refused by name, and what the user allows is let through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.cell import ABSENT, MAX_NAMED, Cell, check_allowed, refuse_unlike
from flashprof.contracts.errors import UnknownNameError, UsageError

BASE = Cell(
    {
        "workload.preset": "tiny",
        "workload.seed": "0",
        "topology": "1+1",
        "toggles.swa": "off",
        "source.commit": "aaaa",
        "machine.host": "box",
        "machine.cpu": "EPYC",
        "versions.torch": "2.11.0",
        "env.OMP_NUM_THREADS": "1",
    }
)
FACTS = st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), max_size=6)


def changed(**changes: str) -> Cell:
    return Cell({**BASE.facts, **{name.replace("__", "."): text for name, text in changes.items()}})


def refuse(candidate: Cell, *allowed: str) -> None:
    refuse_unlike(BASE.differences(candidate), under_test=("toggles.*",), allowed=allowed)


@given(FACTS, FACTS)
def test_cells_are_alike_exactly_where_no_fact_differs(a: dict[str, str], b: dict[str, str]) -> None:
    base, candidate = Cell(a), Cell(dict(reversed(b.items())))
    names = {item.name for item in base.differences(candidate)}

    assert (a == b) == (base.hash == candidate.hash) == (not names)
    assert names == {name for name in {*a, *b} if a.get(name, ABSENT) != b.get(name, ABSENT)}
    assert names == {item.name for item in candidate.differences(base)}


def test_a_fact_that_only_one_has_is_a_difference() -> None:
    (difference,) = BASE.differences(changed(env__NCCL_ALGO="Ring"))

    assert "env.NCCL_ALGO: (absent) → Ring" == str(difference)


def test_a_section_can_be_left_out() -> None:
    assert BASE.without("toggles").hash == changed(toggles__swa="on").without("toggles").hash
    assert {"topology"} == set(BASE.facts) - set(BASE.without("topology").facts)


def test_what_is_under_test_may_differ() -> None:
    refuse(changed(toggles__swa="on"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workload.seed", "1"),
        ("machine.host", "crate"),
        ("versions.torch", "2.13.0"),
        ("source.commit", "bbbb"),
        ("env.OMP_NUM_THREADS", "2"),
    ],
)
def test_any_other_difference_is_refused_with_both_values_and_the_way_to_allow_it(name: str, value: str) -> None:
    candidate = Cell({**BASE.facts, "toggles.swa": "on", name: value})
    with pytest.raises(UsageError) as refused:
        refuse(candidate)

    assert f"{name}: {BASE.facts[name]} → {value}" == refused.value.offered
    assert f"--allow {name}, if that is no cause of a difference" == refused.value.next_command
    refuse(candidate, name)


def test_a_section_is_allowed_by_its_name_alone() -> None:
    refuse(changed(machine__host="crate", machine__cpu="Xeon", topology="2+1"), "machine", "topology")
    refuse(Cell({**BASE.facts, "machine.gpu.0.uuid": "GPU-1"}), "machine.gpu")
    with pytest.raises(UsageError, match="differ in more"):
        refuse(changed(machine__host="crate"), "mach")


def test_names_are_told_apart_by_case_and_may_be_patterns() -> None:
    refuse(changed(env__OMP_NUM_THREADS="2"), "env.OMP_*")
    with pytest.raises(UsageError):
        refuse(changed(env__OMP_NUM_THREADS="2"), "env.omp_num_threads")


def test_a_long_list_is_cut_and_the_options_still_allow_all_of_it() -> None:
    others = {f"machine.gpu.{number}.uuid": f"GPU-{number}" for number in range(MAX_NAMED)}
    candidate = Cell({**BASE.facts, **others, "workload.seed": "1", "source.commit": "bbbb"})
    with pytest.raises(UsageError) as refused:
        refuse(candidate)
    options = str(refused.value.next_command).partition(",")[0].split()[1::2]

    assert str(refused.value.offered).endswith("; and 2 more")
    assert ["machine", "source.commit", "workload.seed"] == options
    refuse(candidate, *options)


def test_a_long_value_does_not_fill_the_screen() -> None:
    with pytest.raises(UsageError) as refused:
        refuse(changed(workload__command="python train.py " + "--option value " * 40, workload__digest="f" * 400))

    assert len(str(refused.value.offered)) < 250


@pytest.mark.parametrize("name", ["machine", "workload.seed", "versions.*", "env.NEVER_SET", "toggles"])
def test_a_name_that_means_something_may_be_allowed_though_nothing_differs(name: str) -> None:
    check_allowed([name], BASE, BASE)


def test_a_name_of_no_fact_is_refused_with_those_that_differ() -> None:
    with pytest.raises(UnknownNameError) as refused:
        check_allowed(["machin"], BASE, changed(machine__host="crate", workload__seed="1"))

    assert "unknown fact 'machin' (did you mean 'machine'?)" == refused.value.what
    assert ("machine.host", "workload.seed") == refused.value.known[:2]
    assert "--allow machine.host --allow workload.seed" == refused.value.next_command
