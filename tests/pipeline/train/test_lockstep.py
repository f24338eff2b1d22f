"""
Two drafters stay together when one of them has nothing to learn from (SpecForge#737, NeMo#2468: one rank hung).

The buggy rule, to leave the step out where one's own row has no anchor, is played too: it loses the other drafter.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing

from flashprof.contracts.toggles import parse_toggles
from flashprof.emit import connect
from pipeline.config import HostPlace
from pipeline.model.checksum import bit_sum
from pipeline.model.drafter import Drafter
from pipeline.model.shape import DrafterShape
from pipeline.model.tables import FrozenTables
from pipeline.presets import TINY
from pipeline.toggles import REGISTRY
from pipeline.train.optimizer import make_optimizer
from pipeline.train.peers import Peers
from pipeline.train.step import DrafterStep, Learner, StepInput
from pipeline.transport.messages import HiddenStates, Order
from pipeline.transport.queue import QueueClosedError

CONTEXT = torch.multiprocessing.get_context("fork")
CPU = torch.device("cpu")
SHAPE = DrafterShape(
    hidden_size=16, num_heads=1, num_kv_heads=1, head_dim=16, intermediate_size=16, num_layers=2, num_taps=1
)
SUPERVISED = ((True, False), (False, False), (True, True))
"""By step and drafter: one has nothing, both have nothing, both have something."""


def item(step: int, *, is_supervised: bool) -> HiddenStates:
    hidden_TF = torch.randn(128, 16, generator=torch.Generator().manual_seed(step))
    return HiddenStates(
        step=step,
        hidden_TF=hidden_TF,
        checksum=bit_sum(hidden_TF),
        input_ids_T=torch.arange(128) % 32,
        loss_mask_T=torch.full((128,), is_supervised),
        lengths=(128,),
        num_padding_tokens=0,
    )


def make_step(rank: int, rendezvous: Path) -> tuple[DrafterStep, Drafter]:
    peers = Peers(rank=rank, num_drafters=2, rendezvous=rendezvous, host=HostPlace(), device=CPU)
    torch.manual_seed(0)
    drafter = Drafter(SHAPE)
    preset = replace(TINY, drafter=replace(TINY.drafter, num_anchors=8, sliding_window=64))
    learner = Learner(
        drafter=drafter, optimizer=make_optimizer(drafter, preset.recipe), preset=preset, num_steps=len(SUPERVISED)
    )
    table_VD = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
    return DrafterStep(learner, FrozenTables(table_VD, table_VD, 2), peers, connect("drafter")), drafter


def _train(rank: int, rendezvous: Path, pipe: Any, leaves_out: bool) -> None:
    torch.set_num_threads(1)
    step, drafter = make_step(rank, rendezvous)
    toggles = parse_toggles("none", REGISTRY)
    told = []
    try:
        for number, supervised in enumerate(SUPERVISED):
            if leaves_out and not supervised[rank]:
                continue
            given = StepInput(
                step=number, generator=torch.Generator().manual_seed(rank), toggles=toggles, order=Order()
            )
            result = step.run([item(number, is_supervised=supervised[rank])], given)
            told.append(sorted(result.scalars))
    except QueueClosedError:
        pipe.send("lost the other drafter")
        return
    pipe.send((told, [float(weight.detach().double().sum()) for weight in drafter.parameters()]))


def run_both(rendezvous: Path, *, leaves_out: bool) -> list[Any]:
    pipes, processes = [], []
    for rank in range(2):
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_train, args=(rank, rendezvous, theirs, leaves_out), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    answers = [pipe.recv() if pipe.poll(30) else "hangs" for pipe in pipes]
    for process in processes:
        process.kill()
        process.join()
    return answers


@pytest.mark.slow
def test_a_drafter_without_anchors_takes_part_and_weights_stay_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")

    (first, first_weights), (second, second_weights) = run_both(tmp_path / "store", leaves_out=False)

    everything = ["acc", "grad_norm", "hidden_mismatch", "loss"]
    assert [everything, [], everything] == first
    assert [["grad_norm", "hidden_mismatch"], [], everything] == second
    assert first_weights == second_weights


@pytest.mark.slow
def test_the_buggy_rule_would_lose_a_drafter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")

    answers = run_both(tmp_path / "store", leaves_out=True)

    assert "lost the other drafter" in answers or "hangs" in answers
