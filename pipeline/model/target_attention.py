"""
Causal attention of the target within each sample, over rows that are padded or over one packed row.

Choices, by arithmetic for Qwen3-8B at 2 × 3,072 tokens on an H200 (5.3 TFLOP over 34 layers): FlashAttention-2 at some
310 TFLOP/s takes 17 ms, cuDNN at some 520 takes 10, but cuDNN builds a plan for every new shape, tens of milliseconds
each, and lengths of real batches are all new. So a packed row goes through FlashAttention's kernel for unlike lengths,
one launch a layer, where device and type allow it, and elsewhere through one SDPA call a sample.

Shapes: T tokens of all samples, H query heads, G key/value heads, E head size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""`query_THE, key_TGE, value_TGE` to `attended_TP`, P = H × E."""
MakeAttend = Callable[[Sequence[int], Tensor], Attend]
"""As `attend_packed`."""


def attend_padded(num_rows: int, padded_length: int) -> Attend:
    """Attention over `num_rows × padded_length` tokens; padding is on the right, so a causal mask is all it needs."""

    def attend(query_THE: Tensor, key_TGE: Tensor, value_TGE: Tensor) -> Tensor:
        rows = (x.unflatten(0, (num_rows, padded_length)) for x in (query_THE, key_TGE, value_TGE))
        return _causal(*rows).flatten(0, 1)

    return attend


def attend_packed(lengths: Sequence[int], like: Tensor) -> Attend:
    """
    Attention over samples that lie one behind the other.

    Args:
        lengths: Tokens of each; together all of T.
        like: On the device, and of the type, of what will attend.
    """
    return attend_varlen(lengths, like) if has_varlen_kernel(like) else attend_one_by_one(lengths, like)


def has_varlen_kernel(like: Tensor) -> bool:
    """Whether FlashAttention takes such tensors: 16 bits wide, on a GPU from Ampere on."""
    is_half = like.dtype in (torch.bfloat16, torch.float16)
    return like.is_cuda and is_half and torch.cuda.get_device_capability(like.device) >= (8, 0)


def attend_varlen(lengths: Sequence[int], like: Tensor) -> Attend:
    """FlashAttention's kernel for samples of unlike lengths: one launch, whatever they are."""
    ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32).pin_memory().to(like.device, non_blocking=True)
    longest = max(lengths)

    def attend(query_THE: Tensor, key_TGE: Tensor, value_TGE: Tensor) -> Tensor:
        # `torch.nn.attention.varlen` calls this, but its signature differs in torch 2.10, 2.11 and 2.12, and it takes
        # unlike numbers of heads only from 2.12 on; the kernel always did. No dropout, causal, no debug mask.
        attended_THE = torch.ops.aten._flash_attention_forward(  # noqa: SLF001
            query_THE, key_TGE, value_TGE, ends, ends, longest, longest, 0.0, True, False
        )[0]
        return attended_THE.flatten(1)

    return attend


def attend_one_by_one(lengths: Sequence[int], like: Tensor) -> Attend:
    """One SDPA call a sample, by whatever backend takes it: for float32, and for CPUs."""
    del like

    def attend(query_THE: Tensor, key_TGE: Tensor, value_TGE: Tensor) -> Tensor:
        samples = zip(*(x[None].split(list(lengths), dim=1) for x in (query_THE, key_TGE, value_TGE)), strict=True)
        return torch.cat([_causal(*sample)[0] for sample in samples])

    return attend


def _causal(query_BSHE: Tensor, key_BSGE: Tensor, value_BSGE: Tensor) -> Tensor:
    """`[B, S, H × E]`."""
    query, key, value = (x.transpose(1, 2) for x in (query_BSHE, key_BSGE, value_BSGE))
    attended_BHSE = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return attended_BHSE.transpose(1, 2).flatten(2)
