"""Facts of any kind as lines: read back as they were, and nothing else is taken for one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError
from flashprof.decide.fact_codec import FactCodec, named_numbers


class Colour(StrEnum):
    """An enum among the fields."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Place:
    """A part of a fact."""

    x: float
    names: tuple[str, ...] = ()
    weights: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """A fact with a part."""

    kind: ClassVar[str] = "seen"
    place: Place
    colour: Colour
    num: int = 0


@dataclass(frozen=True)
class Gone:
    """A fact that checks itself."""

    kind: ClassVar[str] = "gone"
    why: str

    def __post_init__(self) -> None:
        assert self.why


CODEC: FactCodec[Seen | Gone] = FactCodec(
    kinds=(Seen, Gone),
    casts={"Place": Place, "Colour": Colour, "tuple[str, ...]": tuple, "dict[str, float]": named_numbers},
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=5)
FACTS = st.one_of(
    st.builds(Gone, why=st.text(min_size=1, max_size=5)),
    st.builds(
        Seen,
        place=st.builds(
            Place,
            x=NUMBERS,
            names=st.lists(TEXTS, max_size=2).map(tuple),
            weights=st.dictionaries(TEXTS, NUMBERS, max_size=2),
        ),
        colour=st.sampled_from(Colour),
        num=st.integers(),
    ),
)


@given(FACTS)
def test_a_fact_survives_its_line(fact: Seen | Gone) -> None:
    again = CODEC.decode(json.loads(json.dumps(CODEC.encode(fact), allow_nan=False)))

    assert fact == again
    assert type(fact) is type(again)


def test_a_line_is_the_kind_and_the_fields_in_their_order() -> None:
    line = json.dumps(CODEC.encode(Seen(Place(1.5, ("a",)), Colour.RED)))

    assert '{"kind": "seen", "place": {"x": 1.5, "names": ["a"], "weights": {}}, "colour": "red", "num": 0}' == line


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({}, "unknown observation None"),
        ({"kind": "seen "}, "unknown observation 'seen '"),
        ({"kind": ["gone"]}, "unknown observation"),
        ({"kind": "gone"}, "not a gone observation"),
        ({"kind": "gone", "why": ""}, "not a gone observation"),
        ({"kind": "gone", "why": 3}, "not a gone observation: why is 3"),
        ({"kind": "gone", "why": "x", "more": 1}, "more"),
        ({"kind": "seen", "place": None, "colour": "red"}, "not a seen observation"),
        ({"kind": "seen", "place": {"x": "1"}, "colour": "red"}, "x is '1'"),
        ({"kind": "seen", "place": {"x": 1, "y": 1}, "colour": "red"}, "y"),
        ({"kind": "seen", "place": {"x": 1, "names": 3}, "colour": "red"}, "not a seen observation"),
        ({"kind": "seen", "place": {"x": 1, "weights": {"a": "b"}}, "colour": "red"}, "a is 'b'"),
        ({"kind": "seen", "place": {"x": 1, "weights": [1]}, "colour": "red"}, "not a seen observation"),
        ({"kind": "seen", "place": {"x": 1}, "colour": "green"}, "green"),
        ({"kind": "seen", "place": {"x": 1}, "colour": "red", "num": 1.5}, "num is 1.5"),
    ],
)
def test_what_is_no_fact_is_a_format_error(raw: dict[str, Any], said: str) -> None:
    with pytest.raises(FormatError) as caught:
        CODEC.decode(raw)

    assert said in caught.value.what
