"""A target: pulls batches, runs the frozen model, hands packed hidden states to the drafter that the batch is for."""

from __future__ import annotations

import torch
from torch import Tensor

from flashprof.emit import WAIT, Emitter
from pipeline.model.target import TappedTarget, load_target, pack
from pipeline.roles.worker import WorkerSeat, report_ready
from pipeline.transport.messages import HiddenStates, WorkItem
from pipeline.transport.queue import post, receive

REQUEST = "request"


def run_target(seat: WorkerSeat, emitter: Emitter) -> None:
    """Serve until the dispatcher sends None."""
    model = load_target(seat.config.preset, seat.config.cache).to(seat.device)
    target = TappedTarget(model, num_taps=len(seat.config.preset.drafter.layer_types))
    if seat.config.toggles["warmup"]:
        for shape in seat.rehearsals:
            target.forward(torch.ones(shape.num_samples, shape.padded_length, dtype=torch.int64, device=seat.device))
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
        _serve(seat, emitter, target, item)
        emitter.end_step(
            num_done,
            num_tokens=item.num_tokens,
            num_supervised_tokens=int(item.loss_mask_BS.sum()),
            num_padding_tokens=item.num_padding_tokens,
        )
        num_done += 1


def _serve(seat: WorkerSeat, emitter: Emitter, target: TappedTarget, item: WorkItem) -> None:
    queue = seat.queues[item.drafter]
    with emitter.span("forward", device=True):
        input_ids_BS = torch.from_numpy(item.input_ids_BS).long()
        states_BSD = target.forward(input_ids_BS.to(seat.device, non_blocking=True))
    with emitter.span("pack", device=True):
        message = _pack_message(item, input_ids_BS, states_BSD)
    with emitter.span("share"):
        _share(message)
    with emitter.span("wait_room", WAIT):
        queue.wait_for_room(item.step)
    with emitter.span("send"):
        queue.send(message)


def _pack_message(item: WorkItem, input_ids_BS: Tensor, states_BSD: list[Tensor]) -> HiddenStates:
    keep_T = kept_positions(item.lengths, input_ids_BS.shape[1])
    pad = (0, item.padded_row - keep_T.numel())
    loss_mask_BS = torch.from_numpy(item.loss_mask_BS)
    return HiddenStates(
        step=item.step,
        hidden_TF=pack(states_BSD, keep_T.to(states_BSD[0].device, non_blocking=True), item.padded_row),
        input_ids_T=torch.nn.functional.pad(input_ids_BS.flatten()[keep_T], pad),
        loss_mask_T=torch.nn.functional.pad(loss_mask_BS.flatten()[keep_T], pad),
        lengths=item.lengths,
        num_padding_tokens=item.num_padding_tokens,
    )


def kept_positions(lengths: tuple[int, ...], padded_length: int) -> Tensor:
    """Flat positions of the real tokens in a right-padded `[B·S]`, int64."""
    is_token_BS = torch.arange(padded_length) < torch.tensor(lengths)[:, None]
    return torch.nonzero(is_token_BS.flatten()).squeeze(1)


def _share(message: HiddenStates) -> None:
    """Move CPU tensors to shared memory here, where it is timed, and not while they are pickled."""
    for tensor in (message.hidden_TF, message.input_ids_T, message.loss_mask_T):
        if tensor.device.type == "cpu":
            tensor.share_memory_()
