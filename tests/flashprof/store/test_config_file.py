"""A config file is edited on a copy: what is edited changes, nothing else does, and the user's file stays as it is."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.foreign import Edit
from flashprof.store.config_file import check_edits, write_copy

FILES = {
    "c.yaml": "model:\n  attn: eager\n  1: one\nlayers: [{kind: a}, {kind: b}]\nlr: 1e-4\n",
    "c.json": '{"model": {"attn": "eager", "1": "one"}, "layers": [{"kind": "a"}, {"kind": "b"}], "lr": 1e-4}',
    "c.toml": 'lr = 1e-4\n[model]\nattn = "eager"\n1 = "one"\n[[layers]]\nkind = "a"\n[[layers]]\nkind = "b"\n',
}
READ = {".yaml": yaml.safe_load, ".json": json.loads, ".toml": tomllib.loads}


def edited(tmp_path: Path, name: str, *edits: tuple[str, Any], create: bool = False) -> Any:
    source = tmp_path / name
    source.write_text(FILES[name])
    target = tmp_path / "copies" / name
    write_copy(source, [Edit(file=name, key=key, value=value, may_create=create) for key, value in edits], target)

    assert FILES[name] == source.read_text()
    return READ[source.suffix](target.read_text())


@pytest.mark.parametrize("name", FILES)
def test_an_edit_changes_its_key_and_nothing_else(tmp_path: Path, name: str) -> None:
    before = edited(tmp_path, name)
    after = edited(tmp_path, name, ("model.attn", "flash"), ("layers.1.kind", 7))

    assert READ[f".{name[2:]}"](FILES[name]) == before
    assert ("flash", 7) == (after["model"]["attn"], after["layers"][1]["kind"])
    after["model"]["attn"], after["layers"][1]["kind"] = "eager", "b"
    assert before == after


def test_a_key_that_is_a_number_is_found(tmp_path: Path) -> None:
    assert {"attn": "eager", 1: "two"} == edited(tmp_path, "c.yaml", ("model.1", "two"))["model"]


@pytest.mark.parametrize(
    ("key", "hint"), [("model.atn", "attn"), ("modle.attn", "model"), ("layers.2.kind", "1"), ("lr.x", "none")]
)
def test_a_key_that_is_not_there_is_refused(tmp_path: Path, key: str, hint: str) -> None:
    with pytest.raises(UnknownNameError) as raised:
        edited(tmp_path, "c.yaml", (key, 1))

    assert hint in str(raised.value.allowed)
    assert key == raised.value.offered
    assert "create = true" in str(raised.value.next_command)


def test_a_key_may_be_made_where_that_is_said(tmp_path: Path) -> None:
    content = edited(tmp_path, "c.yaml", ("optim.fused", True), create=True)

    assert {"fused": True} == content["optim"]


@pytest.mark.parametrize(
    ("name", "text"), [("c.yaml", "a: [1"), ("c.yaml", "a: !!python/object:x {}"), ("c.json", "{"), ("c.toml", "=")]
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=f"is no {name[2:].upper()}") as raised:
        check_edits(tmp_path, [Edit(file=name, key="a", value=1)], where="here")

    assert str(tmp_path / name) == raised.value.where


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("depth", [5000, 50_000])
def test_a_file_that_is_nested_too_deep_is_refused_before_anything_starts(
    tmp_path: Path, name: str, depth: int
) -> None:
    inner = "[" * depth + "]" * depth
    (tmp_path / name).write_text(f"a = {inner}\n" if name == "c.toml" else f'{{"a": {inner}}}')
    with pytest.raises(UsageError, match="nested too deep") as raised:
        check_edits(tmp_path, [Edit(file=name, key="a", value=1)], where="here")

    assert str(tmp_path / name) == raised.value.where
    assert raised.value.next_command


def test_half_a_character_stays_what_it_is(tmp_path: Path) -> None:
    source, target = tmp_path / "c.json", tmp_path / "copy.json"
    source.write_text('{"a": "\\ud800 \\u00e4 \\\\", "b": 0}')
    write_copy(source, [Edit(file="c.json", key="b", value=1)], target)

    assert {"a": "\ud800 \u00e4 \\", "b": 1} == json.loads(target.read_text(encoding="utf-8"))


def test_checking_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(FILES["c.json"])
    check_edits(tmp_path, [Edit(file="c.json", key="lr", value=1)], where="here")

    assert ["c.json"] == [path.name for path in tmp_path.iterdir()]
    assert FILES["c.json"] == (tmp_path / "c.json").read_text()


PLAIN = st.one_of(
    st.booleans(), st.integers(-(2**53), 2**53), st.text(st.characters(codec="utf-8", exclude_categories=["C"]))
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(value=PLAIN, other=PLAIN, suffix=st.sampled_from(sorted(READ)))
def test_any_plain_value_survives_the_copy(tmp_path: Path, value: object, other: object, suffix: str) -> None:
    source, target = tmp_path / f"s{suffix}", tmp_path / "copy" / f"s{suffix}"
    source.write_text('{"a": 0, "b": 0}' if suffix != ".toml" else "a = 0\nb = 0\n")
    edits = [Edit(file=source.name, key="a", value=value), Edit(file=source.name, key="b", value=other)]  # type: ignore[arg-type]
    write_copy(source, edits, target)

    assert {"a": value, "b": other} == READ[suffix](target.read_text(encoding="utf-8"))
