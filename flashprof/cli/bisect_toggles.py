"""From the options of `flashprof bisect --good … --bad …` to a request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from flashprof.cli.arms import find_runs, parse_arms
from flashprof.cli.bisect_options import COMMIT_SEARCH, TOGGLE_SEARCH, BisectOptions, start_request, with_settings
from flashprof.cli.measured_runs import MeasuredRun, common_subject, common_toggles, read_run, refuse_other_subject
from flashprof.cli.subjects import OWN_COMMAND, find_subject, read_registry, refuse_pipeline_options
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import SubjectKind, SubjectSpec
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.search import SearchKind
from flashprof.contracts.search_request import BisectRequest
from flashprof.contracts.toggles import EXAMPLE


def toggle_request(options: BisectOptions) -> BisectRequest:
    """
    Which toggles are searched, between which ends.

    Raises:
        UsageError: An end is missing, is no expression or run, or both are the same cell.
    """
    _refuse_missing_end(options)
    runs = [(_runs(options.good), "--good"), (_runs(options.bad), "--bad")]
    texts = [common_toggles(name, found) if found else "" for found, name in runs]
    measured = [run for found, _ in runs for run in found]
    experiment = with_settings(options, _subject_of(options, measured) if measured else options.subject)
    declared = find_subject(options.subject_text)
    request = start_request(options, SearchKind.TOGGLES, experiment, declared)
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
    subject = experiment.subject
    if declared is not None:
        subject = _declared(subject, declared, [arms.base.expression, arms.candidate.expression])
    return replace(
        request,
        good=arms.base,
        bad=arms.candidate,
        cold_toggles=arms.cold_toggles,
        upstream_toggles=arms.upstream_toggles,
        subject=replace(subject, toggles=arms.base.expression),
    )


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
