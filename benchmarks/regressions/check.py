"""
Does a planted regression show? `python -m benchmarks.regressions.check [NAME …]`, half a minute a case.

Good and bad run in one launch each, a few seconds in turn, and it prints how much slower bad is and which phases grew.
For whoever writes a case: the suite itself measures by `flashprof bisect`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from benchmarks.regressions.case import Case, case_names, load_case
from benchmarks.regressions.launch import Rate, read_rate, started, take_turns
from benchmarks.regressions.trees import bad_files, good_files, source_files, write_tree
from flashprof.contracts.search import SearchKind

ENDS = ("good", "bad")
WARM_UP_S = 3.0
READY_LIMIT_S = 180.0
STEP = "step="
"""How a line of the trainer's log begins; the first comes after ten steps."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a plain measurement says of a case."""

    slow_down_pct: float
    """Of tok/s, from good to bad: the median over pairs of slices, which a neighbour's burst of work does not move."""
    error_pct: float
    """Its standard error, from the quartiles of the pairs."""
    good: Rate
    bad: Rate

    def grown_ms(self) -> dict[str, float]:
        """Phases that take at least 0.2 ms a step more in bad, the largest first."""
        good, bad = self.good.phase_ms, self.bad.phase_ms
        grown = {phase: bad.get(phase, 0) - good.get(phase, 0) for phase in good | bad}
        return {phase: ms for phase, ms in sorted(grown.items(), key=lambda item: -item[1]) if ms >= 0.2}


@click.command()
@click.argument("names", nargs=-1)
@click.option("--pairs", default=8, show_default=True, help="Of slices.")
@click.option("--slice", "slice_s", default=2.0, show_default=True, help="Its length in seconds.")
def main(*, names: tuple[str, ...], pairs: int, slice_s: float) -> None:
    """Measure, and print a line a case."""
    for name in names or case_names():
        case = load_case(name)
        try:
            shown = measure(case, pairs, slice_s)
        except RuntimeError as error:
            click.echo(f"{name:24} FAILED {error}")
            continue
        low, high = case.slow_down_pct
        click.echo(line(name, shown, "" if low <= shown.slow_down_pct <= high else f"NOT in {low:g}..{high:g}"))


def measure(case: Case, num_pairs: int, slice_s: float) -> Shown:
    """
    Start good and bad, one after the other, then let them take turns: ABBA.

    Raises:
        RuntimeError: A trainer ended, or did not begin to train.
    """
    source = source_files()
    files = dict(zip(ENDS, (good_files(case, source), bad_files(case, source)), strict=True))
    is_toggles = case.kind is SearchKind.TOGGLES
    toggles = {"good": case.good, "bad": case.bad} if is_toggles else dict.fromkeys(ENDS, case.toggles)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="regressions-")))
        trainers = {}
        for end in ENDS:
            options = ("--toggles", toggles[end], *case.train_options)
            tree = write_tree(files[end], folder / f"{end}-tree")
            trainers[end] = stack.enter_context(started(tree, options, folder / end))
            _wait_until_warm(trainers[end], folder / end / "log")
            os.killpg(trainers[end].pid, signal.SIGSTOP)
        plan = [end for number in range(num_pairs) for end in (ENDS if number % 2 == 0 else ENDS[::-1])]
        slices = take_turns(trainers, plan, slice_s)
        good, bad = (read_rate(folder / end, [part for part in slices if part.name == end]) for end in ENDS)
    return compare(good, bad)


def _wait_until_warm(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + READY_LIMIT_S
    while f"\n{STEP}" not in log.read_text(encoding="utf-8"):
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"it does not train:\n{log.read_text(encoding='utf-8')[-2000:]}")
        time.sleep(0.1)
    time.sleep(WARM_UP_S)


def compare(good: Rate, bad: Rate) -> Shown:
    """Pair by pair."""
    lost_pct = 100 * (1 - np.array(bad.tok_per_s) / np.array(good.tok_per_s))
    low, middle, high = np.percentile(lost_pct, (25, 50, 75))
    # The quartiles of a normal distribution are 1.35 sd apart; a median's error is 1.25 of a mean's.
    error = 1.25 * (high - low) / 1.35 / np.sqrt(len(lost_pct))
    return Shown(slow_down_pct=float(middle), error_pct=float(error), good=good, bad=bad)


def line(name: str, shown: Shown, remark: str) -> str:
    """For the terminal."""
    grown = ", ".join(f"{phase} +{ms:.1f}" for phase, ms in list(shown.grown_ms().items())[:4])
    cpu = ", ".join(
        f"{process.partition('-')[0]} {shown.good.cpu_ms[process]:.1f} → {shown.bad.cpu_ms[process]:.1f}"
        for process in ("drafter-0", "target-0", "dispatcher-0")
    )
    return (
        f"{name:24} {shown.slow_down_pct:5.1f} ± {shown.error_pct:.1f} %  "
        f"{np.median(shown.good.tok_per_s):6,.0f} tok/s  "
        f"start {shown.good.ready_s:.1f} → {shown.bad.ready_s:.1f} s  "
        f"cpu {cpu} ms a step  [{grown}]  {remark}"
    )


if __name__ == "__main__":
    main()
