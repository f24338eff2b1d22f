"""What `flashprof gate` and a search among commits have in common: options of a subject that is measured in trees."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from flashprof.cli.subjects import (
    OWN_COMMAND,
    check_pattern,
    find_subject,
    read_registry,
    refuse_pipeline_options,
    split_options,
)
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import SubjectKind, SubjectSpec
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.toggles import parse_toggles

OWN_OPTIONS = ("preset", "topology", "train_options")
"""Of our pipeline, and of no other subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOptions:
    """Where the trees come from, and what is measured in each; see the options' help."""

    repo: Path
    setup: str
    expression: str
    pattern: str
    preset: str
    topology: str
    seed: int
    train_options: str
    settings: tuple[str, ...]
    subject_text: str
    command: tuple[str, ...]
    """What stands behind `--`."""

    @property
    def subject(self) -> SubjectSpec:
        """Our pipeline's."""
        return SubjectSpec(
            preset=self.preset,
            topology=self.topology,
            seed=self.seed,
            train_options=split_options(self.train_options),
        )


def declared_in_trees(options: TreeOptions, *, usual: str) -> ForeignSubject | None:
    """
    The subject that a file declares; a command behind `--` wins over a file that merely lies here.

    Args:
        options: Of this call.
        usual: The command to offer, without options of its own.

    Raises:
        UsageError: The declaration is missing or wrong, or there are two subjects.
    """
    if not options.command:
        return find_subject(options.subject_text)
    if options.subject_text:
        raise UsageError(
            "--subject and a command behind -- are two subjects",
            offered=f"--subject {options.subject_text}",
            next_command=f"{usual} -- CMD",
        )
    return None


def subject_in_trees(
    options: TreeOptions, subject: SubjectSpec, declared: ForeignSubject | None, *, usual: str
) -> SubjectSpec:
    """
    What all trees have in common.

    Args:
        options: Of this call.
        subject: Our pipeline's, `--set` included.
        declared: From `declared_in_trees`.
        usual: The command to offer, without options of its own.

    Raises:
        UsageError: An option means nothing for this subject, or names no toggle.
    """
    if options.command:
        check_pattern(options.pattern)
        refuse_pipeline_options(
            replace(subject, toggles=options.expression),
            (*OWN_OPTIONS, "toggles"),
            next_command=f"{usual} -- CMD --its-own-options",
        )
        return SubjectSpec(
            kind=SubjectKind.FOREIGN,
            command=options.command,
            seed=options.seed,
            tok_per_s_pattern=options.pattern,
        )
    if declared is not None:
        return _declared_subject(options, subject, declared)
    if options.pattern:
        raise UsageError(
            "--tok-per-s is for a command behind --",
            offered=f"--tok-per-s {options.pattern}",
            next_command=f"{usual} --tok-per-s REGEX -- CMD",
        )
    parse_toggles(options.expression, read_registry())
    # As it was written: what `all` is, and what a toggle's default, is each tree's own.
    return replace(subject, toggles="".join(options.expression.split()))


def _declared_subject(options: TreeOptions, subject: SubjectSpec, declared: ForeignSubject) -> SubjectSpec:
    from flashprof.app.declared_commits import spec_of_every_commit
    from flashprof.app.foreign_needs import refuse_unmet

    refuse_pipeline_options(subject, OWN_OPTIONS, next_command=OWN_COMMAND)
    check_pattern(options.pattern)
    spec = spec_of_every_commit(declared, options.expression, pattern=options.pattern)
    # Files are each tree's own, and so are the packages of an environment that is made for it.
    asked = replace(declared, files=(), packages=() if options.setup else declared.packages)
    refuse_unmet(asked, [declared.parse(options.expression)], os.environ)
    return replace(spec, seed=subject.seed)
