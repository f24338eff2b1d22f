"""One trial of every method on the same subject and noise, for `benchmarks.bisect_simulation`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.bisect_flashprof import flashprof_search, make_plan
from benchmarks.bisect_methods import COMMIT_METHODS, TOGGLE_METHODS, Found
from benchmarks.bisect_worlds import World, commit_world, noise_sd, toggle_world
from flashprof.stats.posterior import NoisePrior

CAP = 24
"""Windows after which FlashProf is made to answer, as the fixed designs are."""


def compared_rows(
    kind: str, case: str, noise: str, seed: int, *, most: int, calibrated: bool = False
) -> Iterator[dict[str, Any]]:
    """
    What each method named, and after how many windows.

    `flashprof` stops when it is certain, or gives up after *most* windows; `flashprof_24` is the same search, asked
    after 24 windows, or at its end where that was sooner. Where it is *calibrated* it knows how noisy a window is.
    """
    methods = TOGGLE_METHODS if kind == "toggles" else COMMIT_METHODS
    for name, method in methods.items():
        world = make_world(kind, case, noise, seed)
        yield _row(name, world, method(world), world.num_windows)
    world = make_world(kind, case, noise, seed)
    prior = replace(NoisePrior(), window_sd=noise_sd(noise)) if calibrated else NoisePrior()
    answer = flashprof_search(world, make_plan(world, prior, seed=seed), cap=CAP, most=most)
    # Without a proof the only blocks are those that compare the ends, where nothing seemed to matter.
    yield _row("flashprof", world, answer.named, answer.num_search + answer.num_proof)
    if kind == "toggles":
        asked = answer.capped.leading if answer.capped else None
        yield _row(f"flashprof_{CAP}", world, asked, min(answer.num_search, CAP))


def make_world(kind: str, case: str, noise: str, seed: int) -> World:
    """The same subject and noise for every method."""
    return toggle_world(case, noise, seed) if kind == "toggles" else commit_world(float(case), noise, seed)


def _row(method: str, world: World, found: Found, num_windows: int) -> dict[str, Any]:
    return {
        "method": method,
        "is_named": found is not None,
        "is_right": found is not None and _members(found) == _members(world.truth),
        # Two toggles that matter each for itself, and a pair that matters together, are not the same answer.
        "is_exact": found == world.truth,
        "windows": num_windows,
    }


def _members(terms: frozenset[tuple[str, ...]]) -> frozenset[str]:
    return frozenset(name for term in terms for name in term)
