"""A hot study whose first launch was cut off within a block, which a slower one measured again."""

from __future__ import annotations

from pathlib import Path

from launch_files import PHASES, Trainer

from flashprof.app.hot import hot_results
from flashprof.contracts.comparison import Arm, Block

ORDERS = ("ABBA", "BAAB", "ABBA", "BAAB")
CUT_BLOCK = 3
SLOWER = {name: 1.3 * length_ms for name, length_ms in PHASES.items()}


def cut_off_study(launches: Path, *, has_cut_block: bool = True) -> list[Block]:
    """
    Write the launches of a study without a difference; returns its blocks.

    Args:
        launches: Where their run folders go.
        has_cut_block: Whether the first window of the block that was measured again is there.
    """
    first, second = Trainer(), Trainer(seed=1)
    for trainer in (first, second):
        trainer.train(20)
    for number in range(1, CUT_BLOCK):
        first.take_block(number, ORDERS[number - 1], dict.fromkeys(Arm, PHASES))
    if has_cut_block:
        whole = len(first.records)
        first.take_block(CUT_BLOCK, ORDERS[CUT_BLOCK - 1], dict.fromkeys(Arm, PHASES))
        first.records = first.records[: whole + (len(first.records) - whole) // 4]
    for number in range(CUT_BLOCK, len(ORDERS) + 1):
        second.take_block(number, ORDERS[number - 1], dict.fromkeys(Arm, SLOWER))
    blocks: list[Block] = []
    for run_id, trainer in (("hot-1", first), ("hot-2", second)):
        trainer.write(launches / run_id)
        blocks += hot_results([trainer.log], launch=run_id)[1]
    return blocks
