"""Gradient clipping: two ways to the same gradients, of which one reads the norm on the host (toggle `grad-norm`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def clip_by_host(parameters: Sequence[nn.Parameter], max_norm: float) -> Tensor:
    """As `clip_on_device`; asks the host whether to clip, which on CUDA waits for the backward pass (pytorch#60691)."""
    norm = _norm(parameters)
    if norm.item() > max_norm:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def clip_on_device(parameters: Sequence[nn.Parameter], max_norm: float) -> Tensor:
    """
    Scale gradients so that their joint norm is at most *max_norm*: by a clamped coefficient, whatever the norm is.

    Args:
        parameters: Those without a gradient are passed over.
        max_norm: Largest L2 norm.

    Returns:
        The norm before clipping, a scalar on the device.
    """
    norm = _norm(parameters)
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def _norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
