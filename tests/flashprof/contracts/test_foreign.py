"""A declared subject gives each launch what its toggles say, and knows which declarations are the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from declared import DECLARATION, declare

from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.foreign import Edit, ForeignSubject, Setting


@pytest.fixture
def subject(tmp_path: Path) -> ForeignSubject:
    return declare(tmp_path)


def test_every_declared_toggle_is_cold(subject: ForeignSubject) -> None:
    registry = subject.registry()

    assert ["flash", "workers", "buckets", "cudnn", "kind"] == [toggle.name for toggle in registry]
    assert not any(toggle.hot for toggle in registry)
    assert ["on, off", "0..16", "25..100"] == [toggle.allowed for toggle in registry[:3]]


def test_settings_are_those_of_the_values(subject: ForeignSubject) -> None:
    settings = subject.settings(subject.parse("flash,workers=7,buckets"))

    assert Setting(args=("--attn", "flash")) == settings[0]
    assert Setting(args=("--num-workers=7",)) == settings[1]
    assert Setting(env=(("BUCKET_MB", "100"),)) == settings[2]
    assert Setting() == settings[3]


def test_a_number_between_the_declared_ones_is_refused(subject: ForeignSubject) -> None:
    with pytest.raises(UsageError) as raised:
        subject.parse("buckets=50")

    assert "25, 100" == raised.value.allowed


def test_a_toggle_without_the_one_it_requires_is_refused(subject: ForeignSubject) -> None:
    with pytest.raises(UsageError, match="'cudnn' requires flash"):
        subject.parse("all,-flash")


def test_a_toggle_that_is_not_declared_is_unknown(subject: ForeignSubject) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'flash'"):
        subject.parse("flsh")


def test_an_edit_of_just_the_value_keeps_it_a_number() -> None:
    edits = (Edit(file="c.yaml", key="a", value="{value}"), Edit(file="c.yaml", key="b", value="x{value}"))
    setting = Setting(args=("-n", "{value}"), env=(("N", "{value}"),), edits=edits)

    filled = setting.filled(8)

    assert (("-n", "8"), (("N", "8"),)) == (filled.args, filled.env)
    assert [8, "x8"] == [edit.value for edit in filled.edits]


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("Fused attention.", "Another sentence.", True),
        ('"--attn", "flash"', '"--attn", "flash2"', False),
        ("on = 4", "on = 5", False),
        ("LEVEL = 3", "LEVEL = 4", False),
    ],
)
def test_a_fingerprint_is_of_what_a_launch_depends_on(tmp_path: Path, old: str, new: str, is_same: bool) -> None:
    before = declare(tmp_path)
    after = declare(tmp_path, DECLARATION.replace(old, new))

    assert is_same == (before.fingerprint == after.fingerprint)


def test_a_moved_declaration_has_the_same_fingerprint(subject: ForeignSubject) -> None:
    assert subject.fingerprint == replace(subject, path=Path("x.toml"), cwd=Path("/elsewhere")).fingerprint


def test_the_short_placeholder_stands_for_the_only_file(subject: ForeignSubject) -> None:
    assert ("conf.yaml",) == subject.config_files
    assert ("{file:conf.yaml}", "{file}") == subject.placeholders("conf.yaml")
