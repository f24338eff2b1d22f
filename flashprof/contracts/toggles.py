"""
Toggles: the named switches of a subject, and the expression that sets them.

An expression is a comma-separated list: `compile,swa` (those two on, the rest at their defaults), `all,-swa`
(everything on but one), `queue=4` (a value), `none`. Later items win.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flashprof.contracts.errors import FormatError, UnknownNameError, UsageError

Value = bool | int | str
ToggleValues = dict[str, Value]

LIST_COMMAND = "flashprof run --list-toggles"
EXAMPLE = "compile,swa | all,-swa | queue=4 | none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toggle:
    """A named switch of the subject with two or more values."""

    name: str
    help: str
    """What it does when it is on, in one sentence."""
    default: Value = False
    """The value in the cell `none`."""
    on: Value = True
    """The value that the bare name, and `all`, stand for."""
    minimum: int | None = None
    """Smallest allowed value of a numeric toggle."""
    maximum: int | None = None
    hot: bool = False
    """Whether it can change while the subject runs."""
    is_upstream: bool = False
    """Whether it acts in front of the queue: what is queued at a switch was still made under the old setting."""
    needs: tuple[str, ...] = ()
    """What the machine must have: `cuda`, `compiler`."""
    requires: tuple[str, ...] = ()
    """Names of toggles that must be on for this one to be on."""
    changes_numbers: bool = False
    """Whether it trains another model, so that losses differ beyond rounding when it is set."""
    loss_tolerance: float = 0.0
    """Largest relative difference of a step's loss between its settings, same seed and data; 0: bitwise equal."""

    @property
    def is_numeric(self) -> bool:
        """Whether it takes a number rather than on and off."""
        return not isinstance(self.default, bool)

    @property
    def allowed(self) -> str:
        """The allowed values, for messages."""
        if not self.is_numeric:
            return "on, off"
        return "..".join("" if bound is None else str(bound) for bound in (self.minimum, self.maximum))

    def is_on(self, value: Value) -> bool:
        """Whether *value* switches it on: a number does where it is not the default."""
        return value != self.default if self.is_numeric else value is True

    def parse(self, text: str) -> Value:
        """
        Read a value.

        Raises:
            UsageError: The text is no allowed value.
        """
        words = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
        if not self.is_numeric and text.lower() in words:
            return words[text.lower()]
        # Not `isdigit`, which is true of ² and of digits that `int` refuses.
        if self.is_numeric and re.fullmatch("-?[0-9]{1,18}", text) and self._in_range(int(text)):
            return int(text)
        raise UsageError(
            f"toggle {self.name!r} does not take {text!r}",
            offered=f"{self.name}={text}",
            allowed=self.allowed,
            next_command=LIST_COMMAND,
        )

    def _in_range(self, value: int) -> bool:
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)


def format_value(value: Value) -> str:
    """A value as a person writes it: `on`, `off`, `8`. A depth of 1 is a number, though 1 == True."""
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def parse_toggles(expression: str, registry: Sequence[Toggle]) -> ToggleValues:
    """
    Turn an expression into a value for every toggle of *registry*.

    Raises:
        UnknownNameError: A name that the registry does not have; offers the nearest.
        UsageError: A value that the toggle does not take, an empty item, or a toggle without one that it requires.
    """
    by_name = {toggle.name: toggle for toggle in registry}
    values: ToggleValues = {toggle.name: toggle.default for toggle in registry}
    items = [item.strip() for item in expression.split(",")] if expression.strip() else []
    for item in items:
        values.update(_parse_item(item, by_name, expression))
    for toggle in registry:
        _refuse_unmet(toggle, values, by_name, expression)
    return values


def _refuse_unmet(toggle: Toggle, values: Mapping[str, Value], by_name: Mapping[str, Toggle], expression: str) -> None:
    unmet = [name for name in toggle.requires if name in by_name and not by_name[name].is_on(values[name])]
    if unmet and toggle.is_on(values[toggle.name]):
        raise UsageError(
            f"toggle {toggle.name!r} requires {', '.join(unmet)}",
            offered=expression,
            allowed=f"{toggle.name} together with {', '.join(toggle.requires)}, or without it",
            next_command=f"--toggles {','.join((*toggle.requires, toggle.name))}",
        )


def _parse_item(item: str, by_name: Mapping[str, Toggle], expression: str) -> ToggleValues:
    if item == "all":
        return {name: toggle.on for name, toggle in by_name.items()}
    if item == "none":
        return {name: toggle.default for name, toggle in by_name.items()}
    if not item:
        raise UsageError("empty item in the toggle expression", offered=expression, allowed=EXAMPLE)
    off = item.startswith("-")
    name, equals, text = item.removeprefix("-").partition("=")
    if name not in by_name:
        raise UnknownNameError("toggle", name, (*by_name, "all", "none"), next_command=LIST_COMMAND)
    if off and equals:
        raise UsageError(
            f"{item!r} both switches off and sets a value", offered=item, allowed=f"-{name} or {name}=VALUE"
        )
    toggle = by_name[name]
    if off:
        return {name: toggle.default}
    return {name: toggle.parse(text) if equals else toggle.on}


def format_toggles(values: Mapping[str, Value], registry: Sequence[Toggle]) -> str:
    """The shortest expression that gives *values*: what is on, or `all` and what is not; `none` for all defaults."""
    set_items, changed_items = [], ["all"]
    for toggle in registry:
        value = values[toggle.name]
        if value != toggle.default:
            item = toggle.name if value == toggle.on and not toggle.is_numeric else f"{toggle.name}={value}"
            set_items.append(item)
        if value != toggle.on:
            changed_items.append(f"-{toggle.name}" if value == toggle.default else f"{toggle.name}={value}")
    return min(",".join(set_items) or "none", ",".join(changed_items), key=len)


def toggles_to_json(registry: Sequence[Toggle]) -> list[dict[str, Any]]:
    """What `python -m pipeline toggles --json` prints."""
    return [asdict(toggle) for toggle in registry]


def toggles_from_json(raw: Sequence[Mapping[str, Any]]) -> tuple[Toggle, ...]:
    """
    The registry of another source tree, which may know fields that this version does not.

    Raises:
        FormatError: It is not a list of toggles, each with a name and a help text.
    """
    known = set(Toggle.__dataclass_fields__)
    toggles = []
    try:
        for item in raw:
            fields: dict[str, Any] = {key: value for key, value in item.items() if key in known}
            for name in ("needs", "requires"):
                fields[name] = tuple(fields.get(name, ()))
            toggles.append(Toggle(**fields))
    except (AttributeError, TypeError) as error:
        raise FormatError(f"not a registry of toggles: {error}", next_command=LIST_COMMAND) from error
    return tuple(toggles)
