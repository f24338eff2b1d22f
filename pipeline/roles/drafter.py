"""A drafter: takes hidden states in step order, trains on them, logs, saves, obeys the control channel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path

import torch
from torch import Tensor

from flashprof.contracts.errors import UsageError
from flashprof.contracts.events import MODEL_TFLOP
from flashprof.emit import WAIT, Emitter
from pipeline.brake import make_hold
from pipeline.checkpoint.folder import read_state, restore
from pipeline.checkpoint.zlab import read_plan, read_zlab
from pipeline.checkpoint.zlab_config import ZlabPlan
from pipeline.data.buckets import packed_length
from pipeline.model.drafter import Drafter
from pipeline.model.tables import FrozenTables
from pipeline.model.target import drafter_shape, load_tables, target_layer_ids
from pipeline.roles.switches import Switches
from pipeline.roles.worker import Rehearsal, WorkerSeat, report_ready
from pipeline.train.log import StepFacts, StepLog
from pipeline.train.metrics import Reading
from pipeline.train.optimizer import make_optimizer
from pipeline.train.peers import Agreement, Peers
from pipeline.train.saver import ModelFacts, Saver
from pipeline.train.step import DrafterStep, Learner, StepInput, StepResult
from pipeline.train.tensorboard import open_sink
from pipeline.train.utilisation import StepFlop
from pipeline.transport.messages import HiddenStates
from pipeline.transport.queue import Inbox, post
from pipeline.ways import Ways


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
    peers.require_equal("the step to start from", config.start_step)
    trainer, saver, dtype = _load(seat, emitter, peers)
    shapes = seat.rehearsals if config.toggles["warmup"] else ()
    for shape in shapes:
        # Without a name: this frame lives as long as the run, and so would the last row.
        trainer.rehearse(synthetic_row(shape, saver.facts.num_features, seat.device, dtype), config.toggles)
    ways = Ways(emitter)
    ways.note("load", f"shapes rehearsed: {len(shapes)}{_segments(seat.device)}")
    training = Training(seat, emitter, trainer, saver, ways)
    report_ready(seat, emitter)
    post(seat.status, training.run())
    peers.close()


def _load(seat: WorkerSeat, emitter: Emitter, peers: Peers) -> tuple[DrafterStep, Saver, torch.dtype]:
    """What trains, what saves, and the type that hidden states come in: the target's own."""
    config = seat.config
    target, embedding_VD, head_VD = load_tables(config.preset, config.cache, device=seat.device)
    text, layer_ids = target.get_text_config(), target_layer_ids(config.preset, target)
    facts = ModelFacts(
        shape=drafter_shape(target, num_layers=len(config.preset.drafter.layer_types), num_taps=len(layer_ids)),
        layer_ids=layer_ids,
        mask_token_id=seat.mask_token_id,
        num_target_layers=text.num_hidden_layers,
        vocab_size=text.vocab_size,
        max_positions=text.max_position_embeddings,
    )
    # All drafters start equal, whatever ran before on this process's generator.
    torch.manual_seed(config.seed)
    drafter = Drafter(facts.shape).to(seat.device)
    optimizer = make_optimizer(drafter, config.preset.recipe)
    if config.resume_from is not None:
        restore(config.resume_from, drafter, optimizer)
    elif config.warm_start is not None:
        check_warm_start(read_plan(config.warm_start), facts, where=config.warm_start)
        drafter.load_state_dict(read_zlab(config.warm_start).weights)
    frozen = FrozenTables(
        embedding_VD=_copy_to(embedding_VD, seat.device),
        head_VD=_copy_to(head_VD, seat.device),
        mask_token_id=seat.mask_token_id,
    )
    learner = Learner(drafter=drafter, optimizer=optimizer, preset=config.preset, num_steps=config.num_steps)
    hold = make_hold(config.toggles, seat.device)
    trainer = DrafterStep(learner, frozen, peers, emitter, hold=hold)
    return trainer, Saver(config, facts, drafter, optimizer), embedding_VD.dtype


def check_warm_start(plan: ZlabPlan, facts: ModelFacts, *, where: Path) -> None:
    """
    Make sure that a drafter which somebody trained was trained for this target, and is what this run would train.

    Args:
        plan: What its config says.
        facts: What the run needs.
        where: Its folder, for the message.

    Raises:
        UsageError: They differ; names all that does, on both sides.
    """
    offered, needed = (
        asdict(of.shape)
        | {
            "target_layer_ids": list(of.layer_ids),
            "mask_token_id": of.mask_token_id,
            "num_target_layers": of.num_target_layers,
        }
        for of in (plan, facts)
    )
    different = [name for name in needed if offered[name] != needed[name]]
    if different:
        raise UsageError(
            "the run cannot start from this drafter: it was made for another target, or is built differently",
            where=str(where),
            offered=", ".join(f"{name} {offered[name]}" for name in different),
            allowed=", ".join(f"{name} {needed[name]}" for name in different),
            next_command="its own target with --target, or a run without --warm-start",
        )


