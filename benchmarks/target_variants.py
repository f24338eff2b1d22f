"""
Ways to run the target's layers up to the last tap, which `benchmarks.target_forward` times, and what each should cost.

Predictions for an H200, Qwen3-8B's shapes in bfloat16, 2 × 3,072 tokens, 34 of 36 layers, 86 TFLOP:

Matrix products, 80.6 TFLOP: gate and up 42 at 757 TFLOP/s, 56 ms; the others 38.5 at 574 (anchors.md: 4,096 columns),
67; joined q, k, v fill their waves, 3 less: together 120. Attention, 5.3 TFLOP: FlashAttention-2 at 310, 17 ms; cuDNN
at 520, 10; flex_attention like FlashAttention-2 at best. Elementwise, in passes over a `[T, 4096]` tensor (50 MB,
12 µs): transformers 96 a layer, 39 ms; the own functions uncompiled 42, since torch's RMSNorm is one kernel, 17;
compiled 20, 8. The two layers behind the last tap are 10 ms, the logits 10 and their 1.9 GB 1.

So at fixed length `packed compiled` is no faster than `padded compiled`. It wins where lengths vary: the padded rows of
the story's buckets hold some 15 % padding, and nearly that much more time. cuDNN's 7 ms are lost again where it has to
build a plan for each new shape (60 ms measured), so packed rows are attended over lengths of few kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks.peers.target import PlainTarget
from benchmarks.peers.work import Batch, Work
from pipeline.data.buckets import packed_length
from pipeline.model.taps import TappedTarget
from pipeline.model.target_attention import Attend, MakeAttend, attend_one_by_one, attend_packed, attend_varlen

Forward = Callable[[Batch], Sequence[Tensor]]
"""The taps of a batch, `[B, S, D]` or `[1, T, D]` each."""


@dataclass(frozen=True)
class Bench:
    """What variants are made of: one model, on one device."""

    work: Work
    model: Any
    target: TappedTarget
    device: torch.device

    def send(self, tensor: Tensor) -> Tensor:
        """To the device, as `pipeline.roles.target` does it."""
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else tensor


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to compute the taps."""

    name: str
    predicted_ms: float
    """At the full fixed shape on an H200."""
    why: str
    make: Callable[[Bench], Forward]
    is_packed: bool = False
    needs_cuda: bool = False


def variants() -> tuple[Variant, ...]:
    """What is timed, in order: the first is the path to beat, the second the pipeline's plain one."""
    return (
        Variant(
            name="logits", predicted_ms=210, why="anchors.md: TorchSpec", make=lambda bench: _plain(bench, "logits")
        ),
        Variant(name="hooks", predicted_ms=186, why="anchors.md: 123 + 17 + 39, and gaps", make=_hooks),
        Variant(name="padded eager", predicted_ms=154, why="120 + 17 + 17", make=_padded(compiled=False)),
        Variant(name="padded compiled", predicted_ms=145, why="120 + 17 + 8", make=_padded(compiled=True)),
        Variant(
            name="padded compiled, flash",
            predicted_ms=145,
            why="what SDPA chooses anyway",
            make=_padded(compiled=True, backend=SDPBackend.FLASH_ATTENTION),
            needs_cuda=True,
        ),
        Variant(
            name="padded compiled, cuDNN",
            predicted_ms=138,
            why="120 + 10 + 8",
            make=_padded(compiled=True, backend=SDPBackend.CUDNN_ATTENTION),
            needs_cuda=True,
        ),
        Variant(
            name="packed eager", predicted_ms=154, why="120 + 17 + 17", make=_packed(compiled=False), is_packed=True
        ),
        Variant(
            name="packed compiled",
            predicted_ms=141,
            why="as one by one, over lengths of few kinds",
            make=_packed(compiled=True),
            is_packed=True,
        ),
        Variant(
            name="packed compiled, one by one",
            predicted_ms=141,
            why="measured; but a plan of 60 ms for each new length",
            make=_packed(compiled=True, make_attend=attend_one_by_one),
            is_packed=True,
        ),
        Variant(
            name="packed compiled, varlen",
            predicted_ms=148,
            why="measured: FlashAttention-2, one launch a layer",
            make=_packed(compiled=True, make_attend=attend_varlen),
            is_packed=True,
            needs_cuda=True,
        ),
        Variant(
            name="packed compiled, flex",
            predicted_ms=155,
            why="and the block mask, evaluated: 6 ms",
            make=_packed(compiled=True, make_attend=attend_flex),
            is_packed=True,
        ),
    )


def attend_flex(lengths: Sequence[int], like: Tensor) -> Attend:
    """flex_attention under a `BlockMask` of documents."""
    num_tokens = sum(lengths)
    document_T = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).to(like.device)

    def sees(sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        del sample, head
        return (query >= key) & (document_T[query] == document_T[key])

    mask = create_block_mask(sees, None, None, num_tokens, num_tokens, device=str(like.device))

    def attend(query_THE: Tensor, key_TGE: Tensor, value_TGE: Tensor) -> Tensor:
        query, key, value = (x.transpose(0, 1)[None] for x in (query_THE, key_TGE, value_TGE))
        attended = _compiled_flex()(query, key, value, block_mask=mask, enable_gqa=True)
        return attended[0].transpose(0, 1).flatten(1)

    return attend


@cache
def _compiled_flex() -> Any:
    return torch.compile(flex_attention)


def _plain(bench: Bench, way: str) -> Forward:
    plain = PlainTarget(bench.work, bench.model, bench.device, way)
    return lambda batch: [plain.forward(batch)]


def _hooks(bench: Bench) -> Forward:
    return lambda batch: bench.target.forward(bench.send(batch.input_ids_BS), early_exit=True)


def _padded(*, compiled: bool, backend: SDPBackend | None = None) -> Callable[[Bench], Forward]:
    def make(bench: Bench) -> Forward:
        def forward(batch: Batch) -> Sequence[Tensor]:
            chosen: AbstractContextManager[Any] = nullcontext() if backend is None else sdpa_kernel(backend)
            with chosen:
                return bench.target.forward_padded(bench.send(batch.input_ids_BS), early_exit=True, compiled=compiled)

        return forward

    return make


def _packed(*, compiled: bool, make_attend: MakeAttend = attend_packed) -> Callable[[Bench], Forward]:
    def make(bench: Bench) -> Forward:
        def forward(batch: Batch) -> Sequence[Tensor]:
            row = packed_length(batch.num_tokens)
            input_ids_T = bench.send(batch.packed(batch.input_ids_BS, row))
            return bench.target.forward_packed(
                input_ids_T, batch.lengths, early_exit=True, compiled=compiled, make_attend=make_attend
            )

        return forward

    return make
