"""`state.json`: what is written is read, and what cannot be read is named."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError
from pipeline.checkpoint.state import CheckpointState, state_from_json, state_to_json
from pipeline.model.drafter import DrafterShape
from pipeline.presets import FULL, SLIDING, DataPlan, DrafterPlan, Preset, Recipe, TargetPlan

FLOATS = st.floats(allow_nan=False)
MakeState = Callable[..., CheckpointState]


def built(kind: type, **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Any instance; a NaN would not equal itself."""
    hints = typing.get_type_hints(kind, localns={"DrafterShape": DrafterShape})
    floats = {field.name: FLOATS for field in fields(kind) if hints[field.name] is float}
    rest = {name: st.from_type(hint) for name, hint in hints.items() if name not in floats and name not in known}
    return st.builds(kind, **rest, **floats, **known)


PRESETS = built(
    Preset,
    target=built(TargetPlan),
    drafter=built(DrafterPlan),
    data=built(DataPlan),
    recipe=built(Recipe),
)
STATES = built(CheckpointState, preset=PRESETS, shape=built(DrafterShape))


@given(STATES)
def test_what_is_written_is_read(state: CheckpointState) -> None:
    assert state == state_from_json(state_to_json(state), where="state.json")


def leaves(document: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(document, dict):
        return [path]
    return [path, *(leaf for key, value in document.items() for leaf in leaves(value, (*path, key)))]


def without(document: dict[str, Any], path: tuple[str, ...]) -> str:
    copy = json.loads(json.dumps(document))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return json.dumps(copy)


def test_a_file_of_the_first_version_is_of_a_run_with_bucketed_batches(make_state: MakeState) -> None:
    state = make_state()
    document = json.loads(without(json.loads(state_to_json(state)), ("preset", "data", "batches")))

    assert state == state_from_json(json.dumps(document | {"version": "1.0"}), where="state.json")
    with pytest.raises(FormatError, match="batches"):
        state_from_json(json.dumps(document), where="state.json")


def test_every_missing_field_is_named(make_state: MakeState) -> None:
    document = json.loads(state_to_json(make_state()))
    # Toggles are a mapping: a trainer with fewer of them is no damage.
    paths = [
        path for path in leaves(document) if path and path[0] not in ("format", "version") and path[:-1] != ("toggles",)
    ]

    for path in paths:
        with pytest.raises(FormatError, match="missing") as caught:
            state_from_json(without(document, path), where="/runs/step-00000200/state.json")
        assert ".".join(path) in caught.value.what
        assert "/runs/step-00000200/state.json" == caught.value.where
    assert len(paths) > 50


def test_fields_of_a_newer_minor_version_are_passed_over(make_state: MakeState) -> None:
    document = json.loads(state_to_json(make_state()))
    newer = {**document, "version": "1.7", "mood": "good"}
    newer["preset"]["recipe"]["momentum"] = 0.9

    assert make_state() == state_from_json(json.dumps(newer), where="state.json")


@pytest.mark.parametrize(
    "change", [{"version": "2.0"}, {"version": None}, {"format": "flashprof-run"}, {"version": "10.1"}]
)
def test_an_unknown_version_names_both(make_state: MakeState, change: dict[str, Any]) -> None:
    document = json.loads(state_to_json(make_state())) | change

    with pytest.raises(FormatError) as caught:
        state_from_json(json.dumps(document), where="state.json")
    assert str(document["version"]) in caught.value.what
    assert "version 1.1" in (caught.value.allowed or "")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("step",), "200"),
        (("step",), True),
        (("layer_ids",), 3),
        (("layer_ids",), [1, 2.5]),
        (("preset",), []),
        (("preset", "recipe", "lr"), None),
        (("preset", "target", "mask_token_id"), 1.5),
        (("toggles",), ["swa"]),
        (("toggles", "swa"), [1]),
    ],
)
def test_a_field_of_the_wrong_type_is_named(make_state: MakeState, path: tuple[str, ...], value: Any) -> None:
    document = json.loads(state_to_json(make_state()))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value

    with pytest.raises(FormatError, match="wrong type") as caught:
        state_from_json(json.dumps(document), where="state.json")
    assert ".".join(path) in caught.value.what


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"state"', "[" * 5000])
def test_what_is_no_state_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError, match="not a checkpoint's state"):
        state_from_json(text, where="state.json")


def test_a_whole_number_is_read_as_a_float_where_one_belongs(make_state: MakeState) -> None:
    document = json.loads(state_to_json(make_state()))
    document["preset"]["recipe"]["lr"] = 1

    read = state_from_json(json.dumps(document), where="state.json")

    assert "1.0" == str(read.preset.recipe.lr)


@pytest.mark.parametrize(("toggles", "expected"), [("none", (FULL, SLIDING)), ("swa", (SLIDING, SLIDING))])
def test_layer_types_are_those_that_were_trained(
    make_state: MakeState, toggles: str, expected: tuple[str, ...]
) -> None:
    assert expected == make_state(toggles=toggles, layer_types=(FULL, SLIDING)).layer_types
