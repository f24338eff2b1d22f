"""From the options of `flashprof bisect --commits GOOD..BAD` to a request."""

from __future__ import annotations

from dataclasses import replace

from flashprof.cli.bisect_options import (
    COMMIT_SEARCH,
    TOGGLE_SEARCH,
    BisectOptions,
    refuse_given,
    start_request,
    with_settings,
)
from flashprof.cli.tree_options import declared_in_trees, subject_in_trees
from flashprof.contracts.errors import UsageError
from flashprof.contracts.search import SearchKind
from flashprof.contracts.search_request import BisectRequest


def commit_request(options: BisectOptions) -> BisectRequest:
    """
    Which commits are searched, by which command.

    Raises:
        UsageError: It is no range, or options do not fit together.
    """
    refuse_given(options, ("good", "bad"), "and --commits are two questions", TOGGLE_SEARCH)
    commits = _checked_range(options.commits)
    experiment = with_settings(options, options.subject)
    declared = declared_in_trees(options, usual=COMMIT_SEARCH)
    request = start_request(options, SearchKind.COMMITS, experiment, declared)
    return replace(
        request,
        commits=commits,
        repo=options.repo,
        setup=options.setup,
        command=options.command,
        subject=subject_in_trees(options, experiment.subject, declared, usual=COMMIT_SEARCH),
    )


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
