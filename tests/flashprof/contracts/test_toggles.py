"""Toggle expressions: what they mean, what they refuse, and the round trip to text and to JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError, UnknownNameError, UsageError
from flashprof.contracts.toggles import (
    Toggle,
    ToggleValues,
    Value,
    format_toggles,
    format_value,
    parse_toggles,
    toggles_from_json,
    toggles_to_json,
)

REGISTRY = (
    Toggle(name="compile", help="compile the mask builder", hot=True, needs=("compiler",)),
    Toggle(name="swa", help="sliding window", changes_numbers=True),
    Toggle(name="queue", help="queue depth", default=1, on=8, minimum=1, maximum=64),
)
NONE: ToggleValues = {"compile": False, "swa": False, "queue": 1}
ALL: ToggleValues = {"compile": True, "swa": True, "queue": 8}

NAMES = st.from_regex("[a-z][a-z0-9-]{0,9}", fullmatch=True).filter(lambda name: name not in ("all", "none"))
BOUNDS = st.integers(-1000, 1000)


@st.composite
def toggles(draw: st.DrawFn) -> Toggle:
    name = draw(NAMES)
    if draw(st.booleans()):
        return Toggle(name=name, help="a switch", hot=draw(st.booleans()), needs=("cuda",))
    low, default, on, high = sorted(draw(st.lists(BOUNDS, min_size=4, max_size=4)))
    return Toggle(name=name, help="a number", default=default, on=on, minimum=low, maximum=high)


@st.composite
def cells(draw: st.DrawFn) -> tuple[list[Toggle], ToggleValues]:
    registry = draw(st.lists(toggles(), max_size=6, unique_by=lambda toggle: toggle.name))
    values: ToggleValues = {}
    for toggle in registry:
        allowed = st.integers(toggle.minimum, toggle.maximum) if toggle.is_numeric else st.booleans()
        values[toggle.name] = draw(allowed)
    return registry, values


@given(cell=cells())
def test_a_formatted_cell_is_parsed_back(cell: tuple[list[Toggle], ToggleValues]) -> None:
    registry, values = cell

    assert values == parse_toggles(format_toggles(values, registry), registry)


@given(cell=cells())
def test_a_registry_survives_json(cell: tuple[list[Toggle], ToggleValues]) -> None:
    registry, _ = cell

    assert tuple(registry) == toggles_from_json(json.loads(json.dumps(toggles_to_json(registry))))


def parsed_or_refused(text: str) -> ToggleValues | UsageError:
    try:
        return parse_toggles(text, REGISTRY)
    except UsageError as error:
        return error


@given(text=st.text(max_size=30))
def test_any_text_is_a_cell_or_a_usage_error(text: str) -> None:
    result = parsed_or_refused(text)

    assert isinstance(result, UsageError) or result.keys() == NONE.keys()


@given(text=st.text(st.characters(exclude_characters=","), max_size=12))
def test_any_value_of_a_number_is_in_range_or_a_usage_error(text: str) -> None:
    result = parsed_or_refused(f"queue={text}")

    assert isinstance(result, UsageError) or 1 <= int(result["queue"]) <= 64


@pytest.mark.parametrize(
    ("expression", "changes"),
    [
        ("", {}),
        ("  ", {}),
        ("none", {}),
        ("compile,swa", {"compile": True, "swa": True}),
        ("all", ALL),
        ("all,-swa", {**ALL, "swa": False}),
        ("-swa,all", ALL),
        ("all,none", {}),
        ("queue=4", {"queue": 4}),
        ("queue=4,queue=5", {"queue": 5}),
        ("queue=4,-queue", {}),
        ("queue", {"queue": 8}),
        ("swa=off,swa=ON", {"swa": True}),
        ("all , compile=0", {**ALL, "compile": False}),
    ],
)
def test_later_items_win(expression: str, changes: ToggleValues) -> None:
    assert {**NONE, **changes} == parse_toggles(expression, REGISTRY)


@pytest.mark.parametrize(("name", "nearest"), [("compil", "compile"), ("sva", "swa"), ("que", "queue")])
def test_an_unknown_toggle_offers_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UnknownNameError, match=f"did you mean '{nearest}'") as raised:
        parse_toggles(f"all,{name}", REGISTRY)

    assert raised.value.allowed == "compile, swa, queue, all, none"
    assert raised.value.next_command == "flashprof run --list-toggles"


@pytest.mark.parametrize("value", ["0", "65", "-1", "--5", "²", "٤", "4.0", "", "on", "1e1", "9" * 5000])
def test_a_number_out_of_range_names_the_range(value: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_toggles(f"queue={value}", REGISTRY)

    assert raised.value.allowed == "1..64"
    assert raised.value.offered == f"queue={value}"


@pytest.mark.parametrize(
    "expression", ["compile,,swa", ",", "compile,", "-", "=", "-=4", "--swa", "swa=maybe", "-queue=4"]
)
def test_an_expression_that_means_nothing_is_a_usage_error(expression: str) -> None:
    with pytest.raises(UsageError):
        parse_toggles(expression, REGISTRY)


@pytest.mark.parametrize(("value", "expression"), [(8, "queue=8"), (1, "none")])
def test_a_number_is_written_with_its_value_unless_it_is_the_default(value: Value, expression: str) -> None:
    assert expression == format_toggles({**NONE, "queue": value}, REGISTRY)


def test_a_bound_that_is_missing_is_left_open() -> None:
    assert Toggle(name="x", help="", default=1, minimum=1).allowed == "1.."


def test_fields_of_a_newer_source_tree_are_ignored() -> None:
    (toggle,) = toggles_from_json([{"name": "a", "help": "b", "invented": [1]}])

    assert Toggle(name="a", help="b") == toggle


@pytest.mark.parametrize("raw", [[{"help": "no name"}], ["compile"], [None], [{"name": "a", "help": "b", "needs": 3}]])
def test_a_list_that_is_no_registry_is_a_format_error(raw: list[dict[str, object]]) -> None:
    with pytest.raises(FormatError):
        toggles_from_json(raw)


@pytest.mark.parametrize(("value", "text"), [(True, "on"), (False, "off"), (1, "1"), (8, "8")])
def test_a_value_is_written_as_a_person_writes_it(value: Value, text: str) -> None:
    toggle = REGISTRY[0] if isinstance(value, bool) else REGISTRY[2]

    assert text == format_value(value)
    assert (value, type(value)) == (toggle.parse(text), type(toggle.parse(text)))


REQUIRING = (
    *REGISTRY,
    Toggle(name="fused", help="needs two", requires=("swa", "queue")),
    Toggle(name="deep", help="a number", default=0, on=2, requires=("swa",)),
)


@pytest.mark.parametrize(
    "expression", ["none", "fused,swa,queue=2", "deep,swa", "deep=0", "all", "all,-fused,-deep,-swa"]
)
def test_toggles_may_be_on_together_with_what_they_require(expression: str) -> None:
    assert set(parse_toggles(expression, REQUIRING)) == {toggle.name for toggle in REQUIRING}


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("fused", "'fused' requires swa, queue"),
        ("fused,swa", "'fused' requires queue"),
        ("fused,swa,queue=1", "'fused' requires queue"),
        ("all,-swa", "'fused' requires swa"),
        ("deep=1", "'deep' requires swa"),
    ],
)
def test_a_toggle_without_what_it_requires_is_refused(expression: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as raised:
        parse_toggles(expression, REQUIRING)

    assert expression == raised.value.offered
    assert raised.value.next_command


def test_requirements_survive_json_and_may_be_missing_there() -> None:
    (fused,) = toggles_from_json(json.loads(json.dumps(toggles_to_json(REQUIRING[3:4]))))

    assert ("swa", "queue") == fused.requires
    assert () == toggles_from_json([{"name": "a", "help": "b"}])[0].requires
