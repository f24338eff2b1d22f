"""From the options of `flashprof gate` to a request: what fits together, and what does not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flashprof.cli.arms import read_settings
from flashprof.cli.option_types import parse_gpu_sets
from flashprof.cli.subjects import (
    OWN_COMMAND,
    check_pattern,
    find_subject,
    read_registry,
    refuse_pipeline_options,
    split_options,
)
from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.experiment import SubjectKind, SubjectSpec
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.gate import MEMORY, PHASE, START_UP, TOK_PER_S, GateRequest, Threshold
from flashprof.contracts.toggles import parse_toggles

USUAL = "flashprof gate --base-ref main"
MAX_SHARE = 10.0
"""1,000 %: a phase may become many times what it was, and nobody means more."""
METRICS = (START_UP, MEMORY, f"{PHASE}ROLE NAME")
EXAMPLE = "--threshold start-up=10% --threshold 'phase:drafter mask=20%'"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """The options of the command line; see their help."""

    base_ref: str
    head_ref: str
    baseline: str
    max_regression: float
    thresholds: tuple[str, ...]
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
    alpha: float
    budget_s: float
    no_explain: bool
    bisect: bool
    bisect_budget_s: float | None
    allow: tuple[str, ...]
    gpu_texts: tuple[str, ...]
    fresh: bool
    reports: Path
    command: tuple[str, ...]
    """What stands behind `--`."""


def read_gate_request(options: GateOptions) -> GateRequest:
    """
    What is asked.

    Raises:
        UsageError: Options are missing or do not fit together, or name nothing that there is.
    """
    _check_base(options)
    subject = SubjectSpec(
        preset=options.preset,
        topology=options.topology,
        seed=options.seed,
        train_options=split_options(options.train_options),
    )
    experiment = read_settings(subject, options.settings)
    thresholds = (
        Threshold(metric=TOK_PER_S, max_regression=options.max_regression),
        *parse_thresholds(options.thresholds),
    )
    gpu_sets = parse_gpu_sets(options.gpu_texts)
    declared = _declared(options)
    return GateRequest(
        thresholds=thresholds,
        base_ref=options.base_ref,
        head_ref=options.head_ref,
        baseline=options.baseline,
        repo=options.repo,
        setup=options.setup,
        command=options.command,
        subject=_subject(options, experiment.subject, declared),
        windows=experiment.windows,
        alpha=options.alpha,
        budget_s=options.budget_s,
        explain=not options.no_explain,
        bisect=options.bisect or options.bisect_budget_s is not None,
        bisect_budget_s=options.bisect_budget_s,
        allow=options.allow,
        gpu_sets=gpu_sets,
        subject_file="" if declared is None else str(declared.path.resolve()),
        fresh=options.fresh,
        reports=options.reports,
    )


def parse_thresholds(texts: Sequence[str]) -> tuple[Threshold, ...]:
    """
    Read `start-up=10%`, `phase:drafter mask=0.2`.

    Raises:
        UsageError: Not of that form, a metric twice, or that of tok/s.
        UnknownNameError: There is no such metric.
    """
    found = tuple(map(_threshold, texts))
    names = [item.metric for item in found]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise UsageError(
            f"{twice} has two thresholds",
            offered=" ".join(texts),
            allowed="one a metric",
            next_command=EXAMPLE,
        )
    return found


def _threshold(text: str) -> Threshold:
    name, equals, share = (part.strip() for part in text.rpartition("="))
    number = _share(share)
    if name == TOK_PER_S:
        raise UsageError(
            "the threshold of tok/s has an option of its own",
            offered=f"--threshold {text}",
            allowed=", ".join(METRICS),
            next_command=f"--max-regression {share}",
        )
    if not equals or number is None:
        raise UsageError(
            f"--threshold does not take {text!r}",
            offered=text,
            allowed="METRIC=SHARE, the share above 0 % and at most 1000 %, written 10% or 0.1",
            next_command=EXAMPLE,
        )
    role, space, phase = name.removeprefix(PHASE).partition(" ")
    is_phase = name.startswith(PHASE) and bool(role and space and phase.strip())
    if name not in (START_UP, MEMORY) and not is_phase:
        raise UnknownNameError("metric", name, METRICS, next_command=EXAMPLE)
    return Threshold(metric=name, max_regression=number)


def _share(text: str) -> float | None:
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return None
    return number if 0 < number <= MAX_SHARE else None


def _check_base(options: GateOptions) -> None:
    if bool(options.base_ref) == bool(options.baseline):
        both = f"--base-ref {options.base_ref} --baseline {options.baseline}"
        raise UsageError(
            "a gate has one base" if options.base_ref else "there is nothing to compare head with",
            offered=both if options.base_ref else None,
            allowed="--base-ref REVISION, measured in this job; or --baseline NAME, measured earlier",
            next_command=USUAL,
        )


def _declared(options: GateOptions) -> ForeignSubject | None:
    """The subject that a file declares; a command behind `--` wins over a file that merely lies here."""
    if not options.command:
        return find_subject(options.subject_text)
    if options.subject_text:
        raise UsageError(
            "--subject and a command behind -- are two subjects",
            offered=f"--subject {options.subject_text}",
            next_command=f"{USUAL} -- CMD",
        )
    return None


def _subject(options: GateOptions, subject: SubjectSpec, declared: ForeignSubject | None) -> SubjectSpec:
    """What base and head have in common."""
    check_pattern(options.pattern)
    if options.command:
        refuse_pipeline_options(
            replace(subject, toggles=options.expression),
            ("preset", "topology", "toggles", "train_options"),
            next_command=f"{USUAL} -- CMD --its-own-options",
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
            next_command=f"{USUAL} --tok-per-s REGEX -- CMD",
        )
    parse_toggles(options.expression, read_registry())
    # As it was written: what `all` is, and what a toggle's default, is each tree's own.
    return replace(subject, toggles="".join(options.expression.split()))


def _declared_subject(options: GateOptions, subject: SubjectSpec, declared: ForeignSubject) -> SubjectSpec:
    from flashprof.app.declared_commits import spec_of_every_commit
    from flashprof.app.foreign_needs import refuse_unmet

    refuse_pipeline_options(subject, ("preset", "topology", "train_options"), next_command=OWN_COMMAND)
    spec = spec_of_every_commit(declared, options.expression, pattern=options.pattern)
    # Files are each tree's own, and so are the packages of an environment that is made for it.
    asked = replace(declared, files=(), packages=() if options.setup else declared.packages)
    refuse_unmet(asked, [declared.parse(options.expression)], os.environ)
    return replace(spec, seed=subject.seed)
