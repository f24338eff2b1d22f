"""From gates, real and simulated, to measures: `false_fail_…`, `caught_…`, `drift_…`, beside `fixed_threshold_…`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from benchmarks.gate_drift import Course
from benchmarks.gate_repos import KINDS
from benchmarks.gate_simulation import SimulatedGate
from benchmarks.gate_trials import Trial, first_difference, threshold_says
from benchmarks.results_file import Goal, Measure
from flashprof.contracts.comparison import Verdict
from flashprof.stats.power import share_of

FALSE, CAUGHT, SEEN = Goal(high=1.0), Goal(low=95.0), Goal(low=95.0)
MIN_HARMLESS = Goal(low=60.0)
FIXED = "fixed_threshold_"


def simulated_measures(noise: str, pair_sd: float, gates: Mapping[float, Sequence[SimulatedGate]]) -> Iterator[Measure]:
    """
    Of one kind of noise.

    Args:
        noise: Its name.
        pair_sd: Of a pair's difference in log tok/s.
        gates: By what head does to tok/s: 0, −0.05, …
    """
    for effect, found in gates.items():
        planted = f"caught_simulated_{noise}_{-100 * effect:.0f}_pct", CAUGHT
        name, goal = planted if effect else (f"false_fail_simulated_{noise}", FALSE)
        verdicts = [str(gate.verdict) for gate in found]
        about = f"pair sd {100 * pair_sd:.1f} %, {_pairs([gate.num_pairs for gate in found])}"
        yield from _both(name, verdicts, [threshold_says(gate.first_difference) for gate in found], goal, about)


def real_measures(trials: Sequence[Trial]) -> Iterator[Measure]:
    """Of all recorded gates; those without an answer are counted apart."""
    answered = [trial for trial in trials if trial.verdict and not trial.is_failed]
    of_kind = {name: [trial for trial in answered if trial.kind == name] for name in KINDS}
    harmless = [trial for name, kind in KINDS.items() if kind.is_harmless for trial in of_kind[name]]
    yield Measure(name="false_fail_real_num", value=len(harmless), unit="gates", goal=MIN_HARMLESS)
    num_broken = len(trials) - len(answered)
    yield Measure(name="unanswered_real_num", value=num_broken, unit="gates", note="the machinery failed")
    for name, kind in KINDS.items():
        if kind.is_harmless:
            yield from _real(f"false_fail_real_{name.removeprefix('aa-')}", of_kind[name], FALSE)
    yield from _real("false_fail_real_all", harmless, FALSE)
    for name, kind in KINDS.items():
        if not kind.is_harmless:
            yield from _real(f"caught_real_{100 * kind.loss:.0f}_pct", of_kind[name], CAUGHT)


def drift_measures(name: str, courses: Sequence[Course], goal: Goal) -> Iterator[Measure]:
    """
    Of one kind of series.

    Args:
        name: `seen_…` for ten losses, `false_…` for flat series.
        courses: What was told of each.
        goal: Of the history's share.
    """
    yield _share(f"drift_{name}", [course.is_told for course in courses], goal)
    yield _share(f"{FIXED}drift_{name}", [course.is_called for course in courses], None, "each run and the one before")


def _real(name: str, trials: Sequence[Trial], goal: Goal) -> Iterator[Measure]:
    if not trials:
        return
    pairs = _pairs([len(trial.pairs) for trial in trials])
    spent_min = median(trial.spent_s for trial in trials) / 60
    changes = [trial.change[0] for trial in trials if trial.change is not None]
    seen = f"measured change {100 * median(changes):+.1f} %" if changes else "no change was measured"
    budgets = ", ".join(f"{budget_s / 60:g}" for budget_s in sorted({trial.budget_s for trial in trials}))
    about = f"{pairs}, {spent_min:.1f} min of {budgets}; {seen} (medians)"
    firsts = [difference for trial in trials if (difference := first_difference(trial)) is not None]
    yield from _both(name, [trial.verdict for trial in trials], list(map(threshold_says, firsts)), goal, about)


def _both(
    name: str, verdicts: Sequence[str], called: Sequence[bool], goal: Goal | None, about: str
) -> Iterator[Measure]:
    """The gate's share of regressions, and that of a fixed threshold on the first launches."""
    counts = Counter(verdicts)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    yield _share(name, [verdict == Verdict.REGRESSION for verdict in verdicts], goal, f"{told}; {about}")
    if called:
        yield _share(f"{FIXED}{name}", called, None, "the first launch of each")


def _share(name: str, shown: Sequence[bool], goal: Goal | None, about: str = "") -> Measure:
    share = share_of(sum(shown), len(shown))
    note = f"{share.count} of {share.total} (95 %: {100 * share.low:.2f} to {100 * share.high:.2f} %)"
    return Measure(name=name, value=100 * share.share, unit="%", goal=goal, note=f"{note}; {about}" if about else note)


def _pairs(numbers: Sequence[int]) -> str:
    return f"{median(numbers):g} pairs, at most {max(numbers)}"
