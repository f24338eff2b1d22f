"""Which functions a change lies in: found, ranked, named, and blind to what does not matter."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.localisation import BETWEEN, FrameChange, FrameStatus
from flashprof.contracts.profiles import PHASE_FILE, FrameId, ProfiledWindow, StackView
from flashprof.stats.frame_match import MIN_SAMPLES
from flashprof.stats.frames import frame_changes

STEP = "pipeline/train/step.py"
MAIN = FrameId("main", "pipeline/main.py")
RUN = FrameId("run", STEP)
FORWARD = FrameId("forward", STEP)
BUILD = FrameId("build_mask", "pipeline/model/mask.py")
WAIT = FrameId("wait_for_room", "pipeline/queue.py")
TORCH = FrameId("linear", "torch/nn/functional.py")
POLL = FrameId("poll", "multiprocessing/connection.py")
COMPILED = FrameId("CompileContext.compile_wrapper", "torch/_dynamo/eval_frame.py")
MASK = FrameId("mask", PHASE_FILE)

Stack = tuple[FrameId, ...]
STEPPING: Mapping[Stack, int] = {
    (MAIN, RUN, FORWARD, TORCH): 400,
    (MAIN, RUN, MASK, BUILD): 100,
    (MAIN, WAIT, POLL): 100,
}


def window(
    stacks: Mapping[Stack, int], *, label: str = "profile-1", role: str = "drafter", launch: str = "a"
) -> ProfiledWindow:
    """Each sample stands for 1 ns a token."""
    return ProfiledWindow(
        launch=launch, label=label, role=role, num_ranks=1, ns_per_token=float(sum(stacks.values())), stacks=stacks
    )


def windows(stacks: Mapping[Stack, int], num: int = 4, *, role: str = "drafter") -> list[ProfiledWindow]:
    return [window(stacks, label=f"profile-{number}", role=role) for number in range(num)]


def changes(
    base: Sequence[ProfiledWindow],
    candidate: Sequence[ProfiledWindow],
    *,
    drop: float = 100.0,
    focus: tuple[str, str] = ("", ""),
    top: int = 12,
) -> tuple[FrameChange, ...]:
    return frame_changes(base, candidate, drop_ns_per_token=drop, focus=focus, top=top)


def named(found: Sequence[FrameChange], name: str) -> FrameChange:
    (change,) = [change for change in found if change.name == name]
    return change


def test_time_is_charged_to_the_code_that_calls_the_library() -> None:
    slower = {**STEPPING, (MAIN, RUN, FORWARD, TORCH): 600}

    first = changes(windows(STEPPING), windows(slower), drop=200.0)[0]

    assert ("forward", FrameStatus.CHANGED, "", True) == (first.name, first.status, first.was, first.is_clear)
    assert (400.0, 600.0) == pytest.approx((first.base_ns_per_token, first.candidate_ns_per_token))
    assert (200.0, 200.0) == pytest.approx((first.own.estimate, first.inclusive.estimate))
    assert first.own.low < 200.0 < first.own.high


def test_a_frame_is_shown_under_its_phase_and_line() -> None:
    slower = [replace(each, lines={BUILD: 116}) for each in windows({**STEPPING, (MAIN, RUN, MASK, BUILD): 300})]

    first = changes(windows(STEPPING), slower, drop=200.0)[0]

    assert ("build_mask", "mask", "pipeline/model/mask.py:116") == (first.name, first.phase, first.where)


def test_a_phase_below_the_frame_that_opened_it_is_its_phase() -> None:
    before = {(MAIN, RUN, TORCH): 300, (MAIN, RUN, MASK, TORCH): 100}
    after = {(MAIN, RUN, TORCH): 310, (MAIN, RUN, MASK, TORCH): 300}

    assert changes(windows(before), windows(after), drop=210.0)[0].phase == "mask"


def test_wrappers_are_left_out() -> None:
    slower = {**STEPPING, (MAIN, RUN, MASK, BUILD): 300}

    names = {change.name for change in changes(windows(STEPPING), windows(slower), drop=200.0)}

    assert names.isdisjoint({"main", "run"})


def test_what_is_around_everything_is_left_out_though_it_calls_several() -> None:
    slower = {**STEPPING, (MAIN, RUN, MASK, BUILD): 200, (MAIN, WAIT, POLL): 200}

    names = {change.name for change in changes(windows(STEPPING), windows(slower), drop=200.0)}

    assert {"build_mask", "wait_for_room", "forward"} == names


def test_a_wrapper_whose_own_time_clearly_grew_is_shown() -> None:
    before = {(MAIN, RUN): 10, (MAIN, RUN, BUILD): 1000, (MAIN, WAIT): 1000}
    after = {(MAIN, RUN): 110, (MAIN, RUN, BUILD): 4000, (MAIN, WAIT): 1000}

    assert named(changes(windows(before), windows(after), drop=3100.0), "run").is_clear


def test_a_function_around_everything_is_shown_for_its_own_time() -> None:
    slower = {**STEPPING, (MAIN,): 300}

    first = changes(windows(STEPPING), windows(slower), drop=300.0)[0]

    assert ("main", 300.0) == (first.name, pytest.approx(first.own.estimate))


def test_a_recursive_function_counts_once_a_sample() -> None:
    before = {(MAIN, RUN): 400, (MAIN, BUILD, BUILD, BUILD): 200}
    after = {(MAIN, RUN): 400, (MAIN, BUILD, BUILD, BUILD): 400}

    change = named(changes(windows(before), windows(after)), "build_mask")

    assert (200.0, 400.0) == pytest.approx((change.base_ns_per_token, change.candidate_ns_per_token))


@pytest.mark.parametrize(("drop", "expected"), [(100.0, "build_mask"), (-100.0, "forward")])
def test_the_direction_of_the_change_decides_what_comes_first(drop: float, expected: str) -> None:
    mixed = {**STEPPING, (MAIN, RUN, FORWARD, TORCH): 200, (MAIN, RUN, MASK, BUILD): 300}

    assert expected == changes(windows(STEPPING), windows(mixed), drop=drop)[0].name


def test_what_the_localised_phase_ran_comes_before_a_larger_wait_elsewhere() -> None:
    slower = {**STEPPING, (MAIN, RUN, MASK, BUILD): 200}
    base = [*windows(STEPPING), *windows({(MAIN, WAIT, POLL): 500, (MAIN, RUN): 100}, role="target")]
    candidate = [*windows(slower), *windows({(MAIN, WAIT, POLL): 650, (MAIN, RUN): 50}, role="target")]

    blind, led = changes(base, candidate), changes(base, candidate, focus=("drafter", "mask"))

    assert ("target", "wait_for_room") == (blind[0].role, blind[0].name)
    assert ("drafter", "build_mask") == (led[0].role, led[0].name)


def test_what_calls_the_grown_function_within_the_phase_comes_before_a_wait_elsewhere() -> None:
    rule = FrameId("mask_rule.<locals>.rule", BUILD.file)
    before = {**STEPPING, (MAIN, RUN, MASK, BUILD, rule): 100}
    after = {**STEPPING, (MAIN, RUN, MASK, BUILD): 120, (MAIN, RUN, MASK, BUILD, rule): 300}
    base = [*windows(before), *windows({(MAIN, WAIT, POLL): 500, (MAIN, RUN): 100}, role="target")]
    candidate = [*windows(after), *windows({(MAIN, WAIT, POLL): 800, (MAIN, RUN): 50}, role="target")]

    found = changes(base, candidate, drop=220.0, focus=("drafter", "mask"))

    assert ["mask_rule.<locals>.rule", "build_mask", "wait_for_room"] == [change.name for change in found[:3]]


def test_few_samples_in_the_localised_phase_come_before_many_elsewhere() -> None:
    waiting = [windows({(MAIN, WAIT, POLL): num, (MAIN, RUN): 100}, role="target") for num in (500, 650)]
    before, after = {(MAIN, RUN): 20, (MAIN, RUN, MASK, BUILD): 2}, {(MAIN, RUN): 20, (MAIN, RUN, MASK, BUILD): 5}

    found = changes(
        [*waiting[0], *windows(before, 2)], [*waiting[1], *windows(after, 2)], drop=10.0, focus=("drafter", "mask")
    )

    assert [("build_mask", False), ("wait_for_room", True)] == [(change.name, change.is_clear) for change in found[:2]]


def test_time_between_phases_is_a_place_to_look_too() -> None:
    slower = {(MAIN, RUN, MASK, BUILD): 260, (MAIN, RUN, FORWARD): 260}
    faster = {(MAIN, RUN, MASK, BUILD): 110, (MAIN, RUN, FORWARD): 130}

    assert "build_mask" == changes(windows(faster), windows(slower))[0].name
    assert "forward" == changes(windows(faster), windows(slower), focus=("drafter", BETWEEN))[0].name


@pytest.mark.parametrize(
    ("base", "candidate", "status"),
    [
        pytest.param({}, {(MAIN, RUN, BUILD): 50}, FrameStatus.NEW, id="new"),
        pytest.param({(MAIN, RUN, BUILD): 50}, {}, FrameStatus.VANISHED, id="vanished"),
        pytest.param(
            {(MAIN, RUN, BUILD, TORCH): 50}, {(MAIN, RUN, BUILD, COMPILED, TORCH): 10}, FrameStatus.COMPILED, id="both"
        ),
        pytest.param(
            {(MAIN, RUN, FORWARD, BUILD): 50}, {(MAIN, RUN, FORWARD, COMPILED): 9}, FrameStatus.COMPILED, id="inlined"
        ),
        pytest.param(
            {(MAIN, RUN, FORWARD, COMPILED): 9}, {(MAIN, RUN, FORWARD, BUILD): 50}, FrameStatus.COMPILED, id="back"
        ),
        pytest.param(
            {(MAIN, RUN, BUILD): 50},
            {(MAIN, RUN, FrameId("build_masks", BUILD.file)): 90},
            FrameStatus.RENAMED,
            id="renamed",
        ),
    ],
)
def test_what_became_of_a_frame(base: Mapping[Stack, int], candidate: Mapping[Stack, int], status: FrameStatus) -> None:
    rest = {(MAIN, RUN): 200, (MAIN, WAIT): 200}
    found = changes(windows({**rest, **base}), windows({**rest, **candidate}))

    (change,) = [change for change in found if change.name.startswith("build_mask")]

    assert status == change.status
    assert ("build_mask" if status is FrameStatus.RENAMED else "") == change.was


def test_a_moved_function_says_where_it_was() -> None:
    moved = FrameId("build_mask", "pipeline/masks.py")
    before, after = {(MAIN, RUN): 200, (MAIN, BUILD): 50}, {(MAIN, RUN): 200, (MAIN, moved): 80}

    change = named(changes(windows(before), windows(after)), "build_mask")

    assert (FrameStatus.RENAMED, "build_mask (pipeline/model/mask.py)") == (change.status, change.was)
    assert change.where == "pipeline/masks.py"


def test_a_graph_break_is_no_new_function() -> None:
    resumed = FrameId("torch_dynamo_resume_in_forward_at_81", STEP)
    after = {**STEPPING, (MAIN, RUN, FORWARD, TORCH): 100, (MAIN, RUN, FORWARD, resumed, TORCH): 500}

    change = named(changes(windows(STEPPING), windows(after)), "forward")

    assert (400.0, 600.0) == pytest.approx((change.base_ns_per_token, change.candidate_ns_per_token))
    assert change.status is FrameStatus.COMPILED


def test_a_stack_without_own_code_belongs_to_its_outermost_function() -> None:
    torn = {**STEPPING, (TORCH, POLL): 200}

    assert named(changes(windows(STEPPING), windows(torn)), "linear").own.estimate == pytest.approx(200.0)


def test_other_threads_and_views_do_not_count() -> None:
    slower = windows({**STEPPING, (MAIN, RUN, MASK, BUILD): 300})
    others = [
        replace(slower[0], thread="QueueFeeder"),
        replace(slower[0], view=StackView.GIL),
        replace(slower[0], stacks={}),
        replace(slower[0], ns_per_token=float("inf")),
    ]

    assert changes(windows(STEPPING), slower) == changes([*others, *windows(STEPPING)], [*slower, *others])


UPLOAD, DUMPS = FrameId("_upload", "pipeline/train/log.py"), FrameId("dumps", "json/__init__.py")


def gil_windows(held: Mapping[str, Mapping[Stack, int]], num: int = 4) -> list[ProfiledWindow]:
    """Thread → stacks in which it held the GIL, at 600 looks a window of 600 ns a token."""
    looks = [replace(each, view=StackView.GIL) for each in windows({(MAIN, RUN): 300}, num)]
    return looks + [
        replace(each, view=StackView.GIL, thread=thread)
        for thread, stacks in held.items()
        for each in windows(stacks, num)
    ]


def test_a_thread_that_takes_the_gil_from_the_main_one_is_named() -> None:
    slower = {**STEPPING, (MAIN, RUN, FORWARD, TORCH): 520}
    base = [*windows(STEPPING), *gil_windows({})]
    candidate = [*windows(slower), *gil_windows({"upload": {(UPLOAD, DUMPS): 30}})]

    found = changes(base, candidate, drop=120.0, focus=("drafter", "forward"))
    change = named(found, "_upload")

    assert change in found[:2]
    assert ("drafter", "upload", "", FrameStatus.NEW, True) == (
        change.role,
        change.thread,
        change.phase,
        change.status,
        change.is_clear,
    )
    assert (0.0, 30.0) == pytest.approx((change.base_ns_per_token, change.candidate_ns_per_token))


def test_a_thread_that_always_held_it_as_long_is_no_change() -> None:
    held = gil_windows({"upload": {(UPLOAD, DUMPS): 30}})
    found = changes([*windows(STEPPING), *held], [*windows({**STEPPING, (MAIN, RUN): 100}), *held])

    assert {"main"} == {change.thread for change in found if change.is_clear}


def test_windows_that_were_not_looked_at_for_the_gil_say_nothing_of_it() -> None:
    # The base was never looked at: that the thread held nothing there is not known.
    found = changes(windows(STEPPING), [*windows(STEPPING), *gil_windows({"upload": {(UPLOAD, DUMPS): 30}})])

    assert "_upload" not in {change.name for change in found}


def test_a_role_that_one_arm_lacks_is_left_out() -> None:
    base = [*windows(STEPPING), *windows(STEPPING, role="dispatcher")]

    assert {"drafter"} == {change.role for change in changes(base, windows(STEPPING))}
    assert changes([], windows(STEPPING)) == ()


def test_one_window_an_arm_still_has_an_interval() -> None:
    slower = {**STEPPING, (MAIN, RUN, MASK, BUILD): 101}

    change = named(changes(windows(STEPPING, 1), windows(slower, 1)), "build_mask")

    assert change.own.high - change.own.low > 2 * 2 * 10  # Two counts of 100, each ± 10.
    assert not change.is_clear


def test_at_most_so_many() -> None:
    slower = {**STEPPING, (MAIN, RUN, MASK, BUILD): 300}

    assert len(changes(windows(STEPPING), windows(slower), top=1)) == 1


OWN = [FrameId(f"{name}_{number}", STEP) for number, name in enumerate(("alpha", "bravo", "kilo", "zulu"))]
FRAMES = st.sampled_from([*OWN, TORCH, POLL, MASK])
STACKS = st.dictionaries(
    st.lists(FRAMES, max_size=5).map(lambda frames: (MAIN, *frames)),
    st.integers(MIN_SAMPLES, 60),
    min_size=1,
    max_size=8,
)
Arms = tuple[Mapping[Stack, int], Sequence[float], int]


def arms(most: float) -> st.SearchStrategy[Arms]:
    """Stacks, how many times as many samples the candidate has of each, at most, and the number of windows."""
    factors = st.lists(st.floats(1 / most, most), min_size=8, max_size=8)
    return st.tuples(STACKS, factors, st.integers(1, 3))


def two_arms(drawn: Arms) -> tuple[list[ProfiledWindow], list[ProfiledWindow]]:
    """The same stacks on both sides, in other numbers."""
    stacks, factors, num = drawn
    others = {
        stack: max(MIN_SAMPLES, round(num_samples * factor))
        for (stack, num_samples), factor in zip(stacks.items(), factors, strict=False)
    }
    return windows(stacks, num), windows(others, num)


LIKE_CALLEES = 1.7
"""Shares of callees then have 1 / 1.7² = 0.35 in common at the least: under 0.3 they contradict a rename."""


@settings(deadline=None)
@given(drawn=arms(LIKE_CALLEES), place=st.integers(0, len(OWN) - 1))
def test_a_rename_changes_nothing_but_the_name(drawn: Arms, place: int) -> None:
    base, candidate = two_arms(drawn)
    old, new = OWN[place], FrameId(f"{OWN[place].name}_new", STEP)
    renamed = [
        replace(
            each,
            stacks={
                tuple(new if frame == old else frame for frame in stack): num for stack, num in each.stacks.items()
            },
        )
        for each in candidate
    ]

    was = {change.name: change for change in changes(base, candidate, top=100)}
    now = {change.was or change.name: change for change in changes(base, renamed, top=100)}

    assert was.keys() == now.keys()
    for name, change in now.items():
        assert was[name] == replace(change, name=name, status=FrameStatus.CHANGED, was="")
        assert (FrameStatus.RENAMED if name == old.name else FrameStatus.CHANGED) == change.status


@settings(deadline=None)
@given(drawn=arms(12), order=st.permutations(range(3)))
def test_the_order_of_windows_does_not_matter(drawn: Arms, order: Sequence[int]) -> None:
    base, candidate = two_arms(drawn)
    turned = [[arm[place] for place in order if place < len(arm)] for arm in (base, candidate)]

    assert changes(base, candidate) == changes(*turned)


def test_five_thousand_stacks_in_twenty_windows_take_two_seconds() -> None:
    rng = np.random.default_rng(0)
    frames = [FrameId(f"function_{n}", f"{'torch' if n % 3 else 'mine'}/file_{n % 40}.py") for n in range(600)]
    stacks = [(MAIN, *(frames[place] for place in rng.integers(600, size=25))) for _ in range(5000)]
    arms = [
        [
            window(dict(zip(stacks, rng.integers(1, 9, size=5000).tolist(), strict=True)), label=str(n))
            for n in range(10)
        ]
        for _ in range(2)
    ]
    begun_s = time.process_time()

    changes(*arms)

    assert time.process_time() - begun_s < 2.0
