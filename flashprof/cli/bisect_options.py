"""The options of `flashprof bisect`, and what searches of both kinds read from them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashprof.cli.arms import NO_SETTINGS
from flashprof.cli.option_types import parse_gpu_sets
from flashprof.cli.tree_options import TreeOptions
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import Experiment, SubjectSpec, apply_settings
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.search import SearchKind, SearchRule
from flashprof.contracts.search_request import BisectRequest

TOGGLE_SEARCH = "flashprof bisect --good all --bad none"
COMMIT_SEARCH = "flashprof bisect --commits GOOD..BAD"


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectOptions(TreeOptions):
    """The options of the command line; see their help."""

    good: str
    bad: str
    commits: str
    certainty: float
    alpha: float
    tolerance: float
    budget_s: float
    no_confirm: bool
    no_explain: bool
    allow: tuple[str, ...]
    gpu_texts: tuple[str, ...]
    resume: bool
    search: str
    fresh: bool
    dry_run: bool
    inconclusive: str | None
    reports: Path
    as_json: bool
    given: Collection[str]
    """Names of the options that are on the command line, as fields of this class."""

    @property
    def rule(self) -> SearchRule:
        """When to stop."""
        return SearchRule(certainty=self.certainty, alpha=self.alpha, tolerance=self.tolerance, budget_s=self.budget_s)


def with_settings(options: BisectOptions, subject: SubjectSpec) -> Experiment:
    """
    The subject and its windows with what `--set` says.

    Raises:
        UsageError: A setting does nothing in a search.
    """
    experiment = apply_settings(Experiment(subject=subject), options.settings)
    for setting in options.settings:
        if setting.startswith(NO_SETTINGS):
            raise UsageError(
                f"--set {setting} does nothing in a search",
                offered=setting,
                allowed="windows.…, subject.preset, subject.topology, subject.seed",
                next_command="flashprof bisect --help",
            )
    return experiment


def start_request(
    options: BisectOptions, kind: SearchKind, experiment: Experiment, declared: ForeignSubject | None
) -> BisectRequest:
    """
    What searches of both kinds ask, without what they search.

    Args:
        options: Of this call.
        kind: Of search.
        experiment: The subject and its windows, `--set` included.
        declared: The subject that a file declares; None for our pipeline, or a command.
    """
    return BisectRequest(
        kind=kind,
        subject=experiment.subject,
        subject_file="" if declared is None else str(declared.path.resolve()),
        windows=experiment.windows,
        rule=options.rule,
        confirm=not options.no_confirm,
        explain=not options.no_explain,
        allow=options.allow,
        gpu_sets=parse_gpu_sets(options.gpu_texts),
        fresh=options.fresh,
        reports=options.reports,
    )


def refuse_given(options: BisectOptions, names: Sequence[str], why: str, next_command: str) -> None:
    """
    Make sure that no option is on the command line which means nothing there.

    Args:
        options: Of this call.
        names: Of such options, as fields.
        why: What follows the option in the message.
        next_command: What the user may do instead.

    Raises:
        UsageError: One of them is.
    """
    given = [name for name in names if name in options.given]
    if given:
        option = spelled(given[0])
        raise UsageError(f"{option} {why}", offered=option, next_command=next_command)


def spelled(name: str) -> str:
    """A field as the command line spells it."""
    odd = {
        "expression": "--toggles",
        "pattern": "--tok-per-s",
        "train_options": "--train",
        "settings": "--set",
        "subject_text": "--subject",
        "gpu_texts": "--gpus",
        "budget_s": "--budget",
        "as_json": "--json",
    }
    return odd.get(name, f"--{name.replace('_', '-')}")
