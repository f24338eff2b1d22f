"""From the options of `flashprof bisect` to a request: what fits together, and what does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flashprof.cli.bisect_commits import commit_request
from flashprof.cli.bisect_options import COMMIT_SEARCH, BisectOptions, refuse_given, spelled
from flashprof.cli.bisect_toggles import toggle_request
from flashprof.contracts.errors import UsageError
from flashprof.contracts.search_request import BisectRequest

COMMIT_OPTIONS = ("repo", "setup", "expression", "pattern")
"""Mean nothing where toggles are searched."""
RESUME_OPTIONS = (
    *("resume", "search", "reports", "budget_s", "certainty", "alpha", "tolerance", "no_confirm", "no_explain"),
    *("dry_run", "inconclusive", "as_json"),
)
"""May differ from call to call; all else is the question."""


def read_request(options: BisectOptions) -> BisectRequest:
    """
    What is asked.

    Raises:
        UsageError: Options are missing or do not fit together, or name nothing that there is.
    """
    _refuse_search_name(options)
    if options.commits:
        return commit_request(options)
    refuse_given(options, COMMIT_OPTIONS, "is for a search among commits", COMMIT_SEARCH)
    if options.command:
        raise UsageError(
            "a command behind -- is for a search among commits",
            offered=f"-- {' '.join(options.command)}",
            allowed="our pipeline, or a trainer whose toggles flashprof.toml declares (docs/foreign.md)",
            next_command=f"{COMMIT_SEARCH} -- {' '.join(options.command)}",
        )
    return toggle_request(options)


def resumed_request(options: BisectOptions, stored: BisectRequest, *, reports: Path) -> BisectRequest:
    """
    A stored request with what this call says otherwise.

    Args:
        options: Of this call.
        stored: The request of the search's latest call.
        reports: Where the search lies now.

    Raises:
        UsageError: An option that would make another question of it.
    """
    others = sorted(set(options.given) - set(RESUME_OPTIONS))
    if others or options.command:
        name = spelled(others[0]) if others else "--"
        raise UsageError(
            f"{name} does not go with --resume: the question is read from the search's folder",
            offered=" ".join([*map(spelled, others), *(["-- CMD"] if options.command else [])]),
            allowed="--budget, --certainty, --alpha, --tolerance, --no-confirm, --no-explain, --search, --reports, "
            "--json",
            next_command="flashprof bisect --resume, or the same command without --resume",
        )
    changed = {
        name: getattr(options.rule, name)
        for name in ("certainty", "alpha", "tolerance", "budget_s")
        if name in options.given
    }
    return replace(
        stored,
        rule=replace(stored.rule, **changed),
        confirm=stored.confirm and not options.no_confirm,
        explain=stored.explain and not options.no_explain,
        fresh=False,
        reports=reports,
    )


def _refuse_search_name(options: BisectOptions) -> None:
    if options.search:
        raise UsageError(
            "--search names a search that there is already",
            offered=f"--search {options.search}",
            allowed="--search together with --resume",
            next_command=f"flashprof bisect --resume --search {options.search}",
        )
