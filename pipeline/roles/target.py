"""A target: pulls batches, runs the frozen model, hands packed hidden states to the drafter that the batch is for."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from flashprof.emit import WAIT, Emitter
from pipeline.faults import Pack, make_pack
from pipeline.model.checksum import kept_bit_sum
from pipeline.model.taps import TappedTarget
from pipeline.model.target import load_target, target_layer_ids
from pipeline.roles.worker import WorkerSeat, report_ready
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
    carrier: Carrier
    pack: Pack
    ways: Ways


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
        _serve(seat, emitter, tools, item)
        emitter.end_step(
            num_done,
            num_tokens=item.num_tokens,
            num_supervised_tokens=int(item.loss_mask_BS.sum()),
            num_padding_tokens=item.num_padding_tokens,
        )
        num_done += 1


def _load(seat: WorkerSeat, emitter: Emitter) -> Tools:
    config = seat.config
    model: Any = load_target(config.preset, config.cache).to(seat.device)
    layer_ids = target_layer_ids(config.preset, model.config)
    target = TappedTarget(model, layer_ids)
    shapes = seat.rehearsals if config.toggles["warmup"] else ()
    for shape in shapes:
        input_ids_BS = torch.ones(shape.num_samples, shape.padded_length, dtype=torch.int64, device=seat.device)
        target.forward(input_ids_BS, early_exit=bool(config.toggles["early-exit"]))
    ways = Ways(emitter)
    ways.note("load", f"shapes rehearsed: {len(shapes)}")
    return Tools(
        target=target,
        num_layers={False: model.config.get_text_config().num_hidden_layers, True: layer_ids[-1] + 1},
        carrier=seat.carrier,
        pack=make_pack(config.fault, seat.device),
        ways=ways,
    )


def _serve(seat: WorkerSeat, emitter: Emitter, tools: Tools, item: WorkItem) -> None:
    queue = seat.queues[item.drafter]
    tools.ways.step = item.step
    tools.ways.note("forward", f"layers: {tools.num_layers[item.early_exit]}")
    with emitter.span("forward", device=True):
        input_ids_BS = torch.from_numpy(item.input_ids_BS).long()
        states_BSD = tools.target.forward(input_ids_BS.to(seat.device, non_blocking=True), early_exit=item.early_exit)
    with emitter.span("pack", device=True):
        packed = _pack_message(item, input_ids_BS, states_BSD, tools.pack)
    with emitter.span("share"):
        message = tools.carrier.pack(packed)
    start_s = time.perf_counter()
    with emitter.span("wait_room", WAIT):
        queue.wait_for_room(item.step)
    wait_s = time.perf_counter() - start_s
    with emitter.span("send"):
        queue.send(replace(message, target_wait_s=wait_s))


def _pack_message(item: WorkItem, input_ids_BS: Tensor, states_BSD: list[Tensor], pack_states: Pack) -> HiddenStates:
    is_token_BS = real_tokens(item.lengths, *input_ids_BS.shape)
    keep_T = torch.nonzero(is_token_BS.flatten()).squeeze(1)
    pad = (0, item.padded_row - keep_T.numel())
    loss_mask_BS = torch.from_numpy(item.loss_mask_BS)
    device = states_BSD[0].device
    return HiddenStates(
        step=item.step,
        part=item.part,
        hidden_TF=pack_states(states_BSD, keep_T.to(device, non_blocking=True), item.padded_row),
        # On the stream that computes the states, before they are moved by anything: what the drafter must get.
        checksum=checksum_states(states_BSD, is_token_BS.to(device, non_blocking=True)),
        input_ids_T=torch.nn.functional.pad(input_ids_BS.flatten()[keep_T], pad),
        loss_mask_T=torch.nn.functional.pad(loss_mask_BS.flatten()[keep_T], pad),
        lengths=item.lengths,
        num_padding_tokens=item.num_padding_tokens,
    )


def real_tokens(lengths: tuple[int, ...], num_rows: int, padded_length: int) -> Tensor:
    """Where a right-padded batch holds tokens, bool `[B, S]`; rows past the samples hold none."""
    lengths_B = torch.tensor(lengths + (0,) * (num_rows - len(lengths)))
    return torch.arange(padded_length) < lengths_B[:, None]


def checksum_states(states_BSD: list[Tensor], is_token_BS: Tensor) -> Tensor:
    """What `bit_sum` gives for the packed row, from the states themselves: int64, a scalar on their device."""
    return torch.stack([kept_bit_sum(state_BSD, is_token_BS) for state_BSD in states_BSD]).sum()
