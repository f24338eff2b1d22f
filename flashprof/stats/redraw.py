"""
Comparisons that might have been: A/A blocks of this machine, drawn again as data of many comparisons. Pure.

Under A/A the labels mean nothing, and which arm was A was a coin's choice (`decide/orders.py`), so turning a block
round (ABBA ↔ BAAB) negates its difference and gives data that were exactly as likely. What is estimated by such
redrawings holds for the machine's own noise, whatever its shape: only their draws are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flashprof.contracts.comparison import Block, Method

if TYPE_CHECKING:
    from numpy.random import Generator

TURN = str.maketrans("AB", "BA")


def disjoint_stretches(launches: Sequence[Sequence[Block]], num_blocks: int) -> Iterator[tuple[Block, ...]]:
    """The recorded blocks as they were, cut into comparisons of *num_blocks* within a launch; the rest is not used."""
    for blocks in launches:
        for start in range(0, len(blocks) - num_blocks + 1, num_blocks):
            yield tuple(blocks[start : start + num_blocks])


def redrawn_stretches(
    launches: Sequence[Sequence[Block]], num_blocks: int, num_draws: int, rng: Generator
) -> Iterator[tuple[Block, ...]]:
    """
    Stretches from a random block on, each block turned round by a fair coin.

    A stretch that meets the end of its launch goes on at a random block of a random launch, so that quiet and noisy
    minutes stay together as they came. Blocks keep the number that they were recorded with.
    """
    kept = [blocks for blocks in launches if blocks]
    # Both sides of every coin are made once: making a block takes 15 µs, and a calibration draws 200,000.
    sides = [tuple((block, _turned(block)) for block in blocks) for blocks in kept]
    starts = [(launch, first) for launch, blocks in enumerate(kept) for first in range(len(blocks))]
    for _ in range(num_draws):
        stretch: list[tuple[Block, Block]] = []
        while len(stretch) < num_blocks:
            launch, first = starts[int(rng.integers(len(starts)))]
            stretch += sides[launch][first : first + num_blocks - len(stretch)]
        coins = rng.integers(2, size=num_blocks)
        yield tuple(both[coin] for both, coin in zip(stretch, coins, strict=True))


def random_pairings(
    means: Sequence[float], num_draws: int, rng: Generator, *, pair_s: float
) -> Iterator[tuple[Block, ...]]:
    """Recorded launches as cold blocks, paired at random, each launch at most once in a comparison."""
    for _ in range(num_draws):
        order = [float(means[index]) for index in rng.permutation(len(means))]
        pairs = zip(order[::2], order[1::2], strict=False)
        yield tuple(_cold_block(number, ends, _coin(rng), pair_s) for number, ends in enumerate(pairs, start=1))


def drawn_pairs(
    sd: float, num_blocks: int, num_draws: int, rng: Generator, *, pair_s: float
) -> Iterator[tuple[Block, ...]]:
    """Cold blocks of launches that scatter by *sd*, Gaussian: for more launches than were made."""
    for _ in range(num_draws):
        draws = rng.normal(0.0, sd, size=(num_blocks, 2))
        pairs = ((float(base), float(candidate)) for base, candidate in draws)
        yield tuple(_cold_block(number, ends, _coin(rng), pair_s) for number, ends in enumerate(pairs, start=1))


def planted(block: Block, shift: float) -> Block:
    """The block, had the candidate's log tok/s been *shift* higher."""
    return replace(block, difference=block.difference + shift)


def _turned(block: Block) -> Block:
    """The block that the coin's other side would have given."""
    return replace(block, order=block.order.translate(TURN), difference=-block.difference)


def _coin(rng: Generator) -> str:
    return "AB" if rng.random() < 0.5 else "BA"


def _cold_block(number: int, ends: tuple[float, float], order: str, pair_s: float) -> Block:
    base, candidate = ends
    return Block(
        number=number,
        method=Method.COLD,
        order=order,
        launches=(f"{number}a", f"{number}b"),
        site="",
        difference=candidate - base,
        base_log_tok_per_s=base,
        num_windows=2,
        length_s=pair_s,
    )