class Training:
    """The loop over steps, and what it carries from one to the next."""

    def __init__(self, seat: WorkerSeat, emitter: Emitter, trainer: DrafterStep, saver: Saver, ways: Ways) -> None:
        config = seat.config
        self._seat = seat
        self._emitter = emitter
        self._trainer = trainer
        self._saver = saver
        self._ways = ways
        self._switches = Switches(seat, emitter)
        self._queue = seat.queues[seat.local_rank]
        self._inbox = Inbox(self._queue, num_parts=config.preset.recipe.accumulate)
        self._carrier = seat.carrier
        self._log = StepLog(
            emitter,
            prints=seat.rank == 0,
            every=config.log_every,
            num_steps=config.num_steps,
            sink=open_sink(config.tensorboard if seat.rank == 0 else None, start_step=config.start_step),
        )
        self._flop = StepFlop(shape=saver.facts.shape, vocab_size=saver.facts.vocab_size, plan=config.preset.drafter)
        self._num_tokens_all = read_state(config.resume_from).num_tokens if config.resume_from else 0

    def run(self) -> int:
        """Train; returns the number of steps behind it, counted from the very first."""
        num_steps = self._seat.config.start_step
        for step in self._steps():
            agreement, facts = self._train(step)
            num_steps = step + 1
            is_last = agreement.stop or num_steps == self._seat.config.num_steps
            self._num_tokens_all += facts.num_tokens_all
            if self._seat.rank == 0 and self._saver.is_due(num_steps, is_last=is_last):
                with self._emitter.span("checkpoint"):
                    self._saver.save(num_steps, self._num_tokens_all, self._switches.values)
            self._emitter.end_step(
                step,
                num_tokens=facts.num_tokens,
                num_supervised_tokens=facts.num_supervised_tokens,
                num_padding_tokens=facts.num_padding_tokens,
            )
            if is_last:
                break
            self._switches.expect(agreement.commands)
        self._log.finish(self._switches.drain_metrics(), num_steps=num_steps)
        return num_steps

    def _steps(self) -> Iterator[int]:
        config = self._seat.config
        return iter(range(config.start_step, config.num_steps)) if config.num_steps else count(config.start_step)

    def _train(self, step: int) -> tuple[Agreement, StepFacts]:
        """One step; lets go of its hidden states, which the next one would otherwise find beside its own."""
        span = self._emitter.span
        messages = self._inbox.take(step, self._emitter)
        # Two GPUs: what came may still be in the making. In `unpack` that wait would count as the drafter's work.
        with span("wait_states", WAIT, device=True):
            for message in messages:
                self._carrier.expect(message, self._seat.device)
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
        self._note_ways(step, result, readings)
        num_waiting = self._inbox.count_waiting(self._emitter)
        with span("log"):
            self._emitter.gauge("queue", step, num_waiting)
            facts = self._facts(step, messages, result, num_waiting)
            all_slide = bool(self._switches.values["swa"])
            tflop = self._flop.tflop(result.contexts, facts.num_tokens, all_slide=all_slide)
            self._emitter.gauge(MODEL_TFLOP, step, tflop)
            self._log.record(facts, readings)
        return result.agreement, facts

    def _note_ways(self, step: int, result: StepResult, readings: list[Reading]) -> None:
        """What no other module sees, and as it came about rather than as it was asked for."""
        self._ways.step = step
        self._ways.note("make_room", f"queue depth: {self._queue.depth.value}")
        if result.scalars:
            is_read = any(reading.step == step for reading in readings)
            self._ways.note("metrics", "read at once" if is_read else "read later")

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


def synthetic_row(shape: Rehearsal, num_features: int, device: torch.device, dtype: torch.dtype) -> HiddenStates:
    """Random hidden states of a shape that the run will meet; in another *dtype* than theirs all compiles once more."""
    lengths = (shape.padded_length,) * shape.num_samples
    num_tokens = sum(lengths)
    padded_row = packed_length(num_tokens)
    return HiddenStates(
        step=0,
        hidden_TF=torch.randn(padded_row, num_features, device=device, dtype=dtype),
        checksum=torch.zeros((), dtype=torch.int64, device=device),
        input_ids_T=torch.ones(padded_row, dtype=torch.int64),
        loss_mask_T=torch.arange(padded_row) < num_tokens,
        lengths=lengths,
        num_padding_tokens=0,
    )


def _anchor_seed(seat: WorkerSeat, step: int) -> int:
    # Odd multipliers spread (seed, rank, step) over 63 bits: in practice only equal triples draw equal anchors.
    return (seat.config.seed * 0x9E3779B97F4A7C15 + seat.rank * 0xC2B2AE3D27D4EB4F + step) % 2**63


def _segments(device: torch.device) -> str:
    """How the allocator holds what it holds: `expandable_segments` is a wish that it can leave unmet."""
    if device.type == "cpu":
        return ""
    is_expandable = any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot())
    return f", segments: {'expandable' if is_expandable else 'fixed'}"


def _copy_to(weight: Tensor, device: torch.device) -> Tensor:
    return weight.detach().to(device, torch.float32, copy=True)
