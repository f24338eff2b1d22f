"""Functions of all roles are judged together, and what has a function's samples has its verdict."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flashprof.contracts.profiles import FrameId, ProfiledWindow
from flashprof.stats.function_changes import role_changes
from flashprof.stats.stack_noise import questions

MAIN = FrameId("main", "pipeline/main.py")
BUILD = FrameId("build_mask", "pipeline/mask.py")
SEND = FrameId("send", "pipeline/queue.py")
Stacks = Mapping[tuple[FrameId, ...], int]


def windows(stacks: Stacks, *, role: str = "drafter") -> list[ProfiledWindow]:
    """Four alike; each sample stands for 1 ns a token."""
    ns = float(sum(stacks.values()))
    return [
        ProfiledWindow(launch="a", label=str(n), role=role, num_ranks=1, ns_per_token=ns, stacks=stacks)
        for n in range(4)
    ]


def test_what_has_the_samples_of_a_function_finds_its_verdict() -> None:
    base, candidate = {(MAIN, BUILD): 100, (MAIN, SEND): 400}, {(MAIN, BUILD): 300, (MAIN, SEND): 400}
    (role,) = role_changes(windows(base), windows(candidate))
    grown, same = questions(np.array([[100.0] * 4, [400.0] * 4]), np.array([[300.0] * 4, [400.0] * 4]))

    assert (True, False) == (role.verdicts()[grown], role.verdicts()[same])
    assert questions(np.full((1, 4), 7.0), np.full((1, 4), 7.0))[0] not in role.verdicts()


def test_more_roles_make_it_harder_to_be_clear() -> None:
    base, candidate = windows({(MAIN, BUILD): 26, (MAIN, SEND): 400}), windows({(MAIN, BUILD): 40, (MAIN, SEND): 400})
    quiet = [
        window
        for number in range(12)
        for window in windows({(MAIN, BUILD): 30, (MAIN, SEND): 31}, role=f"drafter {number}")
    ]

    alone = {role.table.role: role for role in role_changes(base, candidate)}["drafter"]
    beside = {role.table.role: role for role in role_changes([*base, *quiet], [*candidate, *quiet])}["drafter"]
    row = alone.table.own.keys[BUILD]

    assert alone.own.p_values[row] == beside.own.p_values[row]
    assert (True, False) == (bool(alone.is_own_clear[row]), bool(beside.is_own_clear[row]))


def test_a_role_that_one_arm_lacks_is_left_out() -> None:
    assert () == role_changes(windows({(MAIN,): 9}), windows({(MAIN,): 9}, role="target"))
    assert () == role_changes([], [])
