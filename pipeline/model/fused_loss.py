"""
The DFlash loss without the logits (toggle `fused-loss`).

The logits of a step are the largest tensor of the training: 15,360 slots × 152k tokens are 4.7 GB in bfloat16 and
twice that in float32, and the plain loss holds several of them. Here a chunk of slots at a time is drafted, scored and
differentiated at once: the head is frozen, so the gradient of the hidden states is all there is, and the backward pass
only scales it. Two matrix products a chunk as in the plain loss, none twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from pipeline.model.loss import LossParts, Targets
from pipeline.model.scoring import Score, score_stepwise

CHUNK_BYTES = 5 * 2**28
"""
Bound of a chunk's float32 logits: 2,048 slots at a vocabulary of 152k (`SLOTS_OF_A_WAVE`). By arithmetic 12 times what
keeps the products limited by an H200's 700 TFLOP/s and not by reading the 1.2 GB head at 4 TB/s.
"""

SLOTS_OF_A_WAVE = 1024
"""
A larger chunk is a multiple of this. The product back to width 4,096 then has 8 × 16 tiles of 128 × 256, or twice as
many, for 132 multiprocessors: 97 % of them work. With 880 slots it was 85 %.
"""

CPU_CHUNK_BYTES = 2**25
"""
On a CPU: 170 slots at a vocabulary of 49k, width 576. One thread of an EPYC with 32 MB of cache, 336 slots: 490 ms,
plain 538; with 85 slots 549, with 21 908, since each chunk reads the head anew. At a vocabulary of 4k and width 128
the products are all of it: 15.3 ms, plain 15.2 (least of 150 each, torch 2.13).
"""


def fused_dflash_loss(
    final_QD: Tensor,
    head_VD: Tensor,
    targets: Targets,
    *,
    block_size: int,
    total_weight: Tensor,
    chunk_bytes: int | None = None,
    score: Score = score_stepwise,
) -> LossParts:
    """
    As `dflash_loss`, in chunks.

    Args:
        final_QD: The drafter's output, all slots.
        head_VD: The target's output head, frozen: it gets no gradient.
        targets: Labels and weights of slots 1 and up.
        block_size: Slots of a block.
        total_weight: Summed weight of all drafters in this step, a scalar.
        chunk_bytes: Bound of the logits that are held at a time, as float32; at least one slot's. None: what suits
            the device.
        score: Scores a chunk.
    """
    if chunk_bytes is None:
        chunk_bytes = CPU_CHUNK_BYTES if head_VD.device.type == "cpu" else CHUNK_BYTES
    drafted_ND = final_QD.unflatten(0, (-1, block_size))[:, 1:].flatten(0, 1)
    scale_N = targets.weight_N / total_weight.clamp(min=1e-6)
    scoring = _Scoring(targets.label_N, scale_N, chunk_slots(chunk_bytes, head_VD.shape[0]), score)
    loss, right_N = _ChunkedCrossEntropy.apply(drafted_ND, head_VD, scoring)
    supervised_N = targets.weight_N > 0
    return LossParts(loss=loss, num_right=(right_N & supervised_N).sum(), num_supervised=supervised_N.sum())


def chunk_slots(chunk_bytes: int, vocab_size: int) -> int:
    """Slots of a chunk whose float32 logits take at most *chunk_bytes*; at least one."""
    num_slots = max(1, chunk_bytes // (4 * vocab_size))
    return num_slots - num_slots % SLOTS_OF_A_WAVE if num_slots > SLOTS_OF_A_WAVE else num_slots


@dataclass(frozen=True)
class _Scoring:
    """What a slot should say, what it weighs in the loss, and how many are scored at a time."""

    label_N: Tensor
    scale_N: Tensor
    num_slots: int
    score: Score


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Σ scale · cross-entropy, and whether the likeliest token is the label."""

    @staticmethod
    def forward(ctx: Any, drafted_ND: Tensor, head_VD: Tensor, scoring: _Scoring) -> tuple[Tensor, Tensor]:
        wants_grad = ctx.needs_input_grad[0]
        compute_dtype = product_dtype(drafted_ND)
        # Cast once, and by hand: autocast would cast the frozen head anew for each chunk.
        head_VD = head_VD.to(compute_dtype)
        grad_ND = torch.empty_like(drafted_ND) if wants_grad else None
        losses, rights = [], []
        with torch.autocast(drafted_ND.device.type, enabled=False):
            for at in range(0, len(drafted_ND), scoring.num_slots):
                chunk = slice(at, at + scoring.num_slots)
                label_C, scale_C = scoring.label_N[chunk], scoring.scale_N[chunk]
                logits_CV = F.linear(drafted_ND[chunk].to(compute_dtype), head_VD)
                loss_C, right_C, gradient_CV = scoring.score(logits_CV, label_C, wants_grad)
                rights.append(right_C)
                losses.append((loss_C * scale_C).sum())
                if grad_ND is not None and gradient_CV is not None:
                    # Scaled behind the product, D wide instead of V.
                    grad_ND[chunk] = (gradient_CV @ head_VD) * scale_C[:, None]
        right_N = torch.cat(rights)
        ctx.mark_non_differentiable(right_N)
        ctx.save_for_backward(grad_ND)
        return torch.stack(losses).sum(), right_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        (grad_ND,) = ctx.saved_tensors
        return grad_ND * grad_loss.to(grad_ND.dtype), None, None


def product_dtype(factor: Tensor) -> torch.dtype:
    """The type of its matrix products: autocast's, where it is on."""
    device_type = factor.device.type
    return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else factor.dtype
