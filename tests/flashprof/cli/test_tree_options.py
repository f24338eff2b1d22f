"""The subject that gates and searches among commits measure in each tree."""

from __future__ import annotations

from pathlib import Path

import declared
import pytest

from flashprof.cli.tree_options import TreeOptions, declared_in_trees, subject_in_trees
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import SubjectKind, SubjectSpec
from flashprof.contracts.foreign import ForeignSubject

USUAL = "flashprof gate --base-ref main"


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ForeignSubject:
    """What the file in this folder declares."""
    monkeypatch.chdir(tmp_path)
    return declared.declare(tmp_path)


def options(**changes: object) -> TreeOptions:
    given: dict[str, object] = {
        "repo": Path(),
        "setup": "",
        "expression": "none",
        "pattern": "",
        "preset": "tiny",
        "topology": "1+1",
        "seed": 3,
        "train_options": "",
        "settings": (),
        "subject_text": "",
        "command": (),
    }
    return TreeOptions(**{**given, **changes})  # type: ignore[arg-type]


def spec_of(asked: TreeOptions, subject: ForeignSubject | None) -> SubjectSpec:
    return subject_in_trees(asked, asked.subject, subject, usual=USUAL)


def test_a_command_wins_over_a_file_that_merely_lies_here(subject: ForeignSubject) -> None:
    asked = options(command=("python", "train.py"), pattern=r"(\d+) tok")
    spec = spec_of(asked, declared_in_trees(asked, usual=USUAL))
    found = declared_in_trees(options(), usual=USUAL)

    assert found is not None
    assert subject.fingerprint == found.fingerprint
    assert (SubjectKind.FOREIGN, ("python", "train.py"), r"(\d+) tok", 3) == (
        spec.kind,
        spec.command,
        spec.tok_per_s_pattern,
        spec.seed,
    )


def test_our_pipeline_is_had_where_a_file_lies(subject: ForeignSubject) -> None:
    assert subject.toggles
    assert declared_in_trees(options(subject_text="pipeline"), usual=USUAL) is None


def test_a_declared_subject_has_its_toggles_and_its_pattern_unless_another_is_given(subject: ForeignSubject) -> None:
    own = spec_of(options(expression="flash"), subject)
    other = spec_of(options(expression="flash", pattern="x=(.)"), subject)

    assert subject.parse("flash") == subject.parse(own.toggles)
    assert (subject.tok_per_s, "x=(.)", 3) == (own.tok_per_s_pattern, other.tok_per_s_pattern, own.seed)


def test_files_are_each_trees_own_and_are_not_looked_for_here(subject: ForeignSubject, tmp_path: Path) -> None:
    (tmp_path / "train.py").unlink()

    assert SubjectKind.FOREIGN is spec_of(options(), subject).kind


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (options(command=("x",), subject_text="flashprof.toml"), "two subjects"),
        (options(command=("x",), preset="bench"), "--preset is for our own pipeline"),
        (options(command=("x",), expression="swa"), "--toggles is for our own pipeline"),
        (options(command=("x",), pattern="("), "no regular expression"),
        (options(preset="bench"), "--preset is for our own pipeline"),
        (options(pattern="("), "no regular expression"),
        (options(subject_text="pipeline", pattern="x=(.)"), "--tok-per-s is for a command"),
    ],
)
@pytest.mark.usefixtures("subject")
def test_what_does_not_fit_is_refused(asked: TreeOptions, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        spec_of(asked, declared_in_trees(asked, usual=USUAL))

    assert said in refused.value.what
