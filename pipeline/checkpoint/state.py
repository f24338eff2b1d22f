"""
What a checkpoint says about its run, as `state.json`: enough to resume it, to evaluate it and to export it.

Light at import: `DrafterShape` lives beside torch code, so torch comes in when a state is read, not before.

Format history
    1.0  2026-11  step, tokens, seed, preset, toggles, topology, and the widths of drafter and target

A field that is added raises the minor, and the reader then gives older files its value; a field whose meaning changes
raises the major.
"""

from __future__ import annotations

import json
import types
import typing
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from flashprof.contracts.errors import FormatError
from flashprof.contracts.toggles import ToggleValues
from pipeline.presets import BUCKETED, SLIDING, Preset

if TYPE_CHECKING:
    from pipeline.model.shape import DrafterShape

FORMAT = "flashprof-checkpoint"
MAJOR = 1
MINOR = 1


@dataclass(frozen=True, kw_only=True)
class CheckpointState:
    """A run at the end of one of its steps."""

    step: int
    """Optimizer steps taken; the next one to run has this number."""
    num_tokens: int
    """Input tokens trained on by all drafters, padding excluded."""
    seed: int
    num_steps: int
    """Steps that the run was to take, which the schedule of the learning rate depends on; 0: until stopped."""
    preset: Preset
    toggles: ToggleValues
    """As in force at this step: hot ones may have changed since the start."""
    topology: str
    mask_token_id: int
    layer_ids: tuple[int, ...]
    """Tapped target layers, in the order in which their outputs are joined."""
    shape: DrafterShape
    num_target_layers: int
    vocab_size: int
    max_positions: int
    """Positions that the target was made for."""

    @property
    def layer_types(self) -> tuple[str, ...]:
        """The kind of attention that each layer was trained with; under the toggle `swa` all slide."""
        planned = self.preset.drafter.layer_types
        return (SLIDING,) * len(planned) if self.toggles.get("swa") else planned


def state_to_json(state: CheckpointState) -> str:
    """The text of `state.json`."""
    document = {"format": FORMAT, "version": f"{MAJOR}.{MINOR}", **asdict(state)}
    return json.dumps(document, indent=2) + "\n"


def state_from_json(text: str, *, where: str) -> CheckpointState:
    """
    Read what `state_to_json` wrote; fields of a newer minor version are passed over.

    Args:
        text: Content of `state.json`.
        where: The file, for messages.

    Raises:
        FormatError: It is no state, one of another major version, or a field is missing or of the wrong type.
    """
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise FormatError("not a checkpoint's state: nested too deep", where=where) from error
    except ValueError as error:
        raise FormatError(f"not a checkpoint's state: {error}", where=where) from error
    if not isinstance(document, dict):
        raise FormatError("not a checkpoint's state: no JSON object", where=where)
    _check_version(document, where)
    _add_later(document)
    state: CheckpointState = _decode(CheckpointState, document, where, "")
    return state


def _check_version(document: dict[str, Any], where: str) -> None:
    version = str(document.get("version"))
    if document.get("format") == FORMAT and version.partition(".")[0] == str(MAJOR):
        return
    raise FormatError(
        f"checkpoint format {document.get('format')} version {version} is not known",
        where=where,
        allowed=f"{FORMAT} version {MAJOR}.{MINOR}, and any other {MAJOR}.x",
        next_command="read it with the FlashProf that wrote it",
    )


def _add_later(document: dict[str, Any]) -> None:
    """What files of version 1.0 cannot have: `preset.data.batches`, and theirs were all bucketed."""
    preset = document.get("preset")
    data = preset.get("data") if isinstance(preset, dict) else None
    if document["version"] == f"{MAJOR}.0" and isinstance(data, dict):
        data.setdefault("batches", BUCKETED)


def _decode(kind: Any, raw: Any, where: str, name: str) -> Any:
    """*raw* as an instance of *kind*; *name* is the path of the field, such as `preset.recipe.lr`."""
    if is_dataclass(kind) and isinstance(kind, type):
        return _decode_fields(kind, raw, where, name)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and isinstance(raw, list):
        return tuple(_decode(arguments[0], item, where, f"{name}[{index}]") for index, item in enumerate(raw))
    if origin is dict and isinstance(raw, dict):
        return {key: _decode(arguments[1], value, where, f"{name}.{key}") for key, value in raw.items()}
    allowed = arguments if origin is types.UnionType else (kind,)
    # Not `isinstance`: True is an int.
    if type(raw) in allowed:
        return raw
    if float in allowed and type(raw) is int:
        return float(raw)
    raise FormatError(
        f"field {name!r} is of the wrong type", where=where, offered=json.dumps(raw)[:80], allowed=_name_of(kind)
    )


def _decode_fields(kind: type, raw: Any, where: str, name: str) -> Any:
    if not isinstance(raw, dict):
        raise FormatError(f"field {name!r} is of the wrong type", where=where, allowed="a JSON object")
    prefix = f"{name}." if name else ""
    hints = _field_types(kind)
    missing = [prefix + field.name for field in fields(kind) if field.name not in raw]
    if missing:
        raise FormatError(f"fields are missing: {', '.join(missing)}", where=where)
    return kind(**{field: _decode(hints[field], raw[field], where, prefix + field) for field in hints})


def _field_types(kind: type) -> dict[str, Any]:
    from pipeline.model.shape import DrafterShape

    return typing.get_type_hints(kind, localns={"DrafterShape": DrafterShape})


def _name_of(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
