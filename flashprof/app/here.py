"""
Is the tree that is checked out as fast as some runs, or as slow as others? For `git bisect run`.

The runs were measured at another time, so drift of the machine since then is not told apart from the tree: a search
with `flashprof bisect --commits` measures both ends again, and is the better answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist, fmean, stdev

from flashprof.app.existing import recorded_windows
from flashprof.app.foreign import DeclaredLauncher, at_values
from flashprof.app.judging import launch_rate
from flashprof.app.progress import Progress
from flashprof.app.run import run
from flashprof.app.session import Ports
from flashprof.app.subject import launch_command
from flashprof.contracts.errors import SubjectError, ToolError, UsageError
from flashprof.contracts.experiment import Experiment, Output, Sampling
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search_request import HereRequest, HereResult, HereStatus
from flashprof.store.tail import read_event_logs
from flashprof.windows.switches import undisturbed
from flashprof.windows.table import build_windows

LEAST_SD = 0.01
"""Of launches' log tok/s: two runs that happen to agree to 0.1 % say nothing of the third."""
MAX_LAUNCHES = 5


@dataclass(frozen=True, kw_only=True)
class _Levels:
    """What the runs say; log tok/s."""

    good: float
    bad: float
    sd: float
    """Of one launch."""
    error: float
    """Standard error of the middle between both."""


def here(request: HereRequest, ports: Ports, progress: Progress) -> HereResult:
    """
    Launch what is checked out until it is clear which of the two it is like.

    Raises:
        UsageError: The runs of both sides are alike, or hold no window.
        SubjectError: It does not train.
        ToolError: It could not be measured, whatever it is: the disk is full.
        KeyboardInterrupt: The user stopped the launch, which is kept.
    """
    levels = _levels(request)
    launcher = ports.launcher
    if isinstance(launcher, DeclaredLauncher):
        ports = at_values(ports, launcher.subject.parse(request.subject.toggles))
    rates: list[float] = []
    spent_s = 0.0
    while len(rates) < MAX_LAUNCHES and spent_s < request.rule.budget_s:
        start_ns = ports.clock.monotonic_ns()
        progress.stage(f"launch {len(rates) + 1} of what is checked out")
        rates.append(_launch(request, ports, progress, len(rates) + 1))
        spent_s += (ports.clock.monotonic_ns() - start_ns) / 1e9
        share_good = _share_good(rates, levels)
        if not request.rule.alpha < share_good < 1 - request.rule.alpha:
            status = HereStatus.GOOD if share_good > 0.5 else HereStatus.BAD
            return HereResult(status=status, reason=_sentence(rates, levels))
    return HereResult(status=HereStatus.SKIP, reason=f"it cannot be told: {_sentence(rates, levels)}")


def _levels(request: HereRequest) -> _Levels:
    goods, bads = ([_rate_of(path) for path in side] for side in (request.good, request.bad))
    good, bad = fmean(goods), fmean(bads)
    if good - bad <= -math.log1p(-request.rule.tolerance):
        raise UsageError(
            "the good runs are no faster than the bad ones",
            offered=f"good {math.exp(good):,.0f} tok/s, bad {math.exp(bad):,.0f} tok/s",
            allowed=f"runs that differ by more than {100 * request.rule.tolerance:g} %",
            next_command="flashprof compare GOOD_RUN BAD_RUN",
        )
    spreads = [stdev(side) for side in (goods, bads) if len(side) > 1]
    sd = max([LEAST_SD, *spreads])
    return _Levels(good=good, bad=bad, sd=sd, error=sd * math.sqrt(1 / len(goods) + 1 / len(bads)) / 2)


def _rate_of(path: Path) -> float:
    logs = read_event_logs(path / "events")
    # What only prints its throughput has left its windows in the summary alone.
    windows = build_windows(logs, steady_ns=None) if any(log.steps for log in logs) else recorded_windows(path)
    rate = launch_rate(windows, undisturbed)
    if not rate.num_windows:
        raise UsageError("a run has no measure window", where=str(path), next_command="flashprof run")
    return rate.log_tok_per_s


def _launch(request: HereRequest, ports: Ports, progress: Progress, number: int) -> float:
    run_id = f"here-{ports.clock.monotonic_ns() // 1_000_000}-{number}"
    experiment = Experiment(
        subject=replace(request.subject, command=launch_command(request.subject)),
        windows=replace(request.windows, num_profile=0),
        sampling=Sampling(stacks="off", resources="off"),
        output=Output(reports=request.reports, run_id=run_id),
    )
    summary = run(experiment, ports, progress)
    rate = launch_rate(summary.windows, undisturbed)
    # Neither says anything of the tree: git must not go on to the next commit.
    if summary.outcome is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    if summary.outcome is Outcome.TOOL_FAILED:
        raise ToolError(summary.reason, where=str(request.reports / run_id))
    if not summary.outcome.is_measurement or not rate.num_windows:
        raise SubjectError(summary.reason or "no window holds a token", outcome=summary.outcome)
    return rate.log_tok_per_s


def _share_good(rates: Sequence[float], levels: _Levels) -> float:
    """Probability that it lies above the middle between good and bad."""
    error = math.hypot(levels.sd / math.sqrt(len(rates)), levels.error)
    return NormalDist().cdf((fmean(rates) - (levels.good + levels.bad) / 2) / error)


def _sentence(rates: Sequence[float], levels: _Levels) -> str:
    here_, good, bad = (math.exp(value) for value in (fmean(rates), levels.good, levels.bad))
    launches = f"{len(rates)} launch{'es' * (len(rates) > 1)}"
    return f"{here_:,.0f} tok/s in {launches}; good {good:,.0f}, bad {bad:,.0f}"
