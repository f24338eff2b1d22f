"""What a machine honours, and what a running trainer can be asked to change."""

from __future__ import annotations

import pytest

from flashprof.contracts.toggles import ToggleValues, parse_toggles, toggles_from_json, toggles_to_json
from pipeline.toggles import REGISTRY, honoured, hot_changes, not_applied


def nothing(name: str) -> str | None:
    return None


def everything(name: str) -> str | None:
    return f"/usr/bin/{name}"


def values(expression: str) -> ToggleValues:
    return parse_toggles(expression, REGISTRY)


def test_all_is_honoured_where_there_is_a_compiler_and_a_gpu() -> None:
    assert {} == not_applied(values("all"), has_cuda=True, which=everything)
    assert ["expandable", "prealloc", "compile-target", "compile-drafter"] == list(
        not_applied(values("all"), has_cuda=False, which=everything)
    )


def test_compile_is_refused_with_the_remedy_where_there_is_none() -> None:
    asked = values("all,-expandable,-prealloc,-compile-target,-compile-drafter")
    refused = not_applied(asked, has_cuda=False, which=nothing)

    assert ["compile"] == list(refused)
    assert "apt-get install g++" in refused["compile"]
    assert asked | dict.fromkeys(refused, False) == honoured(asked, refused)


def test_cuda_brings_its_own_compiler() -> None:
    assert {} == not_applied(values("compile"), has_cuda=True, which=nothing)


def test_a_toggle_that_was_not_asked_for_is_not_refused() -> None:
    assert {} == not_applied(values("swa"), has_cuda=False, which=nothing)


def test_the_registry_survives_its_json() -> None:
    assert REGISTRY == toggles_from_json(toggles_to_json(REGISTRY))


def test_a_running_trainer_takes_hot_toggles() -> None:
    asked = {"swa": True, "queue": 4, "compile": False, "async-metrics": "on"}

    taken, refused = hot_changes(asked, has_cuda=False, which=everything)

    assert {"swa": True, "queue": 4, "compile": False, "async-metrics": True} == taken
    assert {} == refused


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"warmup": True}, "cold"),
        ({"sva": True}, "no such toggle"),
        ({"queue": 0}, "1..64"),
        ({"queue": None}, "1..64"),
        ({"swa": 7}, "on, off"),
        ({"compile": True}, "g++"),
    ],
)
def test_a_running_trainer_refuses_with_the_reason_and_takes_the_rest(asked: dict[str, object], reason: str) -> None:
    taken, refused = hot_changes({**asked, "grad-norm": True}, has_cuda=False, which=nothing)

    assert {"grad-norm": True} == taken
    assert list(asked) == list(refused)
    assert reason in refused[next(iter(asked))]
