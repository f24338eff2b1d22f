"""A checksum of hidden states: proof that what a drafter reads is what a target wrote."""

from __future__ import annotations

import torch
from torch import Tensor

INTEGER_OF_BYTES = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bit_sum(tensor: Tensor) -> Tensor:
    """
    The sum of the bits of all elements, each read as an integer: int64, a scalar on the tensor's device.

    Exact and free of order, so that packing, zero padding (+0.0 is no bits) and any parallel sum leave it alone, while
    one changed element changes it. Two changes can cancel out; it guards against races, not against forgery.
    """
    return tensor.view(INTEGER_OF_BYTES[tensor.element_size()]).sum(dtype=torch.int64)


def kept_bit_sum(states_BSD: Tensor, is_token_BS: Tensor) -> Tensor:
    """What `bit_sum` gives for the positions of *is_token_BS* (bool) alone; nothing is gathered or copied."""
    bits_BSD = states_BSD.view(INTEGER_OF_BYTES[states_BSD.element_size()])
    return (bits_BSD.sum(dim=-1, dtype=torch.int64) * is_token_BS).sum()
