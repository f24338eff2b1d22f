"""
The order of the arms within a block, drawn by a coin. Pure.

Blocks are Thue–Morse sequences (AB, ABBA, ABBABAAB, …): linear drift cancels in 4 windows, quadratic drift in 8.
What drift is left has a random sign, since a fair coin swaps the arms. One coin is tossed for two blocks, and the
second is the first turned round: the same drift in both adds nothing to their mean, and both orders are there after
two blocks, which `stats.compare` waits for. Simulated, false alarms under strong drift fall from 0.7 to 0.3 %.
"""

from __future__ import annotations

import hashlib

from flashprof.contracts.comparison import Arm

ARM_OF = {"A": Arm.BASE, "B": Arm.CANDIDATE}


def block_order(seed: int, number: int, num_windows: int = 4) -> str:
    """
    Draw the order of one block; the same on every call, process and machine.

    Args:
        seed: Of the study.
        number: Of the block, from 1.
        num_windows: 2, 4, 8, …: a power of two. Blocks of another length get another coin.

    Returns:
        `ABBA` or `BAAB`; A is the base. Blocks 1 and 2, 3 and 4, … are mirror images.
    """
    assert num_windows >= 2, "a block holds both arms"
    assert num_windows.bit_count() == 1, "a power of two, or the arms' places do not balance"
    # Python's own hash differs from process to process, and `random` may change between versions.
    pair, is_second = divmod(number - 1, 2)
    coin = hashlib.sha256(f"{seed}/{num_windows}/{pair}".encode()).digest()[0] & 1
    return "".join("AB"[(place.bit_count() + coin + is_second) % 2] for place in range(num_windows))
