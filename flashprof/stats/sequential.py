"""
What a few differences say about their mean, however often one looks. Pure.

Model: differences d₁ … dₙ are Gaussian with mean θ and standard deviation σ, both unknown. Two questions, two intervals
around the same mean:

*Is the answer clear?* The deciding interval is a confidence sequence: with probability 1 − α it holds θ after every
n at once, so one may look after each difference and stop by any rule. It inverts the e-value of the t statistic,

    t = √n (mean − θ) / s,   ν = n − 1,   k = 1 + n g²,   E = k^(−1/2) · [(1 + t²/ν) / (1 + t²/(νk))]^((ν+1)/2),

which is the likelihood ratio of t where the effect size θ/σ is drawn from N(0, g²) against one of 0: t/√k is then
Student's. If the mean is θ, E at θ depends only on the ratios of (dᵢ − θ), and is a martingale in them that starts at
1; by Ville's inequality it ever reaches 1/α with probability at most α. That bounds whole paths, so it also holds for
rules that look at more than these ratios, such as a tolerance or a budget. Sources: Pérez-Ortiz, Lardy, de Heide,
Grünwald, "E-statistics, group invariance and anytime-valid testing" (2024); Wang, Ramdas, "Anytime-valid t-tests and
confidence sequences for Gaussian means with unknown variance" (2024). False alarms that never stop looking, 60
differences: 0.5 %; a little less with heavy tails or changing σ, 1.4 % with uniform noise, which has none.

*How large is it?* Such a sequence covers far more than 95 % at the one moment where one stops, and a t-interval too
little (88 to 96 % over the grid of the test): of two values that are equally far from a threshold, the estimate that
wandered over it is the one that stops. The error is one-sided: truths are missed between the estimate and the
threshold that was crossed, after many looks more often than after few. So the stated interval is the t-interval, but
the tail towards that threshold is divided by √(number of looks so far). The square root was chosen by simulation:
powers of 0.33, 0.4 and 0.5 cover at worst 92.3, 92.7 and 93.1 %, at best 95.9 %.
Calibration: tests/flashprof/stats/test_compare_calibration.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

PRIOR_SD = 4.0
"""
g, in units of a difference's sd. It makes 4 differences the least that can decide at α = 0.01, and costs little
anywhere. Mean number of differences until 0 is excluded at α = 0.01, by effect in sd:

    effect    g = 1   g = 2   g = 4   g = 8   g = 20
    1          18.0    18.5    20.1    21.8     24.8
    2           9.2     8.4     8.5     9.0     10.1
    5           6.8     5.3     4.7     4.6      5.0
    8.5         6.3     5.0     4.1     3.8      3.9
    17          6.0     5.0     4.0     3.3      3.2
"""


class End(StrEnum):
    """One end of an interval."""

    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """All that the statistics need to know of some differences."""

    num: int
    mean: float
    """NaN where there are none."""
    sd: float
    """With n − 1 below; infinite for fewer than 2."""


def moments(differences: Sequence[float]) -> Moments:
    """Summarise finite *differences*."""
    assert all(map(math.isfinite, differences)), "a difference that is not finite is no measurement"
    num = len(differences)
    mean = fmean(differences) if num else math.nan
    # statistics.stdev computes in fractions: 60 differences take 60 µs, and calibration judges 10⁵ times.
    squares = math.fsum((value - mean) ** 2 for value in differences)
    return Moments(num=num, mean=mean, sd=math.sqrt(squares / (num - 1)) if num >= 2 else math.inf)


def log_e_value(data: Moments, *, null: float = 0.0) -> float:
    """
    Weigh the evidence against a mean of *null*.

    Returns:
        ln E; E ≥ 1/α happens with probability at most α, ever, if the mean is *null*. 0 for fewer than 2 differences.
        Without any spread it is the limit: (n − 1)/2 · ln k, or −½ ln k where the mean is *null* itself.
    """
    if data.num < 2:
        return 0.0
    log_k = math.log1p(data.num * PRIOR_SD**2)
    gap, error = abs(data.mean - null), data.sd / math.sqrt(data.num)
    if error == 0:
        return -log_k / 2 + (data.num / 2 * log_k if gap > 0 else 0.0)
    squared = (gap / error) ** 2 / (data.num - 1)
    gain = math.log1p(squared) - math.log1p(squared * math.exp(-log_k))
    return -log_k / 2 + data.num / 2 * gain


def anytime_factor(num: int, *, alpha: float) -> float:
    """
    Half the width of the confidence sequence at 1 − *alpha* after *num* differences, in units of their sd.

    Returns:
        `log_e_value` < ln(1/alpha) exactly within. Infinite where *num* differences cannot decide, however clear.
    """
    if num < 2:
        return math.inf
    k = 1 + num * PRIOR_SD**2
    log_bound = (math.log(k) / 2 - math.log(alpha)) * 2 / num
    if log_bound >= math.log(k):
        return math.inf
    bound = math.exp(log_bound)
    squared = (bound - 1) / (1 - bound / k)
    return math.sqrt((num - 1) * squared / num)


def anytime_half_width(data: Moments, *, alpha: float) -> float:
    """Half the width of the confidence sequence at 1 − *alpha*; infinite where nothing can be decided yet."""
    factor = anytime_factor(data.num, alpha=alpha)
    return factor * data.sd if math.isfinite(factor) else math.inf


def fewest(alpha: float) -> int:
    """The least number of differences that can decide anything at *alpha*: 4 at 0.01, 3 at 0.05."""
    num = 2
    while math.isinf(anytime_factor(num, alpha=alpha)):
        num += 1
    return num


def stated_factors(num: int, *, level: float, alpha: float, crossed: End | None) -> tuple[float, float]:
    """
    How far the stated interval reaches below and above the mean, in units of the differences' sd.

    Args:
        num: Number of differences, at least 2.
        level: Of the stated interval, at most 1 − *alpha*: a narrower deciding interval would contradict it.
        alpha: Of the deciding interval.
        crossed: Which end of the deciding interval passed its threshold and so decided; None where none did.

    Returns:
        At most 0.92 of `anytime_factor`, for n up to 10⁵ and alpha from 10⁻⁶ to 0.9: what the deciding interval
        excludes, the stated one excludes too.
    """
    assert level <= 1 - alpha + 1e-12, "the stated interval must lie within the deciding one"
    num_looks = max(1, num - fewest(alpha) + 1)
    plain = (1 - level) / 2
    tails = [plain / math.sqrt(num_looks) if end is crossed else plain for end in End]
    below, above = (t_quantile(num - 1, tail=tail) / math.sqrt(num) for tail in tails)
    return below, above


def t_quantile(freedom: float, *, tail: float) -> float:
    """The value that Student's t exceeds with probability *tail*."""
    # scipy.special loads in a third of the time of scipy.stats, which takes 0.5 to 1.3 s.
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, tail))
