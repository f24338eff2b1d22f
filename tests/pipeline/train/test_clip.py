"""Both settings of `grad-norm` clip alike; only what the host reads differs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pipeline.train.clip import clip_gradients


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

    norms = [clip_gradients(on_host, 1.0, on_device=False), clip_gradients(on_device, 1.0, on_device=True)]

    assert torch.equal(joined(on_host), joined(on_device))
    assert norms[0] == norms[1]


@pytest.mark.parametrize("on_device", [False, True])
def test_long_gradients_are_cut_to_the_norm_and_short_ones_left_alone(*, on_device: bool) -> None:
    long, short = parameters(100.0), parameters(0.01)
    before = joined(short)

    norm = clip_gradients(long, 1.0, on_device=on_device)
    clip_gradients(short, 1.0, on_device=on_device)

    assert float(norm) > 100.0
    assert float(joined(long).norm()) == pytest.approx(1.0, rel=1e-5)
    assert torch.equal(before, joined(short))


def test_parameters_without_a_gradient_are_passed_over() -> None:
    made = [*parameters(100.0), nn.Parameter(torch.zeros(2))]

    clip_gradients(made, 1.0, on_device=True)

    assert made[2].grad is None
    assert float(joined(made).norm()) == pytest.approx(1.0, rel=1e-5)
