"""Facts as lines of a journal: frozen dataclasses to JSON and back, whatever they are facts of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, fields, is_dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from flashprof.contracts.errors import FormatError

PLAIN = MappingProxyType({"float": (int, float), "int": (int,), "str": (str,)})
"""Annotation → types of JSON that it takes; a value of another type is refused."""


class Named(Protocol):
    """A dataclass that says which fact it is."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


Fact = TypeVar("Fact", bound=Named)


def named_numbers(value: Mapping[str, Any]) -> dict[str, float]:
    """
    Numbers by name, as JSON holds them: makes the value of a field `dict[str, float]`.

    Raises:
        AttributeError, TypeError: They are none.
    """
    wrong = [name for name, number in value.items() if not isinstance(number, PLAIN["float"])]
    if wrong:
        raise TypeError(f"{wrong[0]} is {value[wrong[0]]!r}")
    return dict(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCodec(Generic[Fact]):
    """The lines of one journal."""

    kinds: Sequence[type[Fact]]
    """All facts that there are."""
    casts: Mapping[str, Callable[..., Any]]
    """
    Annotation of a field → what makes its value of JSON, which knows neither tuples nor enums; a dataclass is read
    field by field. Annotations are texts, as in every module of this house.
    """

    def encode(self, fact: Fact) -> dict[str, Any]:
        """One line of the journal."""
        return {"kind": fact.kind, **asdict(fact)}

    def decode(self, raw: Mapping[str, Any]) -> Fact:
        """
        Read one line of the journal.

        Raises:
            FormatError: Not a fact of this version.
        """
        kinds = {kind.kind: kind for kind in self.kinds}
        kind = kinds.get(str(raw.get("kind")))
        if kind is None:
            raise FormatError(f"unknown observation {raw.get('kind')!r}", allowed=", ".join(kinds))
        values = {name: value for name, value in raw.items() if name != "kind"}
        try:
            fact: Fact = self._build(kind, values)
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise FormatError(f"not a {kind.kind} observation: {error}") from error
        return fact

    def _build(self, kind: type[Any], values: Mapping[str, Any]) -> Any:
        built = dict(values)
        for field in fields(kind):
            if field.name in built:
                built[field.name] = self._value(field, built[field.name])
        return kind(**built)

    def _value(self, field: Field[Any], value: Any) -> Any:
        annotation = str(field.type)
        cast = self.casts.get(annotation)
        if cast is not None:
            return self._build(cast, value) if is_dataclass(cast) else cast(value)
        if not isinstance(value, PLAIN[annotation]):
            raise TypeError(f"{field.name} is {value!r}")
        return value
