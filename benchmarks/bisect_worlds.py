"""
Subjects whose culprit is known, for `benchmarks.bisect_simulation`: their effects, and the noise of their windows.

Noise is drawn from a Gaussian, or cut from what real launches recorded: a launch begins in the first third of a
recorded one and takes its windows in order, so drift, pauses and what a launch draws once are in it, as large as they
were.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.results_file import RESULTS
from flashprof.decide.commit_space import CommitInfo, CommitSpace
from flashprof.decide.toggle_space import ToggleSpace
from flashprof.stats.posterior import NoisePrior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flashprof.stats.terms import Terms

    Floats = NDArray[np.float64]
    Space = CommitSpace | ToggleSpace

Term = tuple[str, ...]
"""Members of a term: a toggle, two toggles, or a commit."""

DROP = 0.17
"""What all culprits of a trial cost together, unless it says otherwise."""
OTHERS = 0.03
"""A toggle that is no culprit is worth up to this, either way."""
TOGGLES = tuple(f"t{number}" for number in range(8))
NUM_COMMITS = 128
WINDOW_S, START_S = 3.0, 480.0
GAUSSIAN = "gauss_"
"""Begins the name of independent noise; its coefficient of variation follows, in per cent: `gauss_2`."""
LANES = RESULTS / "calibration_lanes_2026-11-30.tgz"
STEPS = RESULTS.parents[1] / "tests" / "flashprof" / "stats" / "data"
LANE_FOLDERS = {"vm": ("vm/hot-aa", "vm_old/hot-aa"), "host": ("h200_host_full/hot-aa",)}
"""Two cores to itself, and two of a host whose other cores were busy: the lanes without a planted slow-down."""
STEP_FILES = {"steps_cpu": 10, "steps_h200": 40}
"""Steps a window: 1.4 s and 0.9 s, since 46 s of an H200 would make 15 windows of 3 s."""
NUM_WARM = 60
"""First steps of a launch that are no steady state yet."""
BELIEVED = "believed"
"""Noise drawn from the engine's own prior: with it, its probabilities must be right to the letter."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Windows of one launch: log tok/s about the mean of its lane, what batches were made of taken out."""

    values: Floats


@dataclass(kw_only=True)
class World:
    """One subject. It counts what it is asked for, and time goes on as it is."""

    space: Space
    truth: frozenset[Term]
    """Terms that matter."""
    effects: Mapping[Term, float]
    """Of every term that is not zero, on log tok/s."""
    noise: str
    rng: np.random.Generator
    is_hot: bool
    """Whether one launch holds all cells."""
    num_windows: int = 0
    num_launches: int = 0
    now_s: float = 0.0
    launch: str = ""
    _rest: Iterator[float] = field(default_factory=lambda: iter(()))
    _levels: dict[str, float] = field(default_factory=dict)
    _scale: float = 1.0
    _drift: tuple[float, float] | None = None
    """And when it was that."""

    def measure(self, cell: str, launch: str | None = None) -> float:
        """
        One window.

        Args:
            cell: Its id in the space.
            launch: Name of the launch it lies in; None: the one that runs, if it can hold the cell.

        Returns:
            log tok/s.

        Raises:
            LaunchOverError: The named launch has no window left.
        """
        name = launch or ("hot" if self.is_hot else cell)
        if name != self.launch:
            self._begin(name)
        try:
            noise = next(self._rest)
        except StopIteration:
            if launch is not None:
                raise LaunchOverError(launch) from None
            self._begin(name)
            noise = next(self._rest)
        self.num_windows += 1
        self.now_s += WINDOW_S
        return self.level(cell) + noise

    def level(self, cell: str) -> float:
        """Without noise: log tok/s."""
        if cell not in self._levels:
            values = [self.effects.get(term, 0.0) for term in self.space.terms.names]
            self._levels[cell] = float(self.space.rows([cell])[0] @ values)
        return self._levels[cell]

    def _begin(self, name: str) -> None:
        self.launch = name
        self.num_launches += 1
        self.now_s += START_S
        self._rest = self._believed() if self.noise == BELIEVED else _windows(self.noise, self.rng)

    def _believed(self) -> Iterator[float]:
        """Noise of one launch as `NoisePrior` has it; its scale is drawn once a world, and drift outlives launches."""
        prior = NoisePrior()
        if self._drift is None:
            self._scale = float(np.exp(self.rng.normal(0.0, prior.scale_sd)))
            self._drift = float(self.rng.normal(0.0, prior.drift_sd)), self.now_s
        launch = self.rng.normal(0.0, prior.launch_sd)
        while True:
            drift, at_s = self._drift
            left = float(np.exp((at_s - self.now_s) / prior.drift_s))
            drift = left * drift + float(self.rng.normal(0.0, prior.drift_sd * np.sqrt(1 - left**2)))
            self._drift = drift, self.now_s
            yield self._scale * (launch + drift + float(self.rng.normal(0.0, prior.window_sd)))


