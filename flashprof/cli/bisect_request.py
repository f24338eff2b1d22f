"""From the options of `flashprof bisect` to a request: what fits together, and what does not."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flashprof.cli.arms import NO_SETTINGS, find_runs, parse_arms
from flashprof.cli.measured_runs import MeasuredRun, common_subject, common_toggles, read_run, refuse_other_subject
from flashprof.cli.option_types import parse_gpu_sets
from flashprof.cli.subjects import OWN_COMMAND, find_subject, read_registry, refuse_pipeline_options, split_options
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import Experiment, SubjectKind, SubjectSpec, apply_settings
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.search import SearchKind, SearchRule
from flashprof.contracts.search_request import BisectRequest
from flashprof.contracts.toggles import EXAMPLE, Toggle, parse_toggles

TOGGLE_SEARCH = "flashprof bisect --good all --bad none"
COMMIT_SEARCH = "flashprof bisect --commits GOOD..BAD"
COMMIT_OPTIONS = ("repo", "setup", "expression", "pattern")
"""Mean nothing where toggles are searched."""
RESUME_OPTIONS = (
    *("resume", "search", "reports", "budget_s", "certainty", "alpha", "tolerance", "no_confirm", "no_explain"),
    *("dry_run", "inconclusive", "as_json"),
)
"""May differ from call to call; all else is the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectOptions:
    """The options of the command line; see their help."""

    good: str
    bad: str
    commits: str
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
    command: tuple[str, ...]
    """What stands behind `--`."""
    given: Collection[str]
    """Names of the options that are on the command line, as fields of this class."""

    @property
    def rule(self) -> SearchRule:
        """When to stop."""
        return SearchRule(certainty=self.certainty, alpha=self.alpha, tolerance=self.tolerance, budget_s=self.budget_s)

    @property
    def subject(self) -> SubjectSpec:
        """Our pipeline's."""
        return SubjectSpec(
            preset=self.preset,
            topology=self.topology,
            seed=self.seed,
            train_options=split_options(self.train_options),
        )


