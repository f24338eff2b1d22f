"""A drafter: takes hidden states in step order, trains on them, logs, saves, obeys the control channel."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import torch
from torch import Tensor

from flashprof.emit import Emitter
from pipeline.checkpoint.folder import read_state, restore
from pipeline.checkpoint.zlab import read_zlab
from pipeline.model.drafter import Drafter
from pipeline.model.target import drafter_shape, load_target, target_layer_ids
from pipeline.roles.switches import Switches
from pipeline.roles.worker import Rehearsal, WorkerSeat, report_ready
from pipeline.train.log import StepFacts, StepLog
from pipeline.train.optimizer import make_optimizer
from pipeline.train.peers import Peers
from pipeline.train.rows import FrozenTables
from pipeline.train.saver import ModelFacts, Saver
from pipeline.train.step import DrafterStep, Learner, StepInput, StepResult
from pipeline.train.tensorboard import open_sink
from pipeline.transport.messages import ROW_MULTIPLE, HiddenStates
from pipeline.transport.queue import Inbox, post


def run_drafter(seat: WorkerSeat, emitter: Emitter) -> None:
    """Train until the steps are done or the drafters agree to stop, then say how far it came."""
    config = seat.config
    peers = Peers(
        rank=seat.rank,
        num_drafters=config.host.num_hosts * config.topology.num_drafters,
        rendezvous=seat.rendezvous,
        host=config.host,
        device=seat.device,
    )
    trainer, saver = _load(seat, emitter, peers)
    training = Training(seat, emitter, trainer, saver)
    if config.toggles["warmup"]:
        for shape in seat.rehearsals:
            row = synthetic_row(shape, saver.facts.num_features, seat.device)
            trainer.rehearse(row, config.toggles)
    report_ready(seat, emitter)
    post(seat.status, training.run())
    peers.close()


def _load(seat: WorkerSeat, emitter: Emitter, peers: Peers) -> tuple[DrafterStep, Saver]:
    config = seat.config
    target: Any = load_target(config.preset, config.cache)
    layer_ids = target_layer_ids(config.preset, target.config)
    shape = drafter_shape(target.config, num_layers=len(config.preset.drafter.layer_types), num_taps=len(layer_ids))
    # All drafters start equal, whatever ran before on this process's generator.
    torch.manual_seed(config.seed)
    drafter = Drafter(shape).to(seat.device)
    optimizer = make_optimizer(drafter, config.preset.recipe)
    if config.resume_from is not None:
        restore(config.resume_from, drafter, optimizer)
    elif config.warm_start is not None:
        drafter.load_state_dict(read_zlab(config.warm_start).weights)
    frozen = FrozenTables(
        embedding_VD=_copy_to(target.get_input_embeddings().weight, seat.device),
        head_VD=_copy_to(target.get_output_embeddings().weight, seat.device),
        mask_token_id=seat.mask_token_id,
    )
    facts = ModelFacts(
        shape=shape,
        layer_ids=layer_ids,
        mask_token_id=seat.mask_token_id,
        num_target_layers=target.config.num_hidden_layers,
        vocab_size=target.config.vocab_size,
        max_positions=target.config.max_position_embeddings,
    )
    learner = Learner(drafter=drafter, optimizer=optimizer, preset=config.preset, num_steps=config.num_steps)
    return DrafterStep(learner, frozen, peers, emitter), Saver(config, facts, drafter, optimizer)


class Training:
    """The loop over steps, and what it carries from one to the next."""

    def __init__(self, seat: WorkerSeat, emitter: Emitter, trainer: DrafterStep, saver: Saver) -> None:
        config = seat.config
        self._seat = seat
        self._emitter = emitter
        self._trainer = trainer
        self._saver = saver
        self._switches = Switches(seat, emitter)
        self._inbox = Inbox(seat.queues[seat.local_rank], num_parts=config.preset.recipe.accumulate)
        self._carrier = seat.carrier
        self._log = StepLog(
            emitter,
            prints=seat.rank == 0,
            every=config.log_every,
            num_steps=config.num_steps,
            sink=open_sink(config.tensorboard if seat.rank == 0 else None, start_step=config.start_step),
        )
        self._num_tokens_all = read_state(config.resume_from).num_tokens if config.resume_from else 0

    def run(self) -> int:
        """Train; returns the number of steps behind it, counted from the very first."""
        num_steps = self._seat.config.start_step
        for step in self._steps():
            result, messages = self._train(step)
            num_steps = step + 1
            is_last = result.agreement.stop or num_steps == self._seat.config.num_steps
            self._num_tokens_all += result.agreement.num_tokens
            if self._seat.rank == 0 and self._saver.is_due(num_steps, is_last=is_last):
                with self._emitter.span("checkpoint"):
                    self._saver.save(num_steps, self._num_tokens_all, self._switches.values)
            self._emitter.end_step(
                step,
                num_tokens=sum(sum(message.lengths) for message in messages),
                num_supervised_tokens=sum(int(message.loss_mask_T.sum()) for message in messages),
                num_padding_tokens=sum(message.num_padding_tokens for message in messages),
            )
            if is_last:
                break
            self._switches.expect(result.agreement.commands)
        self._log.finish(self._switches.drain_metrics(), num_steps=num_steps)
        return num_steps

    def _steps(self) -> Iterator[int]:
        config = self._seat.config
        return iter(range(config.start_step, config.num_steps)) if config.num_steps else count(config.start_step)

    def _train(self, step: int) -> tuple[StepResult, list[HiddenStates]]:
        span = self._emitter.span
        messages = self._inbox.take(step, self._emitter)
        with span("unpack", device=True):
            messages = [self._carrier.unpack(message, self._seat.device) for message in messages]
        with span("control"):
            self._switches.apply(step)
            given = StepInput(
                step=step,
                generator=torch.Generator().manual_seed(_anchor_seed(self._seat, step)),
                toggles=self._switches.values,
                order=self._switches.read_order(),
            )
        result = self._trainer.run(messages, given)
        with span("metrics"):
            readings = self._switches.push_metrics(step, result.scalars)
        num_waiting = self._inbox.count_waiting(self._emitter)
        with span("log"):
            self._emitter.gauge("queue", step, num_waiting)
            self._log.record(self._facts(step, messages, result, num_waiting), readings)
        return result, messages

    def _facts(self, step: int, messages: list[HiddenStates], result: StepResult, num_waiting: int) -> StepFacts:
        return StepFacts(
            step=step,
            num_tokens=sum(sum(message.lengths) for message in messages),
            num_tokens_all=result.agreement.num_tokens,
            num_supervised_tokens=sum(int(message.loss_mask_T.sum()) for message in messages),
            num_padding_tokens=sum(message.num_padding_tokens for message in messages),
            num_waiting=num_waiting,
            wait_hidden_s=self._inbox.waited_s,
            wait_room_s=sum(message.target_wait_s for message in messages),
            lr=result.lr,
        )


def synthetic_row(shape: Rehearsal, num_features: int, device: torch.device) -> HiddenStates:
    """Random hidden states of a shape that the run will meet."""
    lengths = (shape.padded_length,) * shape.num_samples
    num_tokens = sum(lengths)
    padded_row = -(-num_tokens // ROW_MULTIPLE) * ROW_MULTIPLE
    return HiddenStates(
        step=0,
        hidden_TF=torch.randn(padded_row, num_features, device=device),
        checksum=torch.zeros((), dtype=torch.int64, device=device),
        input_ids_T=torch.ones(padded_row, dtype=torch.int64),
        loss_mask_T=torch.arange(padded_row) < num_tokens,
        lengths=lengths,
        num_padding_tokens=0,
    )


def _anchor_seed(seat: WorkerSeat, step: int) -> int:
    # Odd multipliers spread (seed, rank, step) over 63 bits: in practice only equal triples draw equal anchors.
    return (seat.config.seed * 0x9E3779B97F4A7C15 + seat.rank * 0xC2B2AE3D27D4EB4F + step) % 2**63


def _copy_to(weight: Tensor, device: torch.device) -> Tensor:
    return weight.detach().to(device, torch.float32, copy=True)