class LaunchOverError(Exception):
    """What was recorded of a launch is used up: for the search it has ended."""


def toggle_world(case: str, noise: str, seed: int) -> World:
    """`one`, `two`, `unequal` or `pair`: which of eight hot toggles cost 17 % together; the others up to 3 %."""
    rng = np.random.default_rng([seed, 1])
    first, second = (TOGGLES[place] for place in sorted(rng.choice(len(TOGGLES), 2, replace=False)))
    drop = float(np.log1p(-DROP))
    shares: Mapping[str, Mapping[Term, float]] = {
        "one": {(first,): 1.0},
        "two": {(first,): 0.5, (second,): 0.5},
        "unequal": {(first,): 0.65, (second,): 0.35},
        "pair": {(first, second): 1.0},
    }
    culprits = {term: share * drop for term, share in shares[case].items()}
    named = {name for term in culprits for name in term}
    others = {(name,): float(rng.uniform(-OTHERS, OTHERS)) for name in TOGGLES if name not in named}
    return _world(toggle_space(), culprits, others, noise, seed)


def commit_world(drop_pct: float, noise: str, seed: int) -> World:
    """One of 128 commits costs *drop_pct*, and the others nothing."""
    space = commit_space()
    rng = np.random.default_rng([seed, 1])
    culprit = space.commits[int(rng.integers(NUM_COMMITS))].id
    return _world(space, {(culprit,): float(np.log1p(-drop_pct / 100))}, {}, noise, seed)


def drawn_world(kind: str, noise: str, seed: int) -> World:
    """A truth drawn from what the engine believes beforehand, so that its probabilities can be held to account."""
    space: Space = toggle_space() if kind == "toggles" else commit_space()
    rng, terms = np.random.default_rng([seed, 1]), space.terms
    matters = _drawn_terms(terms, rng)
    effects = [
        _drawn_effect(terms, rng) if does else float(rng.normal(0.0, spike_sd))
        for does, spike_sd in zip(matters, terms.spike_sd, strict=True)
    ]
    named = dict(zip(terms.names, effects, strict=True))
    culprits = {term: named.pop(term) for term, does in zip(terms.names, matters, strict=True) if does}
    return _world(space, culprits, named, noise, seed)


