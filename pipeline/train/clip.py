"""Gradient clipping, with or without reading the norm on the host (toggle `grad-norm`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float, *, on_device: bool) -> Tensor:
    """
    Scale gradients so that their joint norm is at most *max_norm*.

    Args:
        parameters: Those with gradients.
        max_norm: Largest L2 norm.
        on_device: Multiply by a clamped coefficient whatever the norm is. False asks the host whether to clip,
            which on CUDA waits for the whole backward pass (pytorch#60691).

    Returns:
        The norm before clipping, a scalar on the device.
    """
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if on_device or norm.item() > max_norm:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm
