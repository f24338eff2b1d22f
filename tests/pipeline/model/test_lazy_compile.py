"""Compiling at the first call, and once for lengths that vary."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.model.lazy_compile import LazyCompile, vary


class Backend:
    """Runs what it is given, and counts how often."""

    def __init__(self) -> None:
        self.num_graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        del inputs
        self.num_graphs += 1
        return graph.forward


def project(x_TD: Tensor, weight_DD: Tensor) -> Tensor:
    return x_TD @ weight_DD


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_compiles_at_the_first_call_once_for_all_lengths_even_if_the_first_equals_the_width() -> None:
    torch.compiler.reset()
    backend, weight_DD = Backend(), torch.randn(6, 6)
    compiled = LazyCompile(project, backend=backend)
    num_before = backend.num_graphs

    for length in (6, 9, 4):
        x_TD = torch.randn(length, 6)
        vary(x_TD)
        assert torch.equal(project(x_TD, weight_DD), compiled(x_TD, weight_DD))

    assert (0, 1) == (num_before, backend.num_graphs)
