"""Which frames are the same function in two arms: renamed, moved, compiled; and which only look like it."""

from __future__ import annotations

from collections import Counter

import pytest

from flashprof.contracts.profiles import PHASE_FILE, FrameId
from flashprof.stats.frame_match import (
    GENERATED,
    MIN_SAMPLES,
    Neighbours,
    common_names,
    is_own_code,
    match_renamed,
    runs_compiled,
)

STEP = "pipeline/train/step.py"
MASK = "pipeline/model/mask.py"
INDUCTOR = "cqld6bwhi5slp2eppihjlnkuxr346n2ukjo6cq3bsuatmkfgfzkh.py"

RUN = FrameId("DrafterStep.run", STEP)
BUILD = FrameId("build_mask", MASK)
ARANGE = FrameId("arange", "torch/functional.py")
SORT = FrameId("sort", "torch/functional.py")


def around(num: int = 100, *, callers: dict[FrameId, int] | None = None, callees: dict[FrameId, int] | None = None):
    return Neighbours(
        num_samples=num, callers=Counter({RUN: num} if callers is None else callers), callees=Counter(callees or {})
    )


def arm(**frames: Neighbours):
    return {RUN: around(1000, callers={FrameId("", ""): 1000})} | {
        FrameId(name, MASK): neighbours for name, neighbours in frames.items()
    }


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("pipeline/train/step.py", True),
        ("train.py", True),
        ("code/train.py", True),  # `code` is a module of the standard library, not a folder in it.
        ("fast_op.pyx", True),
        ("./recipes/full.py", True),
        ("torch/nn/functional.py", False),
        ("transformers/utils/generic.py", False),
        ("/usr/lib/python3/dist-packages/mine/a.py", False),
        ("venv/lib/python3.12/site-packages/unheard_of/a.py", False),
        ("multiprocessing/connection.py", False),
        ("threading.py", False),
        ("flashprof/emit.py", False),
        ("<frozen runpy>", False),
        ("<string>", False),
        ("libtorch_cpu.so", False),
        ("", False),
        (INDUCTOR, False),
        (f"ql/{INDUCTOR}", False),
        (PHASE_FILE, False),
    ],
)
def test_own_code_is_what_a_reader_of_the_trainer_can_change(file: str, expected: bool) -> None:
    assert expected == is_own_code(FrameId("f", file))


def test_code_of_a_compiler_is_called_alike_in_each_launch() -> None:
    other = INDUCTOR.replace("cqld", "cabc")
    frames = [
        FrameId("Runner.call", INDUCTOR),
        FrameId("Runner.call", f"torchinductor_me/ab/{other}"),
        FrameId("triton_poi_fused_add_3", INDUCTOR),
        FrameId("__compiled_fn_3_7d5f0c1e_aa", "torch/x.py"),
        FrameId("forward", "<eval_with_key>.12"),
    ]

    names = common_names(frames)

    assert [
        FrameId("Runner.call", GENERATED),
        FrameId("Runner.call", GENERATED),
        FrameId("triton_poi_fused_add", GENERATED),
        FrameId("__compiled_fn", GENERATED),
        FrameId("forward", GENERATED),
    ] == [names[frame] for frame in frames]
    assert all(map(runs_compiled, names.values()))


def test_what_dynamo_resumes_is_the_function_that_it_broke() -> None:
    resumed = FrameId("torch_dynamo_resume_in_forward_at_81", MASK)
    names = common_names([resumed, FrameId("Drafter.forward", MASK), FrameId("Other.forward", STEP)])

    assert FrameId("Drafter.forward", MASK) == names[resumed]


def test_a_resumed_function_with_two_candidates_keeps_its_plain_name() -> None:
    resumed = FrameId("torch_dynamo_resume_in_forward_at_81_1", MASK)
    names = common_names([resumed, FrameId("A.forward", MASK), FrameId("B.forward", MASK)])

    assert FrameId("forward", MASK) == names[resumed]