def _drawn_terms(terms: Terms, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which matter: none as often as the prior says, else each for itself, as long as it is some and not too many."""
    nothing = np.zeros(len(terms.names), dtype=bool)
    if terms.nothing_prior is not None and rng.random() < terms.nothing_prior:
        return nothing
    fewest = 0 if terms.nothing_prior is None else 1
    while True:
        matters = rng.random(len(terms.names)) < terms.priors
        if fewest <= matters.sum() <= terms.max_active:
            return matters


def _drawn_effect(terms: Terms, rng: np.random.Generator) -> float:
    """Of a term that matters: a small effect is kept as rarely as the slab's density says."""
    while True:
        effect = float(rng.normal(0.0, terms.slab_sd))
        if terms.small == 0 or rng.random() < -np.expm1(-0.5 * (effect / terms.small) ** 2):
            return effect


def _world(space: Space, culprits: Mapping[Term, float], others: Mapping[Term, float], noise: str, seed: int) -> World:
    return World(
        space=space,
        truth=frozenset(culprits),
        effects={**culprits, **others},
        noise=noise,
        rng=np.random.default_rng([seed, 2]),
        is_hot=isinstance(space, ToggleSpace),
    )


@cache
def toggle_space() -> ToggleSpace:
    """Eight toggles that a running subject can switch."""
    return ToggleSpace(
        names=TOGGLES,
        good_values=dict.fromkeys(TOGGLES, True),
        bad_values=dict.fromkeys(TOGGLES, False),
        hot=frozenset(TOGGLES),
    )


@cache
def commit_space() -> CommitSpace:
    """128 commits, one after the other."""
    ids = [f"c{number:03}" for number in range(NUM_COMMITS)]
    commits = tuple(CommitInfo(id=own, parents=(parent,)) for own, parent in zip(ids, ["base", *ids], strict=False))
    return CommitSpace(commits=commits, good="base", bad=ids[-1])


def noise_sd(noise: str) -> float:
    """Of one window: what `flashprof calibrate` would find, from neighbours, so that drift is not in it."""
    if noise.startswith(GAUSSIAN):
        return float(noise.removeprefix(GAUSSIAN)) / 100
    steps = np.concatenate([np.diff(recording.values) for recording in recordings(noise)])
    return float(1.4826 * np.median(np.abs(steps)) / np.sqrt(2))


@cache
def recordings(noise: str) -> tuple[Recording, ...]:
    """All launches that were recorded of a kind of noise."""
    if noise in STEP_FILES:
        raw = json.loads((STEPS / f"{noise}.json").read_text(encoding="utf-8"))
        steps = np.array(raw["steps"], dtype=np.float64)
        return _of_lane([steps], lambda _: STEP_FILES[noise])
    found: list[Recording] = []
    for lane in _lanes(LANE_FOLDERS[noise]):
        launches = [_step_lengths(launch["steps"]) for launch in lane["launches"] if len(launch["steps"]) > 300]
        found += _of_lane(launches, lambda steps: round(WINDOW_S / float(steps[:, 0].mean())))
    return tuple(found)


def windows_of(steps: Floats, num_steps: int) -> Floats:
    """
    Log tok/s of windows of so many steps, about what batches of their size take.

    Args:
        steps: (num_steps_in_all, 2): length, in any unit, and tokens.
        num_steps: Of a window.

    Returns:
        (num_windows,); a last window that is not full is left out.
    """
    design = np.column_stack([np.ones(len(steps)), steps[:, 1]])
    expected = design @ np.linalg.lstsq(design, steps[:, 0], rcond=None)[0]
    num = len(steps) // num_steps
    taken = steps[: num * num_steps, 0].reshape(num, num_steps).sum(axis=1)
    values: Floats = np.log(expected[: num * num_steps].reshape(num, num_steps).sum(axis=1) / taken)
    return values


def _lanes(starts: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    with tarfile.open(LANES) as archive:
        for member in sorted(archive.getnames()):
            file = archive.extractfile(member) if member.startswith(tuple(starts)) else None
            if file is not None:
                yield json.load(io.TextIOWrapper(file, encoding="utf-8"))


def _step_lengths(raw: Sequence[Sequence[int]]) -> Floats:
    table = np.array(raw, dtype=np.float64)
    return np.column_stack([np.diff(table[:, 0]) / 1e9, table[1:, 1]])[NUM_WARM:]


def _of_lane(launches: Sequence[Floats], num_steps: Callable[[Floats], int]) -> tuple[Recording, ...]:
    """One fit for all launches of a lane: what one is slower than the other by stays."""
    together = np.concatenate(launches)
    size = num_steps(together)
    whole = [steps[: len(steps) // size * size] for steps in launches]
    values = windows_of(np.concatenate(whole), size)
    ends = np.cumsum([len(steps) // size for steps in whole])[:-1]
    return tuple(Recording(values=part) for part in np.split(values, ends))


def _windows(noise: str, rng: np.random.Generator) -> Iterator[float]:
    """Of one launch, in order."""
    if noise.startswith(GAUSSIAN):
        sd = noise_sd(noise)
        while True:
            yield float(rng.normal(0.0, sd))
    found = recordings(noise)
    values = found[int(rng.integers(len(found)))].values
    yield from values[int(rng.integers(len(values) // 3 + 1)) :].tolist()
