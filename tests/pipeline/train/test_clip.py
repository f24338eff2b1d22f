"""Both settings of `grad-norm` clip alike; only what the host reads differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pipeline.train.clip import clip_by_host, clip_on_device

Clip = Callable[..., Any]


def parameters(scale: float) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    made = [nn.Parameter(torch.zeros(shape)) for shape in ((3, 4), (5,))]
    for parameter in made:
        parameter.grad = scale * torch.randn(parameter.shape, generator=generator)
    return made


def joined(made: list[nn.Parameter]) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in made if parameter.grad is not None])


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_both_settings_give_the_same_gradients_bit_for_bit(scale: float) -> None:
    on_host, on_device = parameters(scale), parameters(scale)

    norms = [clip_by_host(on_host, 1.0), clip_on_device(on_device, 1.0)]

    assert torch.equal(joined(on_host), joined(on_device))
    assert norms[0] == norms[1]


@pytest.mark.parametrize("clip", [clip_by_host, clip_on_device])
def test_long_gradients_are_cut_to_the_norm_and_short_ones_left_alone(clip: Clip) -> None:
    long, short = parameters(100.0), parameters(0.01)
    before = joined(short)

    norm = clip(long, 1.0)
    clip(short, 1.0)

    assert float(norm) > 100.0
    assert float(joined(long).norm()) == pytest.approx(1.0, rel=1e-5)
    assert torch.equal(before, joined(short))


@pytest.mark.parametrize("clip", [clip_by_host, clip_on_device])
def test_parameters_without_a_gradient_are_passed_over(clip: Clip) -> None:
    made = [*parameters(100.0), nn.Parameter(torch.zeros(2))]

    clip(made, 1.0)

    assert made[2].grad is None
    assert float(joined(made).norm()) == pytest.approx(1.0, rel=1e-5)
