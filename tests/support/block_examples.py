"""Blocks of a comparison with nothing but the difference to say."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flashprof.contracts.comparison import Block, Method

ABBA, BAAB = "ABBA", "BAAB"


def a_block(number: int, difference: float, order: str | None = None, disturbances: Sequence[str] = ()) -> Block:
    return Block(
        number=number,
        method=Method.HOT,
        order=order or (ABBA, BAAB)[number % 2],
        launches=("run-1",),
        site="host:0",
        difference=difference,
        base_log_tok_per_s=math.log(4_000),
        num_windows=4,
        length_s=20.0,
        disturbances=tuple(disturbances),
    )


def some_blocks(differences: Sequence[float], order: str | None = None) -> list[Block]:
    return [a_block(number, value, order) for number, value in enumerate(differences, start=1)]
