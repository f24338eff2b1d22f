"""A drafter: takes hidden states in step order, trains on them, logs, obeys the control channel."""

from __future__ import annotations

from itertools import count

import torch
from torch import Tensor

from flashprof.contracts.control import Command, CommandName
from flashprof.contracts.toggles import ToggleValues
from flashprof.emit import Emitter
from pipeline.model.drafter import Drafter
from pipeline.model.target import drafter_shape, load_target
from pipeline.roles.worker import Rehearsal, WorkerSeat, report_ready
from pipeline.train.log import StepLog
from pipeline.train.metrics import AsyncMetrics, MetricsReader, Reading, SyncMetrics
from pipeline.train.peers import Peers
from pipeline.train.step import DrafterStep, FrozenTables, make_optimizer
from pipeline.transport.messages import ROW_MULTIPLE, End, HiddenStates
from pipeline.transport.queue import HiddenStateQueue, Inbox


def run_drafter(seat: WorkerSeat, emitter: Emitter) -> None:
    """Train until the end of the run."""
    peers = Peers(
        rank=seat.rank,
        num_drafters=seat.config.topology.num_drafters,
        rendezvous=seat.rendezvous,
        device=seat.device,
    )
    trainer, num_features = _load(seat, emitter, peers)
    switches = Switches(seat, emitter)
    if seat.config.toggles["warmup"]:
        for shape in seat.rehearsals:
            trainer.rehearse(synthetic_row(shape, num_features, seat.device), switches.values)
    report_ready(seat, emitter)
    _train(seat, emitter, trainer, switches)
    peers.close()


def _load(seat: WorkerSeat, emitter: Emitter, peers: Peers) -> tuple[DrafterStep, int]:
    config = seat.config
    target = load_target(config.preset, config.cache)
    shape = drafter_shape(target.config, num_layers=len(config.preset.drafter.layer_types))
    # All drafters start equal, whatever ran before on this process's generator.
    torch.manual_seed(config.seed)
    drafter = Drafter(shape).to(seat.device)
    frozen = FrozenTables(
        embedding_VD=_copy_to(target.get_input_embeddings().weight, seat.device),
        head_VD=_copy_to(target.get_output_embeddings().weight, seat.device),
        mask_token_id=seat.mask_token_id,
    )
    trainer = DrafterStep(
        drafter=drafter,
        frozen=frozen,
        preset=config.preset,
        peers=peers,
        emitter=emitter,
        optimizer=make_optimizer(drafter, config.preset, config.num_steps),
    )
    return trainer, shape.num_taps * shape.hidden_size


def _train(seat: WorkerSeat, emitter: Emitter, trainer: DrafterStep, switches: Switches) -> None:
    inbox = Inbox(seat.queues[seat.rank])
    log = StepLog(emitter, prints=seat.rank == 0, every=seat.config.log_every, num_steps=seat.config.num_steps)
    for step in count():
        message = inbox.take(step, emitter)
        if isinstance(message, End):
            break
        with emitter.span("control"):
            switches.apply(inbox.orders(step), step)
            generator = torch.Generator().manual_seed(_anchor_seed(seat, step))
        result = trainer.run(message, switches.values, generator)
        with emitter.span("metrics"):
            readings = switches.push_metrics(step, result.scalars)
        num_waiting = inbox.count_waiting(emitter)
        with emitter.span("log"):
            emitter.gauge("queue", step, num_waiting)
            log.record(step, readings, num_tokens=result.num_tokens_all, num_waiting=num_waiting)
            num_supervised = int(message.loss_mask_T.sum())
        emitter.end_step(
            step,
            num_tokens=sum(message.lengths),
            num_supervised_tokens=num_supervised,
            num_padding_tokens=message.num_padding_tokens,
        )
        log.num_tokens += sum(message.lengths)
    log.finish(switches.drain_metrics(), num_steps=step)


class Switches:
    """The toggle values in force, and what has to be done when a hot one changes."""

    def __init__(self, seat: WorkerSeat, emitter: Emitter) -> None:
        self.values: ToggleValues = dict(seat.config.toggles)
        self._queue: HiddenStateQueue = seat.queues[seat.rank]
        self._emitter = emitter
        self._sync: MetricsReader = SyncMetrics()
        self._async: MetricsReader = AsyncMetrics(seat.device)

    def apply(self, commands: list[Command], step: int) -> None:
        """Put commands in force before *step*, and acknowledge them."""
        for command in commands:
            if command.name is CommandName.SET_TOGGLES:
                self.values.update(command.detail["values"])
                self._queue.set_depth(int(self.values["queue"]))
            self._emitter.acknowledge(command, step)

    def push_metrics(self, step: int, scalars: dict[str, Tensor]) -> list[Reading]:
        """Hand in a step's scalars; what an earlier setting of `async-metrics` left is read first."""
        if self.values["async-metrics"]:
            return self._async.push(step, scalars)
        return self._async.drain() + self._sync.push(step, scalars)

    def drain_metrics(self) -> list[Reading]:
        """All that is still outstanding."""
        return self._async.drain()


def synthetic_row(shape: Rehearsal, num_features: int, device: torch.device) -> HiddenStates:
    """Random hidden states of a shape that the run will meet."""
    lengths = (shape.padded_length,) * shape.num_samples
    num_tokens = sum(lengths)
    padded_row = -(-num_tokens // ROW_MULTIPLE) * ROW_MULTIPLE
    return HiddenStates(
        step=0,
        hidden_TF=torch.randn(padded_row, num_features, device=device),
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
