"""What a drafter may start from, and what its loop holds from one step to the next."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from trainer_config import some_config

from flashprof.contracts.errors import UsageError
from flashprof.contracts.toggles import parse_toggles
from flashprof.emit import connect
from pipeline.checkpoint.zlab_config import ZlabPlan
from pipeline.model.shape import DrafterShape
from pipeline.model.taps import TappedTarget
from pipeline.model.target import load_tables, load_target
from pipeline.presets import TINY
from pipeline.roles.drafter import Training, check_warm_start, synthetic_row
from pipeline.roles.worker import Rehearsal, WorkerSeat
from pipeline.toggles import REGISTRY
from pipeline.train.peers import Agreement
from pipeline.train.saver import ModelFacts, Saver
from pipeline.train.step import StepInput, StepResult
from pipeline.transport.messages import HiddenStates
from pipeline.transport.queue import create_queue
from pipeline.ways import Ways

SHAPE = DrafterShape(
    hidden_size=32, num_heads=2, num_kv_heads=1, head_dim=16, intermediate_size=48, num_layers=2, num_taps=2
)
FACTS = ModelFacts(shape=SHAPE, layer_ids=(1, 3), mask_token_id=2, num_target_layers=6, vocab_size=64, max_positions=64)
PLAN = ZlabPlan(
    shape=SHAPE,
    layer_types=("sliding_attention", "full_attention"),
    sliding_window=16,
    is_causal=False,
    block_size=8,
    layer_ids=(1, 3),
    mask_token_id=2,
    num_target_layers=6,
)
FOLDER = Path("somebodys")


def test_a_drafter_for_this_target_is_taken() -> None:
    check_warm_start(PLAN, FACTS, where=FOLDER)


@pytest.mark.parametrize(
    ("changes", "offered", "needed"),
    [
        (
            {"shape": replace(SHAPE, hidden_size=64, num_heads=4)},
            "hidden_size 64, num_heads 4",
            "hidden_size 32, num_heads 2",
        ),
        ({"shape": replace(SHAPE, rope_theta=1e4)}, "rope_theta 10000.0", "rope_theta 1000000.0"),
        ({"layer_ids": (1, 4)}, "target_layer_ids [1, 4]", "target_layer_ids [1, 3]"),
        ({"mask_token_id": 5}, "mask_token_id 5", "mask_token_id 2"),
        ({"num_target_layers": 36}, "num_target_layers 36", "num_target_layers 6"),
    ],
)
def test_one_for_another_target_is_refused_with_what_it_has_and_what_is_needed(
    changes: dict[str, Any], offered: str, needed: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        check_warm_start(replace(PLAN, **changes), FACTS, where=FOLDER)

    assert offered == refusal.value.offered
    assert needed == refusal.value.allowed
    assert str(FOLDER) == refusal.value.where


def test_one_that_saw_only_the_tokens_before_may_learn_to_see_all() -> None:
    check_warm_start(replace(PLAN, is_causal=True), FACTS, where=FOLDER)


class WatchfulTrainer:
    """Learns nothing; counts, at each step, the hidden states of earlier ones that are still held."""

    def __init__(self) -> None:
        self._seen: list[weakref.ref[torch.Tensor]] = []
        self.num_held: list[int] = []

    def run(self, items: Sequence[HiddenStates], given: StepInput) -> StepResult:
        """Stands in for `DrafterStep.run`."""
        self.num_held.append(sum(tensor() is not None for tensor in self._seen))
        self._seen += [weakref.ref(item.hidden_TF) for item in items]
        return StepResult(scalars={}, agreement=Agreement(1.0, 2, False, ()), lr=given.step)


def test_a_step_finds_no_hidden_states_of_the_one_before() -> None:
    context = torch.multiprocessing.get_context("fork")
    config = some_config(toggles=parse_toggles("queue=8", REGISTRY), num_steps=3, log_every=10)
    ours, theirs = context.Pipe()
    queue = create_queue(context, 8)
    seat = WorkerSeat(
        role="drafter",
        local_rank=0,
        config=config,
        mask_token_id=2,
        rehearsals=(),
        rendezvous=Path("unused"),
        carrier_name="shared",
        status=ours,
        stderr=theirs,
        orders=None,
        queues=(queue,),
    )
    for step in range(3):
        row = torch.ones(2, dtype=torch.int64)
        queue.send(
            HiddenStates(
                step=step,
                hidden_TF=torch.ones(2, 4),
                checksum=torch.zeros((), dtype=torch.int64),
                input_ids_T=row,
                loss_mask_T=row.bool(),
                lengths=(2,),
                num_padding_tokens=0,
            )
        )
    trainer: Any = WatchfulTrainer()
    emitter = connect("nobody")
    saver: Any = Saver(config, FACTS, torch.nn.Linear(1, 1), None)

    num_steps = Training(seat, emitter, trainer, saver, Ways(emitter)).run()

    assert 3 == num_steps
    assert [0, 0, 0] == trainer.num_held


@pytest.mark.parametrize("source", ["random", "random-bf16"])
def test_a_rehearsal_has_the_type_of_the_hidden_states_that_will_come(source: str, tmp_path: Path) -> None:
    preset = replace(TINY, target=replace(TINY.target, source=source))
    target: Any = load_target(preset, tmp_path)
    states_BSD = TappedTarget(target, (1,)).forward(torch.ones(1, 8, dtype=torch.int64), early_exit=True)
    _, embedding_VD, _ = load_tables(preset, tmp_path)

    row = synthetic_row(Rehearsal(num_samples=1, padded_length=8), 64, torch.device("cpu"), embedding_VD.dtype)

    assert states_BSD[0].dtype == row.hidden_TF.dtype
