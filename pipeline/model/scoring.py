"""
Scores of a chunk of logits: cross-entropy, whether the likeliest token is the label, and the gradient of the logits.

Two ways to the same numbers. Bytes a logit in bfloat16, for 15,360 slots × 152k: operation by operation 14 (a float32
softmax is written and read; argmax reads once more), 33 GB, 8 ms at an H200's 4.2 TB/s; in one kernel 4, where rows
stay in the cache between its loops (132 rows of 304 kB are 40 of 50 MB), 9 GB, 2.2 ms.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pipeline.model.lazy_compile import LazyCompile, vary

Score = Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor, Tensor | None]]
"""
Logits `[C, V]`, labels `[C]` and whether to differentiate, to the cross-entropy `[C]` in float32 or better, whether the
likeliest token is the label, bool `[C]`, and the gradient of the logits, in their type. The logits may be overwritten.
"""


def score_stepwise(logits_CV: Tensor, label_C: Tensor, differentiate: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """
    Operation by operation; the logits become their own gradient.

    That is softmax − one-hot. The label's entry is subtracted before it is rounded: in bfloat16 a probability of 0.999
    is 1, and nothing would be left to learn.
    """
    right_C = logits_CV.argmax(dim=1) == label_C
    label_C1 = label_C[:, None]
    log_softmax_CV = torch.log_softmax(logits_CV, dim=1, dtype=_precise(logits_CV))
    label_C1_log = log_softmax_CV.gather(1, label_C1)
    if differentiate:
        torch.exp(log_softmax_CV, out=logits_CV)
        logits_CV.scatter_(1, label_C1, torch.expm1(label_C1_log).to(logits_CV.dtype))
    return -label_C1_log.squeeze(1), right_C, logits_CV if differentiate else None


def score_at_once(logits_CV: Tensor, label_C: Tensor, differentiate: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """As `score_stepwise`, written for the compiler: reductions of a row, then what needs a row's entry by itself."""
    right_C = logits_CV.argmax(dim=1) == label_C
    precise_CV = logits_CV.to(_precise(logits_CV))
    largest_C1 = precise_CV.amax(dim=1, keepdim=True)
    log_sum_C1 = (precise_CV - largest_C1).exp().sum(dim=1, keepdim=True).log()
    # Taken from the logits: of `log_softmax` it would have that written as a whole.
    label_C1_log = logits_CV.gather(1, label_C[:, None]).to(precise_CV.dtype) - largest_C1 - log_sum_C1
    loss_C = -label_C1_log.squeeze(1)
    if not differentiate:
        return loss_C, right_C, None
    log_softmax_CV = precise_CV - largest_C1 - log_sum_C1
    is_label_CV = torch.arange(logits_CV.shape[1], device=logits_CV.device) == label_C[:, None]
    gradient_CV = torch.where(is_label_CV, log_softmax_CV.expm1(), log_softmax_CV.exp())
    return loss_C, right_C, gradient_CV.to(logits_CV.dtype)


class CompiledScore:
    """`score_at_once`, compiled at its first call, once for all numbers of slots."""

    def __init__(self) -> None:
        self._compiled = LazyCompile(score_at_once)

    def __call__(self, logits_CV: Tensor, label_C: Tensor, differentiate: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """Score."""
        # Slots alone: with a vocabulary of unknown size, the kernel could not load 16 bytes at a time.
        vary(logits_CV, label_C)
        scored: tuple[Tensor, Tensor, Tensor | None] = self._compiled(logits_CV, label_C, differentiate)
        return scored


def _precise(logits_CV: Tensor) -> torch.dtype:
    return torch.promote_types(logits_CV.dtype, torch.float32)
