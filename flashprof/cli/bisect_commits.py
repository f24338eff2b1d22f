"""From the options of `flashprof bisect --commits GOOD..BAD` to a request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from flashprof.cli.bisect_options import (
    COMMIT_SEARCH,
    TOGGLE_SEARCH,
    BisectOptions,
    refuse_given,
    start_request,
    with_settings,
)
from flashprof.cli.subjects import OWN_COMMAND, check_pattern, find_subject, read_registry, refuse_pipeline_options
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import SubjectKind, SubjectSpec
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.search import SearchKind
from flashprof.contracts.search_request import BisectRequest
from flashprof.contracts.toggles import Toggle, parse_toggles


def commit_request(options: BisectOptions) -> BisectRequest:
    """
    Which commits are searched, by which command.

    Raises:
        UsageError: It is no range, or options do not fit together.
    """
    refuse_given(options, ("good", "bad"), "and --commits are two questions", TOGGLE_SEARCH)
    commits = _checked_range(options.commits)
    experiment = with_settings(options, options.subject)
    declared = _subject_of_commits(options)
    request = start_request(options, SearchKind.COMMITS, experiment, declared)
    subject = experiment.subject
    if options.command:
        subject = _command_subject(options, subject)
    elif declared is not None:
        subject = _declared_of_commits(options, subject, declared)
    else:
        refuse_given(options, ("pattern",), "is for a command behind --", f"{COMMIT_SEARCH} --tok-per-s REGEX -- CMD")
        subject = replace(subject, toggles=_checked_toggles(options.expression, read_registry()))
    return replace(
        request,
        commits=commits,
        repo=options.repo,
        setup=options.setup,
        command=options.command,
        subject=subject,
    )


def _subject_of_commits(options: BisectOptions) -> ForeignSubject | None:
    """The subject that a file declares; a command behind `--` wins over a file that merely lies here."""
    if not options.command:
        return find_subject(options.subject_text)
    refuse_given(options, ("subject_text",), "and a command behind -- are two subjects", f"{COMMIT_SEARCH} -- CMD")
    return None


def _command_subject(options: BisectOptions, subject: SubjectSpec) -> SubjectSpec:
    refuse_pipeline_options(
        replace(subject, toggles=options.expression),
        ("preset", "topology", "toggles", "train_options"),
        next_command=f"{COMMIT_SEARCH} -- CMD --its-own-options",
    )
    check_pattern(options.pattern)
    return SubjectSpec(
        kind=SubjectKind.FOREIGN,
        command=options.command,
        seed=options.seed,
        tok_per_s_pattern=options.pattern,
    )


def _declared_of_commits(options: BisectOptions, subject: SubjectSpec, declared: ForeignSubject) -> SubjectSpec:
    from flashprof.app.declared_commits import spec_of_every_commit
    from flashprof.app.foreign_needs import refuse_unmet

    refuse_pipeline_options(subject, ("preset", "topology", "train_options"), next_command=OWN_COMMAND)
    check_pattern(options.pattern)
    spec = spec_of_every_commit(declared, options.expression, pattern=options.pattern)
    # Files are each commit's own, and so are the packages of an environment that is made for it.
    asked = replace(declared, files=(), packages=() if options.setup else declared.packages)
    refuse_unmet(asked, [declared.parse(options.expression)], os.environ)
    return replace(spec, seed=subject.seed)


def _checked_toggles(expression: str, registry: Sequence[Toggle]) -> str:
    """As it was written: what `all` is, and what a toggle's default, is each commit's own."""
    parse_toggles(expression, registry)
    return "".join(expression.split())


def _checked_range(text: str) -> str:
    good, dots, bad = (part.strip() for part in text.partition(".."))
    if not (good and dots and bad) or bad.startswith(".") or ".." in bad:
        raise UsageError(
            f"{text!r} is no range of commits",
            offered=f"--commits {text}",
            allowed="GOOD..BAD: the last commit known to be fast, two dots, one known to be slow",
            next_command=f"flashprof bisect --commits {good if good and not dots else 'v1.0'}..HEAD",
        )
    if good == bad:
        raise UsageError(
            f"good and bad are the same commit: {good}",
            offered=f"--commits {text}",
            allowed="two commits, the fast one first",
            next_command=f"flashprof bisect --commits {good}..HEAD",
        )
    return f"{good}..{bad}"
