"""A target: pulls batches, runs the frozen model, hands packed hidden states to the drafter that the batch is for."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flashprof.contracts.errors import UsageError
from flashprof.contracts.events import MODEL_TFLOP
from flashprof.contracts.toggles import ToggleValues
from flashprof.emit import WAIT, Emitter
from pipeline.faults import Pack, make_pack
from pipeline.model.checksum import kept_bit_sum
from pipeline.model.flop import target_flop
from pipeline.model.shape import DrafterShape
from pipeline.model.taps import TappedTarget
from pipeline.model.target import drafter_shape, load_target, target_layer_ids
from pipeline.model.target_layers import KNOWN_LAYERS
from pipeline.presets import BUCKETED, FILLED
from pipeline.roles.worker import Rehearsal, WorkerSeat, report_ready
from pipeline.train.evidence import Evidence
from pipeline.transport.carriers import Carrier
from pipeline.transport.messages import HiddenStates, WorkItem
from pipeline.transport.queue import post, receive
from pipeline.ways import Ways

REQUEST = "request"


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What a target computes with."""

    target: TappedTarget
    num_layers: dict[bool, int]
    """That it runs through; True: with `early-exit`."""
    widths: DrafterShape | None
    """Of its layers; None where they are not known, and so not what a step needs."""
    carrier: Carrier
    pack: Pack
    ways: Ways
    evidence: Evidence
    """Of compilations; what the allocator does is told by the drafters."""


@dataclass(frozen=True)
class Rows:
    """A batch as the target computes it, on the host: B rows, or one packed row."""

    input_ids_BS: Tensor
    """int64."""
    loss_mask_BS: Tensor
    is_token_BS: Tensor
    """bool; False where there is padding."""
    is_packed: bool

    @property
    def num_padding_tokens(self) -> int:
        """That are computed for nothing."""
        return int((~self.is_token_BS).sum())


def run_target(seat: WorkerSeat, emitter: Emitter) -> None:
    """Serve until the dispatcher sends None."""
    tools = _load(seat, emitter)
    report_ready(seat, emitter)
    post(seat.status, REQUEST)
    num_done = 0
    while True:
        with emitter.span("wait_work", WAIT):
            item = receive(seat.status)
        if item is None:
            return
        with emitter.span("request"):
            # Asked for before it is needed, so that the next batch is here when this one is done.
            post(seat.status, REQUEST)
        rows = _serve(seat, emitter, tools, item)
        tools.evidence.look()
        if tools.widths is not None:
            flop = target_flop(tools.widths, num_layers=tools.num_layers[True], lengths=item.lengths)
            emitter.gauge(MODEL_TFLOP, num_done, flop / 1e12)
        emitter.end_step(
            num_done,
            num_tokens=item.num_tokens,
            num_supervised_tokens=int(item.loss_mask_BS.sum()),
            num_padding_tokens=rows.num_padding_tokens,
        )
        num_done += 1


def _load(seat: WorkerSeat, emitter: Emitter) -> Tools:
    config = seat.config
    model: Any = load_target(config.preset, config.cache, device=seat.device)
    layer_ids = target_layer_ids(config.preset, model.config)
    target = TappedTarget(model, layer_ids)
    must_pack = config.preset.data.batches == FILLED
    if must_pack:
        check_packs(target, type(model).__name__)
    evidence = Evidence(emitter, reserved=lambda: None)
    shapes = seat.rehearsals if config.toggles["warmup"] else ()
    for shape in shapes:
        compute(target, _rehearsal(shape, config.toggles), seat.device)
    num_lengths = 0
    if shapes and (must_pack or config.toggles["packed-target"]) and target.has_own_layers:
        num_lengths = target.rehearse_packed(config.preset.data.max_length)
    ways = Ways(emitter)
    ways.note("load", f"shapes rehearsed: {len(shapes)}, lengths: {num_lengths}")
    return Tools(
        target=target,
        num_layers={False: model.config.get_text_config().num_hidden_layers, True: layer_ids[-1] + 1},
        widths=drafter_shape(model.config, num_layers=1, num_taps=1) if target.has_own_layers else None,
        carrier=seat.carrier,
        pack=make_pack(config.fault, seat.device),
        ways=ways,
        evidence=evidence,
    )


def check_packs(target: TappedTarget, name: str) -> None:
    """
    Make sure that *target*, whose class is *name*, can take packed rows.

    Raises:
        UsageError: It goes transformers' own way only, which would read a packed row as one text.
    """
    if not target.has_own_layers:
        raise UsageError(
            f"--batches {FILLED} makes packed rows, which this target's own forward would read as one text",
            offered=name,
            allowed=f"targets of plain {' or '.join(KNOWN_LAYERS)}s",
            next_command=f"--batches {BUCKETED}",
        )


