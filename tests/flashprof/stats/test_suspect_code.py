"""Suspects in the code: each is named by what covers the change, and ruled out by a number."""

from __future__ import annotations

import pytest

from flashprof.contracts.localisation import Ruling
from flashprof.windows.evidence import ArmEvidence
from flashprof.windows.evidence_items import AllocatorUse, Compilation, GaugeUse
from tests.support.suspect_cases import NUM_TOKENS, arm, frame, lane, part, ruled, steps, without_phases

GPU_FACTS = {"workload.device": "drafter-0 cuda:1"}
FORWARD = (part("drafter forward", 180.0),)


def on_gpu(device_ns: float) -> ArmEvidence:
    return arm(facts=GPU_FACTS, lanes=(lane(work_ns=900), lane(work_ns=device_ns, thread="main:cuda1")))


def test_a_function_that_synchronises_is_named_where_its_phase_has_the_change() -> None:
    sync = (frame("Tensor.item", 170.0),)

    found = ruled("host synchronisations", on_gpu(400), on_gpu(400), FORWARD, sync)

    assert found.ruling is Ruling.NAMED
    assert found.share == pytest.approx(0.85)
    assert "10 ns → 0.18 µs a token" in found.evidence


def test_waiting_for_longer_work_of_the_device_is_no_synchronisation() -> None:
    sync = (frame("at::native::_local_scalar_dense(at::Tensor const&)", 170.0),)

    found = ruled("host synchronisations", on_gpu(400), on_gpu(570), FORWARD, sync)

    assert found.ruling is Ruling.RULED_OUT
    assert "the device worked 0.17 µs longer" in found.evidence


def test_a_host_that_waits_beside_a_busy_device_has_slack() -> None:
    device = (part("drafter forward", 180.0, thread="main:cuda1"),)

    found = ruled("host synchronisations", on_gpu(950), on_gpu(950), device, (frame("Tensor.item", 170.0),))

    assert found.ruling is Ruling.RULED_OUT
    assert "slack" in found.evidence


def test_a_function_counts_only_where_its_phase_changed_clearly() -> None:
    unclear = (part("drafter mask", 180.0), part("drafter forward", 180.0, half=190.0))

    found = ruled("host synchronisations", on_gpu(400), on_gpu(400), unclear, (frame("Tensor.item", 170.0),))

    assert found.ruling is Ruling.UNKNOWN


def test_a_busy_device_of_one_role_excuses_no_other() -> None:
    parts = (part("target forward", 20.0, thread="main:cuda0"), *FORWARD)
    sync = (frame("Tensor.item", 170.0), frame("Tensor.item", 20.0, role="target"))
    target = lane("target", work_ns=400, thread="main:cuda0")
    longer = lane("target", work_ns=600, thread="main:cuda0")

    found = ruled(
        "host synchronisations",
        arm(facts=GPU_FACTS, lanes=(target,)),
        arm(facts=GPU_FACTS, lanes=(longer,)),
        parts,
        sync,
    )

    assert found.ruling is Ruling.NAMED
    assert found.share == pytest.approx(0.85)


def test_on_a_cpu_there_is_nothing_to_wait_for() -> None:
    assert ruled("host synchronisations", arm(), arm(), FORWARD).ruling is Ruling.RULED_OUT

    found = ruled("host synchronisations", arm(), arm(), FORWARD, (frame("clip_by_host", 150.0),))

    assert found.ruling is Ruling.NAMED
    assert "only their host work" in found.evidence


def test_samples_without_calls_in_c_do_not_rule_synchronisations_out() -> None:
    found = ruled("host synchronisations", on_gpu(400), on_gpu(400), FORWARD, (frame("forward", 170.0),))

    assert found.ruling is Ruling.UNKNOWN
    assert "--native" in found.evidence


def test_a_synchronisation_in_a_role_that_nobody_waits_for_costs_nothing() -> None:
    sync = (frame("Tensor.item", 170.0, role="target"),)

    assert ruled("host synchronisations", on_gpu(400), on_gpu(400), FORWARD, sync).ruling is Ruling.RULED_OUT


def test_mask_building_is_named_by_its_phase() -> None:
    parts = (part("drafter mask", 190.0), part("drafter forward", 5.0, half=10))

    found = ruled("mask building", arm(), arm({("drafter", "mask"): 290.0}), parts)

    assert found.ruling is Ruling.NAMED
    assert found.share == pytest.approx(0.95)
    assert found.evidence == "mask building took 0.10 µs → 0.29 µs a token"


def test_mask_building_that_did_not_change_is_ruled_out() -> None:
    assert ruled("mask building", arm(), arm(), (part("drafter forward", 190.0),)).ruling is Ruling.RULED_OUT


