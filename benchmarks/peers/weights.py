"""
The same random weights for every system, whatever it calls them.

Each is drawn by a generator that is seeded with its name, on the device: processes on the same kind of device agree
without handing 4 GB to each other. Names are z-lab's, which all three systems use for the drafter; what a system calls
differently is in its own map.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn

EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"
"""The frozen tables of the target."""


def draw(name: str, shape: torch.Size | tuple[int, ...], device: torch.device) -> Tensor:
    """
    The weight of that name, float32.

    Norms are 1; a matrix keeps the scale of what it is multiplied with, so that logits have a deviation of about 1.
    """
    if len(shape) == 1:
        return torch.ones(shape, device=device)
    generator = torch.Generator(device).manual_seed(zlib.crc32(name.encode()))
    return torch.randn(tuple(shape), generator=generator, device=device) * shape[-1] ** -0.5


@torch.no_grad()
def fill(module: nn.Module, renamed: Mapping[str, str] | None = None) -> int:
    """
    Give every parameter of *module* its weight.

    Args:
        module: On its device; in any floating type.
        renamed: The module's name to z-lab's, where they differ.

    Returns:
        Number of trained weights.
    """
    names = renamed or {}
    for name, parameter in module.named_parameters():
        parameter.copy_(draw(names.get(name, name), parameter.shape, parameter.device))
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