@pytest.mark.parametrize("inner", ["<dictcomp>", "<genexpr>", "<lambda>", "<lambda>.<locals>.<genexpr>"])
def test_code_without_a_name_is_the_function_that_holds_it(inner: str) -> None:
    held = FrameId(f"DrafterStep._masks.<locals>.{inner}", STEP)

    assert FrameId("DrafterStep._masks", STEP) == common_names([held])[held]


@pytest.mark.parametrize("name", ["<lambda>", "<module>", "mask_rule.<locals>.rule", "Row.<lambda>"])
def test_what_no_function_holds_or_what_has_a_name_keeps_it(name: str) -> None:
    frame = FrameId(name, STEP)

    assert frame == common_names([frame])[frame]


def test_a_like_name_in_the_same_file_is_a_rename() -> None:
    base, candidate = arm(build_mask=around()), arm(build_block_mask=around(300))

    assert {BUILD: FrameId("build_block_mask", MASK)} == match_renamed(base, candidate)


def test_the_same_name_in_another_file_has_moved() -> None:
    moved = FrameId("build_mask", "pipeline/model/masks/dense.py")
    base, candidate = arm(build_mask=around()), arm() | {moved: around()}

    assert {BUILD: moved} == match_renamed(base, candidate)


def test_the_same_work_under_another_name_is_a_rename() -> None:
    base = arm(build_mask=around(callees={ARANGE: 90}))
    candidate = arm(sparsity=around(120, callees={ARANGE: 100}))

    assert {BUILD: FrameId("sparsity", MASK)} == match_renamed(base, candidate)


def test_what_a_renamed_function_calls_is_matched_after_it() -> None:
    inner, renamed_inner = FrameId("rule", MASK), FrameId("keep_if", MASK)
    build, rebuilt = FrameId("build_mask", MASK), FrameId("build_masks", MASK)
    base = arm(build_mask=around(callees={inner: 50}), rule=around(50, callers={build: 50}, callees={SORT: 50}))
    candidate = arm(
        build_masks=around(callees={renamed_inner: 50}), keep_if=around(50, callers={rebuilt: 50}, callees={SORT: 50})
    )

    assert {build: rebuilt, inner: renamed_inner} == match_renamed(base, candidate)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"sample_anchors": around()}, id="another name, no callees that would tell"),
        pytest.param({"build_masks": around(callees={SORT: 90})}, id="a like name, other callees"),
        pytest.param({"build_masks": around(callers={FrameId("main", STEP): 100})}, id="a like name, another caller"),
        pytest.param({"build_masks": around(MIN_SAMPLES - 1)}, id="too few samples to be missed in the base"),
        pytest.param({"sparsity": around(900, callees={ARANGE: 900})}, id="the same callees at nine times the cost"),
    ],
)
def test_a_likeness_is_no_rename(other: dict[str, Neighbours]) -> None:
    main = {FrameId("main", STEP): around(1000, callers={FrameId("", ""): 1000})}

    assert match_renamed(arm(build_mask=around(callees={ARANGE: 90})) | main, arm(**other) | main) == {}


@pytest.mark.parametrize("name", ["forward", "<lambda>"])
def test_a_plain_name_in_another_file_is_no_move(name: str) -> None:
    base = arm(**{name: around()})
    candidate = arm() | {FrameId(name, STEP): around()}

    assert match_renamed(base, candidate) == {}


def test_a_function_that_both_arms_have_is_not_stolen() -> None:
    base = arm(build_mask=around(), build_masks=around())
    candidate = arm(build_masks=around(200))

    assert match_renamed(base, candidate) == {}


def test_each_is_matched_once_and_to_the_likest() -> None:
    base = arm(build_mask=around(), build_mask_x=around())
    candidate = arm(build_mask_xy=around(), build_maskz=around())

    assert {
        BUILD: FrameId("build_maskz", MASK),
        FrameId("build_mask_x", MASK): FrameId("build_mask_xy", MASK),
    } == match_renamed(base, candidate)


def test_two_that_become_one_leave_one_behind() -> None:
    base, candidate = arm(build_mask=around(), build_mask_2=around()), arm(build_mask_one=around())

    assert len(match_renamed(base, candidate)) == 1
