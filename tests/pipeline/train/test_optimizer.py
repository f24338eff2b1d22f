"""The optimizer is AdamW, whatever kernel computes it, and goes on bit for bit after it was saved."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pipeline.presets import Recipe
from pipeline.train.optimizer import make_optimizer, set_learning_rate

RECIPE = Recipe(lr=1e-2, weight_decay=0.1)


class Weights(nn.Module):
    """Sizes that no vector width divides."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        shapes = ((37, 13), (5,), (1,))
        self.all = nn.ParameterList(torch.randn(shape, generator=generator) for shape in shapes)

    def values(self) -> list[Tensor]:
        return [weight.detach().clone() for weight in self.all]


def take_steps(weights: Weights, optimizer: Any, steps: range) -> list[Tensor]:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for weight in weights.all:
            weight.grad = torch.randn(weight.shape, generator=generator)
        set_learning_rate(optimizer, 1e-2 / (step + 1))
        optimizer.step()
    return weights.values()


def equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_steps_are_those_of_plain_adamw() -> None:
    ours, plain = Weights(), Weights()
    reference = torch.optim.AdamW(plain.parameters(), lr=1e-2, weight_decay=0.1, foreach=False, fused=False)

    found = take_steps(ours, make_optimizer(ours, RECIPE), range(20))
    expected = take_steps(plain, reference, range(20))

    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_run_that_is_saved_and_loaded_goes_on_bit_for_bit() -> None:
    whole, broken, resumed = Weights(), Weights(), Weights()
    expected = take_steps(whole, make_optimizer(whole, RECIPE), range(12))
    optimizer = make_optimizer(broken, RECIPE)
    take_steps(broken, optimizer, range(7))
    file = io.BytesIO()
    torch.save((broken.state_dict(), optimizer.state_dict()), file)
    file.seek(0)

    weights_state, optimizer_state = torch.load(file, weights_only=True)
    resumed.load_state_dict(weights_state)
    optimizer = make_optimizer(resumed, RECIPE)
    optimizer.load_state_dict(optimizer_state)
    found = take_steps(resumed, optimizer, range(7, 12))

    assert equal(expected, found)


def test_a_learning_rate_of_zero_changes_nothing() -> None:
    weights = Weights()
    before = weights.values()
    optimizer = make_optimizer(weights, RECIPE)
    for weight in weights.all:
        weight.grad = torch.ones_like(weight)

    set_learning_rate(optimizer, 0.0)
    optimizer.step()

    assert equal(before, weights.values())


def test_master_weights_in_lower_precision_are_refused() -> None:
    with pytest.raises(AssertionError, match="float32"):
        make_optimizer(Weights().bfloat16(), RECIPE)
