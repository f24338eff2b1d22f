"""
Causal attention of the target within each sample, over rows that are padded or over one packed row.

Choices, by measurement for Qwen3-8B at 2 × 3,072 tokens on an H200: the whole forward takes 140.8 ms with one SDPA
call a sample, which is cuDNN's kernel there, and 147.6 with FlashAttention's kernel for unlike lengths, whose launch is
one a layer. But cuDNN builds a plan for every new shape, 60 ms each, and lengths of real batches are all new: so a
sample is given lengths of few kinds. Rows of many short samples, where launches would cost more than the better kernel
saves, go through the kernel for unlike lengths.

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

LENGTH_STEP = 128
"""
Samples of up to 6,144 tokens have 48 such lengths, some 60 ms a plan, for all layers alike. Half a step is 2 % of the
attention of 3,072 tokens, whose part of the forward is a tenth.
"""
MOST_SAMPLES = 16
"""Of a row that is attended sample by sample: 16 × 34 layers × 40 µs of the host are 22 ms of the device's 140."""


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
    if not has_varlen_kernel(like):
        return attend_one_by_one(lengths, like)
    return attend_rounded(lengths, like) if len(lengths) <= MOST_SAMPLES else attend_varlen(lengths, like)


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


def attend_rounded(lengths: Sequence[int], like: Tensor) -> Attend:
    """
    One SDPA call a sample, over lengths that are multiples of `LENGTH_STEP`.

    A sample's window reaches into the next one: a causal mask never shows that to the sample's own tokens, and what
    the others attended to is dropped. Only behind the last token is there something to pad.
    """
    del like
    starts = [0, *accumulate(lengths)]

    def attend(query_THE: Tensor, key_TGE: Tensor, value_TGE: Tensor) -> Tensor:
        attended = []
        for start, length in zip(starts, lengths, strict=False):
            window = [_window(x, start, length) for x in (query_THE, key_TGE, value_TGE)]
            attended.append(_causal(*window)[0, :length])
        return torch.cat(attended)

    return attend


def rehearsal_lengths(longest: int, like: Tensor) -> range:
    """Lengths of single samples after which attention over packed rows has met all that it will be given."""
    return range(LENGTH_STEP, longest + LENGTH_STEP, LENGTH_STEP) if has_varlen_kernel(like) else range(0)


def _window(x_THE: Tensor, start: int, length: int) -> Tensor:
    """`[1, S, heads, E]` from *start* on, S the next multiple of `LENGTH_STEP`; zeros behind the row's end."""
    size = -(-length // LENGTH_STEP) * LENGTH_STEP
    window_SHE = x_THE[start : start + size]
    # Values come as a part of what was projected, and other strides would want a plan of their own.
    return F.pad(window_SHE, (0, 0, 0, 0, 0, size - len(window_SHE)))[None].contiguous()


def attend_one_by_one(lengths: Sequence[int], like: Tensor) -> Attend:
    """One SDPA call a sample, as long as it is: for float32, and for CPUs."""
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