def test_mask_functions_in_another_phase_count_and_those_in_the_mask_phase_not_twice() -> None:
    parts = (part("drafter mask", 40.0), part("drafter forward", 30.0))
    frames = (frame("additive_mask", 40.0, phase="mask"), frame("make_mask", 30.0), frame("mask_rule", 20.0))

    found = ruled("mask building", arm(), arm(), parts, frames)

    assert found.ruling is Ruling.PART
    assert found.share == pytest.approx(0.35)


def test_without_a_mask_phase_nothing_is_known_of_masks() -> None:
    bare = without_phases()

    assert ruled("mask building", bare, bare, FORWARD).ruling is Ruling.UNKNOWN


def compiled(seconds: float, *, role: str = "drafter", rank: int = 0, reason: str = "") -> Compilation:
    return Compilation(role=role, rank=rank, what="recompile f", seconds=seconds, reason=reason)


def test_recompiling_after_warm_up_is_named_with_its_reason() -> None:
    marks = tuple(compiled(0.06, reason="size of x changed") for _ in range(3))

    found = ruled("recompilation", arm(), arm(compilations=marks), FORWARD)

    assert found.ruling is Ruling.NAMED
    assert found.share == pytest.approx(0.9)
    assert "0.0 → 3.0 compilations per 1,000 steps" in found.evidence
    assert "size of x changed" in found.evidence


def test_no_recompilation_is_ruled_out_and_silence_is_not() -> None:
    silent = arm(tells_compilations=False)

    assert ruled("recompilation", arm(), arm(), FORWARD).ruling is Ruling.RULED_OUT
    assert ruled("recompilation", silent, silent, FORWARD).ruling is Ruling.UNKNOWN


def test_frames_of_the_compiler_tell_where_the_subject_does_not() -> None:
    silent = arm(tells_compilations=False)
    frames = (frame("_compile", 170.0, where="torch/_dynamo/convert_frame.py:1"),)

    assert ruled("recompilation", silent, silent, FORWARD, frames).ruling is Ruling.NAMED


def test_ranks_compile_side_by_side() -> None:
    marks = (compiled(0.02, rank=0), compiled(0.03, rank=1))

    assert ruled("recompilation", arm(), arm(compilations=marks), FORWARD).share == pytest.approx(0.15)


def test_a_target_that_compiles_while_nobody_waits_for_it_is_ruled_out() -> None:
    marks = (compiled(0.2, role="target"),)

    assert ruled("recompilation", arm(), arm(compilations=marks), FORWARD).ruling is Ruling.RULED_OUT


def allocating(num_retries: float, excess_ns: float) -> ArmEvidence:
    use = AllocatorUse(num_retries=num_retries, grown_gib=1.5, excess_ns=excess_ns * NUM_TOKENS)
    return arm(facts=GPU_FACTS, allocators={"drafter": use})


def test_allocator_retries_are_named_by_the_steps_that_they_made_longer() -> None:
    found = ruled("allocator retries", allocating(0, 0), allocating(12, 150), FORWARD)

    assert found.ruling is Ruling.NAMED
    assert "0.0 → 12.0 retries per 1,000 steps" in found.evidence


def test_as_many_retries_are_ruled_out_and_an_untold_allocator_is_not() -> None:
    untold = arm(facts=GPU_FACTS)

    assert ruled("allocator retries", allocating(2, 5), allocating(2, 5), FORWARD).ruling is Ruling.RULED_OUT
    assert ruled("allocator retries", arm(), arm(), FORWARD).ruling is Ruling.RULED_OUT
    assert ruled("allocator retries", untold, untold, FORWARD).ruling is Ruling.UNKNOWN


def test_garbage_collection_is_named_by_a_phase_a_native_frame_or_a_gauge() -> None:
    parts = (part("drafter gc", 150.0),)
    gauge = {("drafter", "gc_s"): GaugeUse(num_values=1000, mean=150e-6, median=0.0)}

    phase = ruled("garbage collection", arm(), arm({("drafter", "gc"): 150.0}), parts)
    native = ruled("garbage collection", arm(), arm(), FORWARD, (frame("gc_collect_main", 150.0),))
    told = ruled("garbage collection", arm(), arm(gauges=gauge), FORWARD)

    assert [phase.ruling, native.ruling, told.ruling] == [Ruling.NAMED] * 3
    assert told.share == pytest.approx(0.75)


def test_single_long_steps_leave_room_for_collections_and_name_nobody() -> None:
    found = ruled("garbage collection", arm(), arm(steps={"drafter": steps(mean=1.15e6)}), FORWARD)

    assert found.ruling is Ruling.UNKNOWN
    assert "1.000 → 1.150" in found.evidence
    assert "gc_collect_main" in found.evidence


def test_steps_that_are_all_longer_alike_rule_collections_out() -> None:
    old, new = arm(steps={"drafter": steps(1.1e6, 1e6)}), arm(steps={"drafter": steps(1.32e6, 1.2e6)})

    assert ruled("garbage collection", old, new, FORWARD).ruling is Ruling.RULED_OUT
