"""A random target in bfloat16 is drawn on the GPU: the same in every process, and whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.model.target import load_tables, load_target
from pipeline.presets import TINY

pytestmark = pytest.mark.gpu

NOWHERE = Path("unused")
DRAWN = replace(TINY, target=replace(TINY.target, source="random-bf16"))


def test_a_target_and_a_drafters_tables_are_drawn_alike_on_the_gpu() -> None:
    device = torch.device("cuda", 0)
    model: Any = load_target(DRAWN, NOWHERE, device=device)
    _, embedding_VD, head_VD = load_tables(DRAWN, NOWHERE, device=device)
    tensors = [*model.parameters(), *model.buffers()]

    assert {device} == {tensor.device for tensor in tensors}
    assert {torch.bfloat16} == {parameter.dtype for parameter in model.parameters()}
    assert torch.equal(model.get_input_embeddings().weight, embedding_VD)
    assert torch.equal(model.get_output_embeddings().weight, head_VD)


def test_its_forward_is_finite_and_that_of_the_cpu_with_the_same_weights() -> None:
    model: Any = load_target(DRAWN, NOWHERE, device=torch.device("cuda", 0))
    input_ids_BS = torch.arange(64).view(1, 64)
    with torch.no_grad():
        found = model(input_ids_BS.cuda()).logits.double().cpu()
        expected = model.cpu().double()(input_ids_BS).logits

    # Weights are bfloat16: what differs is the rounding between operations.
    assert 3e-2 > (found - expected).norm() / expected.norm()
