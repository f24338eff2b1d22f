"""The measuring process at toy shapes: ours goes through every part; the peers, where installed, have our losses."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
import torch

from benchmarks.peers.clock import Clock
from benchmarks.peers.ours import OurDrafter
from benchmarks.peers.qwen import random_target
from benchmarks.peers.record import Record, read_parts
from benchmarks.peers.system import DrafterSystem
from benchmarks.peers.target import PLAIN_WAYS, OurTarget, PlainTarget
from benchmarks.peers.weights import draw, fill
from benchmarks.peers.work import TINY, check_batch, fixed_batch, hidden_states, varying_batches
from benchmarks.peers.worker import Bench, measure_drafter, measure_targets

CPU = torch.device("cpu")
# Compiling on a CPU takes a minute; that the compiled code computes the same is tested where it is.
WORK = replace(
    TINY, num_windows=1, num_varying=2, toggles="all,-swa,-compile,-compile-target,-compile-drafter,-packed-target"
)
PEERS = MappingProxyType(
    {
        "specforge": ("benchmarks.peers.specforge_peer", "SpecForgeDrafter"),
        "speculators": ("benchmarks.peers.speculators_peer", "SpeculatorsDrafter"),
    }
)


def bench(path: Path) -> Bench:
    return Bench(work=WORK, device=CPU, clock=Clock(CPU), record=Record(path))


def _skip_without(peer: str) -> None:
    if importlib.util.find_spec(peer) is None:
        pytest.skip(f"{peer} is not installed; its wheel unpacked on PYTHONPATH is enough")


def first_loss(system: DrafterSystem) -> float:
    batch = check_batch(WORK, seed=1)
    prepared = system.prepare(batch, hidden_states(WORK, batch, CPU, seed=0))
    return float(system.step(prepared)) * system.loss_scale


def test_ours_goes_through_every_part(tmp_path: Path) -> None:
    measure_drafter(bench(tmp_path / "parts"), "flashprof")
    parts = read_parts(tmp_path / "parts")

    assert ["setup", "warmup", "fixed", "varying", "target", "both"] == list(parts)
    assert not [part["error"] for part in parts.values() if "error" in part]
    timed = [parts[name] for name in ("fixed", "target", "both")]
    # The same work in all, and its rate; which of them takes longer depends on what else runs here.
    assert 1 == len({part["num_tokens"] for part in timed})
    assert all(part["tok_per_s"] == pytest.approx(1e3 * part["num_tokens"] / part["step_ms"]) for part in timed)
    assert parts["varying"]["first_pass"]["num_tokens"] > 0


def test_a_target_is_measured_in_each_plain_way(tmp_path: Path) -> None:
    measure_targets(bench(tmp_path / "parts"))
    parts = read_parts(tmp_path / "parts")

    assert [f"target_{way}" for way in PLAIN_WAYS] == list(parts)
    assert not [part["error"] for part in parts.values() if "error" in part]
    assert "varying" in parts["target_logits"]


def test_a_system_that_cannot_be_set_up_is_a_row_with_the_reason(tmp_path: Path) -> None:
    broken = replace(bench(tmp_path / "parts"), work=replace(WORK, toggles="no-such-toggle"))
    measure_drafter(broken, "flashprof")
    parts = read_parts(tmp_path / "parts")

    assert ["setup"] == list(parts)
    assert "no-such-toggle" in parts["setup"]["error"]


def test_every_way_of_a_target_gives_the_same_states_packed() -> None:
    model = random_target(WORK, CPU)
    ways = [
        OurTarget(WORK, model, CPU),
        OurTarget(replace(WORK, toggles="none,packed-target"), model, CPU),
        *(PlainTarget(WORK, model, CPU, way) for way in PLAIN_WAYS),
    ]
    for batch in (fixed_batch(WORK, seed=0), *varying_batches(WORK, 2, seed=3)):
        ours_TF, *others = [way.forward(batch) for way in ways]

        assert (batch.num_tokens, WORK.num_features) == ours_TF.shape
        for other_TF in others:
            torch.testing.assert_close(ours_TF, other_TF, rtol=1e-4, atol=1e-4)


def test_our_loss_falls_when_a_batch_is_seen_again() -> None:
    system = OurDrafter(WORK, CPU)
    first = first_loss(system)
    for _ in range(30):
        again = first_loss(system)

    assert again < first


def test_a_weight_depends_on_its_name_alone() -> None:
    one, other = torch.nn.Linear(8, 4, bias=False), torch.nn.Linear(8, 4, bias=False)
    fill(one)
    fill(other, {"weight": "fc.weight"})

    assert torch.equal(draw("weight", (4, 8), CPU), one.weight)
    assert torch.equal(draw("fc.weight", (4, 8), CPU), other.weight)
    assert not torch.equal(one.weight, other.weight)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("peer", sorted(PEERS))
def test_a_peers_loss_is_ours_at_the_same_weights(peer: str) -> None:
    _skip_without(peer)
    module, name = PEERS[peer]
    system = getattr(importlib.import_module(module), name)(WORK, CPU)

    assert first_loss(OurDrafter(WORK, CPU)) == pytest.approx(first_loss(system), rel=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("peer", sorted(PEERS))
def test_a_peer_goes_through_every_part(peer: str, tmp_path: Path) -> None:
    _skip_without(peer)
    measure_drafter(bench(tmp_path / "parts"), peer)
    parts = read_parts(tmp_path / "parts")

    assert {"setup", "warmup", "fixed", "varying", "both"} <= set(parts)
    assert not [part["error"] for part in parts.values() if "error" in part]
