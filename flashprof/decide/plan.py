"""
The plan of a study, and what it will cost: printed before anything starts. Pure.

The number of blocks for an effect is the least n with `effect ≥ sd · (f(n) + z/√n)`: f, half the width of the deciding
interval in units of a block's sd, is what looking after every block costs; z is the quantile of a power of 90 %.
At alpha = 0.01 and sd = 1 % that is 5 blocks for 5 % and 32 for 1 %; of 60 simulated comparisons each, 90 % needed at
most 6 and 31.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist

from flashprof.contracts.comparison import DecisionRule, Method, Verdict
from flashprof.contracts.errors import UsageError
from flashprof.contracts.study import MethodChoice
from flashprof.decide.orders import block_order
from flashprof.stats.sequential import anytime_factor, fewest

POWER = 0.9
MAX_BLOCKS = 10_000
"""Nobody waits for more; a tolerance of 0 would need endless ones."""
USUAL_EFFECT = 0.05
SD_RANGE = {Method.HOT: (0.005, 0.03), Method.COLD: (0.01, 0.06)}
"""Of a block's difference in log tok/s, from quiet machines to shared ones; for a machine that is not calibrated."""
NUM_SHOWN_ORDERS = 6
UNKNOWN_NOISE = "not measured on this machine; a range from quiet to shared ones (flashprof calibrate measures it)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """What the user asked for; JSON-able by `dataclasses.asdict`."""

    base: str
    """How the arm is called."""
    candidate: str
    method: MethodChoice = MethodChoice.AUTO
    cold_toggles: tuple[str, ...] = ()
    """Toggles under test that only a launch can set."""
    confirmed: tuple[Verdict, ...] = (Verdict.REGRESSION,)
    """Verdicts of the screening that cold launches confirm; empty for none."""
    rule: DecisionRule = field(default_factory=DecisionRule)
    seed: int = 0
    num_windows: int = 4
    """Of a hot block: 2, 4, 8, …"""
    max_retries: int = 2
    """Never more than this, whatever an outcome's own rule allows."""
    sites: tuple[str, ...] = ("this machine",)
    """Host and GPU set each; a block stays on one, blocks go round."""

    def __post_init__(self) -> None:
        """Refuse what cannot be done."""
        if self.method is MethodChoice.HOT and self.cold_toggles:
            raise UsageError(
                "these toggles cannot be switched while the subject runs",
                offered=", ".join(self.cold_toggles),
                allowed="--method cold or auto",
                next_command="--method cold",
            )
        assert self.sites, "a study needs a site"
        assert Verdict.INCONCLUSIVE not in self.confirmed, "an open answer cannot be confirmed"

    @property
    def methods(self) -> tuple[Method, ...]:
        """In the order in which they are used."""
        if self.method is MethodChoice.COLD or self.cold_toggles:
            return (Method.COLD,)
        return (Method.HOT, Method.COLD) if self.confirmed else (Method.HOT,)

    def site(self, number: int) -> str:
        """Where hot launch or cold block *number* is measured."""
        return self.sites[(number - 1) % len(self.sites)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What measuring takes, in seconds."""

    startup_s: float = 30.0
    """From launch to the first step."""
    warmup_s: float = 15.0
    """From the first step to steady state, and stopping at the end."""
    hot_block_s: float = 20.0
    cold_windows_s: float = 25.0
    """All windows of a cold launch."""
    source: str = ""
    """Where they come from, `3 earlier runs of this cell`; empty for defaults, and the plan says so."""

    @property
    def launch_s(self) -> float:
        """What a launch takes without its windows."""
        return self.startup_s + self.warmup_s

    def block_s(self, method: Method) -> float:
        """What one more block takes."""
        return self.hot_block_s if method is Method.HOT else 2 * (self.launch_s + self.cold_windows_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviation of a block's difference in log tok/s, by method; empty where it was never measured."""

    block_sd: Mapping[Method, float] = field(default_factory=dict)
    source: str = ""
    """`flashprof calibrate, 2026-11-30`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEstimate:
    """What a study will do and cost."""

    lines: tuple[str, ...]
    """For `--dry-run`: a name of up to eight letters, two spaces, a sentence."""
    expected_s: float
    """Until the answer is clear if there is no difference, the noise being in the middle of its range."""
    slower_s: float
    """The same if the candidate is 5 % slower, confirmation included."""
    worst_s: float
    """The budget, and what may be under way when it is spent."""


def blocks_needed(effect: float, sd: float, *, alpha: float) -> int:
    """
    Number of blocks after which a slow-down is probably clear; at most `MAX_BLOCKS`.

    Args:
        effect: Share of tok/s, 0 to 1.
        sd: Of a block's difference in log tok/s, above 0.
        alpha: As in `DecisionRule`.
    """
    effect_sd, z = -math.log1p(-effect) / sd, NormalDist().inv_cdf(POWER)
    num = fewest(alpha)
    while num < MAX_BLOCKS and anytime_factor(num, alpha=alpha) + z / math.sqrt(num) > effect_sd:
        # Single steps where they matter, 1 % steps beyond.
        num += 1 + num // 100
    return min(num, MAX_BLOCKS)


def estimate(
    plan: StudyPlan, costs: Costs, noise: Noise, *, reused: Mapping[Method, int] | None = None, spent_s: float = 0.0
) -> PlanEstimate:
    """
    Say what *plan* will launch, in which order, and how long it takes.

    Args:
        plan: Of the study.
        costs: Of a launch and of a block.
        noise: Of a block, if it was measured.
        reused: Blocks that earlier calls have measured.
        spent_s: What those took: the budget counts all calls.
    """
    have = reused or {}
    lines = []
    for method in plan.methods:
        lines.append(_describe(plan, method, costs))
        lines.append(f"blocks    {_describe_blocks(plan, method, costs, noise, have.get(method, 0))}")
    left_s = max(0.0, plan.rule.budget_s - spent_s)
    # A launch with its first block, or a pair, that is begun in the last second of the budget is finished.
    worst_s = left_s + max(_seconds(method, 1, costs) for method in plan.methods) if left_s else 0.0

    def until_clear(verdict: Verdict, effect: float) -> float:
        methods = [method for method in plan.methods if not _confirms(plan, method) or verdict in plan.confirmed]
        needed = {method: _typical_blocks(plan, method, noise, effect) - have.get(method, 0) for method in methods}
        return min(worst_s, sum(_seconds(method, num, costs) for method, num in needed.items()))

    expected_s = until_clear(Verdict.NO_REGRESSION, plan.rule.tolerance)
    slower_s = until_clear(Verdict.REGRESSION, USUAL_EFFECT)
    lines.append(f"launch    {costs.startup_s:.0f} s to start, {costs.warmup_s:.0f} s to settle: {_source(costs)}")
    lines.append(f"noise     {_describe_noise(plan, noise)}")
    if any(have.values()):
        lines.append(f"reused    {_describe_reused(have)}, measured by earlier calls in {_minutes(spent_s)}")
    lines.append(
        f"total     about {_minutes(expected_s)} if there is no difference, {_minutes(slower_s)} if B is "
        f"{_percent(USUAL_EFFECT)} slower; at most {_minutes(worst_s)}, a budget of {_minutes(plan.rule.budget_s)} "
        "and what is under way when it is spent"
    )
    return PlanEstimate(lines=tuple(lines), expected_s=expected_s, slower_s=slower_s, worst_s=worst_s)


def _confirms(plan: StudyPlan, method: Method) -> bool:
    return method is Method.COLD and Method.HOT in plan.methods


def _describe(plan: StudyPlan, method: Method, costs: Costs) -> str:
    num_windows = plan.num_windows if method is Method.HOT else 2
    orders = " ".join(block_order(plan.seed, number, num_windows) for number in range(1, NUM_SHOWN_ORDERS + 1))
    letters = f"A {plan.base}, B {plan.candidate}: {orders} …"
    if method is Method.HOT:
        return f"screen    one launch of both arms, switched while it runs; {letters}"
    where = "" if len(plan.sites) == 1 else f", in turn on {' and '.join(plan.sites)}"
    length = f"{costs.launch_s + costs.cold_windows_s:.0f} s a launch"
    verb, when = "measure", ""
    if _confirms(plan, method):
        verb, when = "confirm", f"; only if the screening says {' or '.join(plan.confirmed)}"
    return f"{verb}   pairs of launches, {length}{where}; {letters}{when}"


def _describe_blocks(plan: StudyPlan, method: Method, costs: Costs, noise: Noise, num_reused: int) -> str:
    def after(effect: float) -> str:
        needed = [blocks_needed(effect, sd, alpha=plan.rule.alpha) for sd in _sds(method, noise)]
        lengths = (_minutes(_seconds(method, number - num_reused, costs)) for number in needed)
        numbers = (f"{MAX_BLOCKS} or more" if number == MAX_BLOCKS else str(number) for number in needed)
        return f"{_range(numbers)} blocks ({_range(lengths)})"

    return (
        f"{_percent(USUAL_EFFECT)} slower shows after about {after(USUAL_EFFECT)}; "
        f"less than {_percent(plan.rule.tolerance)} slower after about {after(plan.rule.tolerance)}"
    )


def _range(texts: Iterable[str]) -> str:
    return " to ".join(dict.fromkeys(texts))


def _sds(method: Method, noise: Noise) -> tuple[float, ...]:
    return (noise.block_sd[method],) if method in noise.block_sd else SD_RANGE[method]


def _typical_blocks(plan: StudyPlan, method: Method, noise: Noise, effect: float) -> int:
    sds = _sds(method, noise)
    typical_sd = math.prod(sds) ** (1 / len(sds))
    return blocks_needed(effect, typical_sd, alpha=plan.rule.alpha)


def _seconds(method: Method, num_blocks: int, costs: Costs) -> float:
    if num_blocks <= 0:
        return 0.0
    return num_blocks * costs.block_s(method) + (costs.launch_s if method is Method.HOT else 0.0)


def _source(costs: Costs) -> str:
    return f"measured in {costs.source}" if costs.source else "a guess, since no run of this cell was measured yet"


def _describe_noise(plan: StudyPlan, noise: Noise) -> str:
    known = [f"{method} blocks {_percent(sd)}" for method, sd in noise.block_sd.items() if method in plan.methods]
    guessed = [
        f"{method} blocks {' to '.join(map(_percent, SD_RANGE[method]))}"
        for method in plan.methods
        if method not in noise.block_sd
    ]
    told = [f"{', '.join(known)} ({noise.source})"] if known else []
    return "; ".join([*told, *([f"{', '.join(guessed)}: {UNKNOWN_NOISE}"] if guessed else [])])


def _describe_reused(have: Mapping[Method, int]) -> str:
    return " and ".join(f"{number} {method} blocks" for method, number in have.items() if number)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
