"""
A model of the pipeline: what each topology trains, from what its stages do alone. Pure, and read in a minute.

    X = (bound of the stages − what a queue of finite depth loses)        tok/s

Stages that run side by side bound it by the slowest: N targets, the links that hidden states travel on, the
dispatcher, M drafters. Drafters wait for the slowest of them in every step, and for the sum of their gradients. Where
there are fewer devices than workers, all share them, and the seconds of device that a token costs are the bound.

A queue between two stages whose batches vary loses what it cannot even out. For exponential times and N places that
is known exactly (M/M/1/N): X = λ (1 − ρᴺ) / (1 − ρᴺ⁺¹), ρ = λ/μ. For other variances the places beyond the one in
service count 2 / (c² + d²) times, c and d being the coefficients of variation of both stages: right at 1, and no loss
at 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist


@dataclass(frozen=True, kw_only=True)
class Stages:
    """What one worker of each kind does alone, on a device of its own."""

    target_tok_per_s: float
    drafter_tok_per_s: float
    batch_tokens: float
    """Mean tokens of a batch, padding excluded."""
    target_cv: float = 0.0
    """Standard deviation of a batch's time over its mean."""
    drafter_cv: float = 0.0
    link_tok_per_s: float = math.inf
    """Hidden states out of one target."""
    dispatcher_tok_per_s: float = math.inf
    gradient_bytes: float = 0.0
    """That the drafters sum in a step."""
    bus_bytes_per_s: float = math.inf
    """Of an all-reduce, per drafter: 2 (M − 1) / M × the bytes pass it."""
    step_overhead_s: float = 0.0
    """Of several drafters in each step: what they agree on over the host."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a topology trains."""

    num_targets: int
    num_drafters: int
    tok_per_s: float
    limit: str
    """Name of the lowest bound."""
    bounds: dict[str, float] = field(default_factory=dict)
    """tok/s that each stage could do if it never waited for another stage."""

    @property
    def topology(self) -> str:
        """`5+3`."""
        return f"{self.num_targets}+{self.num_drafters}"


def predict(
    stages: Stages, *, num_targets: int, num_drafters: int, depth: int = 8, num_devices: int | None = None
) -> Prediction:
    """
    Predict one topology.

    Args:
        stages: Measured alone.
        num_targets: At least 1.
        num_drafters: At least 1.
        depth: Of the queue in front of each drafter, in batches.
        num_devices: None: one a worker. Fewer are shared by all: then nothing is lost in the queue, since the stage
            that need not wait takes the device.
    """
    bounds = {
        "targets": num_targets * stages.target_tok_per_s,
        "links": num_targets * stages.link_tok_per_s,
        "dispatcher": stages.dispatcher_tok_per_s,
        "drafters": _drafters_tok_per_s(stages, num_drafters),
    }
    is_shared = num_devices is not None and num_devices < num_targets + num_drafters
    if is_shared and num_devices is not None:
        bounds["devices"] = num_devices / (1 / stages.target_tok_per_s + num_drafters / bounds["drafters"])
        tok_per_s = min(bounds.values())
    else:
        supply = min(bounds["targets"], bounds["links"], bounds["dispatcher"])
        num_places = _num_places(stages, num_targets=num_targets, num_drafters=num_drafters, depth=depth)
        tok_per_s = queued_rate(supply, bounds["drafters"], num_places)
    return Prediction(
        num_targets=num_targets,
        num_drafters=num_drafters,
        tok_per_s=tok_per_s,
        limit=min(bounds, key=lambda name: bounds[name]),
        bounds=bounds,
    )


def splits(stages: Stages, num_devices: int, *, depth: int = 8) -> list[Prediction]:
    """All topologies of *num_devices* devices with a worker each, the fastest first."""
    found = [
        predict(stages, num_targets=number, num_drafters=num_devices - number, depth=depth)
        for number in range(1, num_devices)
    ]
    return sorted(found, key=lambda prediction: -prediction.tok_per_s)


def queued_rate(supply: float, demand: float, num_places: float) -> float:
    """
    Throughput of two stages with a finite queue between them: never above either rate, and rising with both.

    Args:
        supply: Rate of the first, if it never waits.
        demand: Rate of the second, if it never waits.
        num_places: Batches between the beginning of the second's work and the end of the first's, both included; ≥ 1,
            and a fraction where variance is not 1.
    """
    lower, higher = min(supply, demand), max(supply, demand)
    if math.isinf(num_places) or math.isinf(higher):
        return lower
    # The formula is symmetric in both rates; with ρ ≤ 1 no power overflows. At ρ = 1 its limit is N / (N + 1).
    log_ratio = math.log(lower / higher)
    if log_ratio > -1e-9:
        return lower * num_places / (num_places + 1)
    return lower * math.expm1(num_places * log_ratio) / math.expm1((num_places + 1) * log_ratio)


def slowest_factor(num: int, cv: float) -> float:
    """The expected time of the slowest of *num* over the mean of one: normal times, Blom's approximation."""
    if num == 1:
        return 1.0
    return 1 + cv * NormalDist().inv_cdf((num - 0.375) / (num + 0.25))


def _drafters_tok_per_s(stages: Stages, num_drafters: int) -> float:
    step_s = stages.batch_tokens / stages.drafter_tok_per_s * slowest_factor(num_drafters, stages.drafter_cv)
    if num_drafters > 1:
        moved_bytes = 2 * (num_drafters - 1) / num_drafters * stages.gradient_bytes
        step_s += moved_bytes / stages.bus_bytes_per_s + stages.step_overhead_s
    return num_drafters * stages.batch_tokens / step_s


def _num_places(stages: Stages, *, num_targets: int, num_drafters: int, depth: int) -> float:
    """One in service; the queue's, and the finished batch that each blocked target holds, weighted by the variance."""
    variance = (stages.target_cv**2 + stages.drafter_cv**2) / 2
    num_waiting = depth + num_targets / num_drafters
    return 1 + num_waiting / variance if variance > 0 else math.inf
