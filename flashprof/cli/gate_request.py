"""From the options of `flashprof gate` to a request: what fits together, and what does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashprof.cli.arms import read_settings
from flashprof.cli.option_types import parse_gpu_sets
from flashprof.cli.tree_options import TreeOptions, declared_in_trees, subject_in_trees
from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.gate import MEMORY, PHASE, START_UP, TOK_PER_S, GateRequest, Threshold

USUAL = "flashprof gate --base-ref main"
MAX_SHARE = 10.0
"""1,000 %: a phase may become many times what it was, and nobody means more."""
METRICS = (START_UP, MEMORY, f"{PHASE}ROLE NAME")
EXAMPLE = "--threshold start-up=10% --threshold 'phase:drafter mask=20%'"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions(TreeOptions):
    """The options of the command line; see their help."""

    base_ref: str
    head_ref: str
    baseline: str
    max_regression: float
    thresholds: tuple[str, ...]
    alpha: float
    budget_s: float
    no_explain: bool
    bisect: bool
    bisect_budget_s: float | None
    allow: tuple[str, ...]
    gpu_texts: tuple[str, ...]
    fresh: bool
    reports: Path


def read_gate_request(options: GateOptions) -> GateRequest:
    """
    What is asked.

    Raises:
        UsageError: Options are missing or do not fit together, or name nothing that there is.
    """
    _check_base(options)
    experiment = read_settings(options.subject, options.settings)
    thresholds = (
        Threshold(metric=TOK_PER_S, max_regression=options.max_regression),
        *parse_thresholds(options.thresholds),
    )
    gpu_sets = parse_gpu_sets(options.gpu_texts)
    declared = declared_in_trees(options, usual=USUAL)
    return GateRequest(
        thresholds=thresholds,
        base_ref=options.base_ref,
        head_ref=options.head_ref,
        baseline=options.baseline,
        repo=options.repo,
        setup=options.setup,
        command=options.command,
        subject=subject_in_trees(options, experiment.subject, declared, usual=USUAL),
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