def _serve(seat: WorkerSeat, emitter: Emitter, tools: Tools, item: WorkItem) -> Rows:
    queue = seat.queues[item.drafter]
    tools.ways.step = item.step
    tools.ways.note("forward", f"layers: {tools.num_layers[item.early_exit]}, {own_way(tools.target, item)}")
    with emitter.span("forward", device=True):
        rows, states_BSD = compute(tools.target, item, seat.device)
    with emitter.span("pack", device=True):
        packed = pack_message(item, rows, states_BSD, tools.pack)
    with emitter.span("share"):
        message = tools.carrier.pack(packed, receiver=item.drafter)
    start_s = time.perf_counter()
    with emitter.span("wait_room", WAIT):
        queue.wait_for_room(item.step)
    wait_s = time.perf_counter() - start_s
    with emitter.span("send"):
        queue.send(replace(message, target_wait_s=wait_s))
    return rows


def own_way(target: TappedTarget, item: WorkItem) -> str:
    """How the work is computed: unknown layers go transformers' way, whatever is asked."""
    compiled, packed = (target.has_own_layers and asked for asked in (item.compiled, item.packed))
    return f"{'compiled' if compiled else 'eager'}, {'packed' if packed else 'padded'}"


def compute(target: TappedTarget, item: WorkItem, device: torch.device) -> tuple[Rows, list[Tensor]]:
    """The work's rows, and the hidden states `[B, S, D]` of its taps, the way that it asks for."""
    rows = lay_out(item, packed=item.packed and target.has_own_layers)
    input_ids_BS = _send(rows.input_ids_BS, device)
    if rows.is_packed:
        return rows, target.forward_packed(
            input_ids_BS[0], item.lengths, early_exit=item.early_exit, compiled=item.compiled
        )
    if item.compiled and target.has_own_layers:
        return rows, target.forward_padded(input_ids_BS, early_exit=item.early_exit, compiled=True)
    return rows, target.forward(input_ids_BS, early_exit=item.early_exit)


def lay_out(item: WorkItem, *, packed: bool) -> Rows:
    """The work's rows as they came, or one row of all real tokens with what fills it up to whole blocks."""
    input_ids_BS, loss_mask_BS = torch.from_numpy(item.input_ids_BS).long(), torch.from_numpy(item.loss_mask_BS)
    is_token_BS = real_tokens(item.lengths, *input_ids_BS.shape)
    if packed:
        pad = (0, item.padded_row - item.num_tokens)
        input_ids_BS, loss_mask_BS, is_token_BS = (
            torch.nn.functional.pad(rows_BS[is_token_BS], pad)[None]
            for rows_BS in (input_ids_BS, loss_mask_BS, is_token_BS)
        )
    return Rows(input_ids_BS, loss_mask_BS, is_token_BS, is_packed=packed)


def _rehearsal(shape: Rehearsal, toggles: ToggleValues) -> WorkItem:
    """Work of a shape that the run will meet, as full as it can be."""
    rows = (shape.num_samples, shape.padded_length)
    return WorkItem(
        step=0,
        drafter=0,
        input_ids_BS=np.ones(rows, dtype=np.int32),
        loss_mask_BS=np.ones(rows, dtype=np.bool_),
        lengths=(shape.padded_length,) * shape.num_samples,
        early_exit=bool(toggles["early-exit"]),
        compiled=bool(toggles["compile-target"]),
        packed=shape.is_packed or bool(toggles["packed-target"]),
    )


def pack_message(item: WorkItem, rows: Rows, states_BSD: list[Tensor], pack_states: Pack) -> HiddenStates:
    """What the drafter gets: without the padding between samples."""
    keep_T = torch.nonzero(rows.is_token_BS.flatten()).squeeze(1)
    pad = (0, item.padded_row - keep_T.numel())
    device = states_BSD[0].device
    return HiddenStates(
        step=item.step,
        part=item.part,
        hidden_TF=pack_states(states_BSD, _send(keep_T, device), item.padded_row),
        # On the stream that computes the states, before they are moved by anything: what the drafter must get.
        checksum=checksum_states(states_BSD, _send(rows.is_token_BS, device)),
        input_ids_T=torch.nn.functional.pad(rows.input_ids_BS.flatten()[keep_T], pad),
        loss_mask_T=torch.nn.functional.pad(rows.loss_mask_BS.flatten()[keep_T], pad),
        lengths=item.lengths,
        num_padding_tokens=rows.num_padding_tokens,
    )


def _send(tensor: Tensor, device: torch.device) -> Tensor:
    """Host to device. From pageable memory a copy of more than 64 KiB waits for all that the stream still has to do."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def real_tokens(lengths: tuple[int, ...], num_rows: int, padded_length: int) -> Tensor:
    """Where a right-padded batch holds tokens, bool `[B, S]`; rows past the samples hold none."""
    lengths_B = torch.tensor(lengths + (0,) * (num_rows - len(lengths)))
    return torch.arange(padded_length) < lengths_B[:, None]


def checksum_states(states_BSD: list[Tensor], is_token_BS: Tensor) -> Tensor:
    """What `bit_sum` gives for the packed row, from the states themselves: int64, a scalar on their device."""
    return torch.stack([kept_bit_sum(state_BSD, is_token_BS) for state_BSD in states_BSD]).sum()