def read_request(options: BisectOptions) -> BisectRequest:
    """
    What is asked.

    Raises:
        UsageError: Options are missing or do not fit together, or name nothing that there is.
    """
    _refuse_search_name(options)
    if options.commits:
        return _commit_request(options)
    _refuse_given(options, COMMIT_OPTIONS, "is for a search among commits", COMMIT_SEARCH)
    if options.command:
        raise UsageError(
            "a command behind -- is for a search among commits",
            offered=f"-- {' '.join(options.command)}",
            allowed="our pipeline, or a trainer whose toggles flashprof.toml declares (docs/foreign.md)",
            next_command=f"{COMMIT_SEARCH} -- {' '.join(options.command)}",
        )
    return _toggle_request(options)


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
        name = _spelled(others[0]) if others else "--"
        raise UsageError(
            f"{name} does not go with --resume: the question is read from the search's folder",
            offered=" ".join([*map(_spelled, others), *(["-- CMD"] if options.command else [])]),
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


def _toggle_request(options: BisectOptions) -> BisectRequest:
    _refuse_missing_end(options)
    gpu_sets = parse_gpu_sets(options.gpu_texts)
    runs = [(_runs(options.good), "--good"), (_runs(options.bad), "--bad")]
    texts = [common_toggles(name, found) if found else "" for found, name in runs]
    measured = [run for found, _ in runs for run in found]
    experiment = _with_settings(options, _subject_of(options, measured) if measured else options.subject)
    subject = experiment.subject
    declared = find_subject(options.subject_text)
    # Asking our pipeline for its toggles takes a process: what can be refused without it is refused before.
    registry = read_registry(declared)
    good, bad = (toggles or text for toggles, text in zip(texts, (options.good, options.bad), strict=True))
    arms = parse_arms(good, bad, registry)
    if arms.is_one_cell:
        raise UsageError(
            f"good and bad are the same cell: {arms.base.expression}",
            offered=f"--good {options.good} --bad {options.bad}",
            allowed="two ends that differ in a toggle",
            next_command=TOGGLE_SEARCH,
        )
    if declared is not None:
        subject = _declared(subject, declared, [arms.base.expression, arms.candidate.expression])
    return BisectRequest(
        kind=SearchKind.TOGGLES,
        good=arms.base,
        bad=arms.candidate,
        cold_toggles=arms.cold_toggles,
        upstream_toggles=arms.upstream_toggles,
        subject=replace(subject, toggles=arms.base.expression),
        subject_file=_full_path(declared),
        windows=experiment.windows,
        rule=options.rule,
        confirm=not options.no_confirm,
        explain=not options.no_explain,
        allow=options.allow,
        gpu_sets=gpu_sets,
        fresh=options.fresh,
        reports=options.reports,
    )


def _commit_request(options: BisectOptions) -> BisectRequest:
    _refuse_given(options, ("good", "bad"), "and --commits are two questions", TOGGLE_SEARCH)
    commits, gpu_sets = _checked_range(options.commits), parse_gpu_sets(options.gpu_texts)
    experiment = _with_settings(options, options.subject)
    subject = experiment.subject
    declared = _subject_of_commits(options)
    if options.command:
        subject = _command_subject(options, subject)
    elif declared is not None:
        subject = _declared_of_commits(options, subject, declared)
    else:
        _refuse_given(options, ("pattern",), "is for a command behind --", f"{COMMIT_SEARCH} --tok-per-s REGEX -- CMD")
        subject = replace(subject, toggles=_checked_toggles(options.expression, read_registry()))
    return BisectRequest(
        kind=SearchKind.COMMITS,
        commits=commits,
        repo=options.repo,
        setup=options.setup,
        command=options.command,
        subject=subject,
        subject_file=_full_path(declared),
        windows=experiment.windows,
        rule=options.rule,
        confirm=not options.no_confirm,
        explain=not options.no_explain,
        allow=options.allow,
        gpu_sets=gpu_sets,
        fresh=options.fresh,
        reports=options.reports,
    )


def _subject_of_commits(options: BisectOptions) -> ForeignSubject | None:
    """The subject that a file declares; a command behind `--` wins over a file that merely lies here."""
    if not options.command:
        return find_subject(options.subject_text)
    _refuse_given(options, ("subject_text",), "and a command behind -- are two subjects", f"{COMMIT_SEARCH} -- CMD")
    return None


def _command_subject(options: BisectOptions, subject: SubjectSpec) -> SubjectSpec:
    refuse_pipeline_options(
        replace(subject, toggles=options.expression),
        ("preset", "topology", "toggles", "train_options"),
        next_command=f"{COMMIT_SEARCH} -- CMD --its-own-options",
    )
    _check_pattern(options.pattern)
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
    _check_pattern(options.pattern)
    spec = spec_of_every_commit(declared, options.expression, pattern=options.pattern)
    # Files are each commit's own, and so are the packages of an environment that is made for it.
    asked = replace(declared, files=(), packages=() if options.setup else declared.packages)
    refuse_unmet(asked, [declared.parse(options.expression)], os.environ)
    return replace(spec, seed=subject.seed)


def _full_path(declared: ForeignSubject | None) -> str:
    return "" if declared is None else str(declared.path.resolve())


def _refuse_missing_end(options: BisectOptions) -> None:
    missing = [name for name in ("good", "bad") if name not in options.given]
    if len(missing) == 2:
        raise UsageError(
            "there is nothing to bisect",
            allowed="--good and --bad (toggle expressions or runs), --commits GOOD..BAD, or --resume",
            next_command=f"{TOGGLE_SEARCH}, or {COMMIT_SEARCH}",
        )
    if missing:
        (other,) = {"good", "bad"} - set(missing)
        raise UsageError(
            f"--{missing[0]} is missing: a search needs both ends",
            offered=f"--{other} {getattr(options, other)}",
            allowed=f"{EXAMPLE}; or a folder with runs",
            next_command=TOGGLE_SEARCH,
        )
    for name in ("good", "bad"):
        if not getattr(options, name).strip():
            raise UsageError(f"--{name} is empty", offered=f"--{name} ''", allowed=EXAMPLE, next_command=TOGGLE_SEARCH)


def _runs(text: str) -> list[MeasuredRun]:
    return [read_run(path) for path in find_runs(text)]


def _subject_of(options: BisectOptions, runs: Sequence[MeasuredRun]) -> SubjectSpec:
    """Of the runs; what the user says of it must not be another one."""
    subject = common_subject(runs)
    if subject.kind is SubjectKind.FOREIGN:
        raise UsageError(
            "a run of a foreign trainer cannot be an end",
            offered=str(runs[0].path),
            allowed="a run of our pipeline, or a toggle expression",
            next_command=TOGGLE_SEARCH,
        )
    asked = options.subject
    said = [name for name in ("preset", "topology", "seed", "train_options") if name in options.given]
    told = replace(subject, **{name: getattr(asked, name) for name in said})
    refuse_other_subject(subject, told, where=f"the run {runs[0].path.name} and what the options say")
    return SubjectSpec(
        preset=subject.preset, topology=subject.topology, seed=subject.seed, train_options=subject.train_options
    )


def _declared(subject: SubjectSpec, declared: ForeignSubject, expressions: Sequence[str]) -> SubjectSpec:
    from flashprof.app.foreign import declared_spec
    from flashprof.app.foreign_needs import refuse_unmet

    refuse_pipeline_options(subject, ("preset", "topology", "train_options"), next_command=OWN_COMMAND)
    refuse_unmet(declared, [declared.parse(expression) for expression in expressions], os.environ)
    # The seed draws the order of readings; the trainer never sees it.
    return replace(declared_spec(declared, expressions[0]), seed=subject.seed)


def _with_settings(options: BisectOptions, subject: SubjectSpec) -> Experiment:
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


def _check_pattern(pattern: str) -> None:
    """Before anything is started."""
    from flashprof.app.log_readings import compile_pattern

    if pattern:
        compile_pattern(pattern)


def _refuse_given(options: BisectOptions, names: Sequence[str], why: str, next_command: str) -> None:
    given = [name for name in names if name in options.given]
    if given:
        option = _spelled(given[0])
        raise UsageError(f"{option} {why}", offered=option, next_command=next_command)


def _spelled(name: str) -> str:
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
