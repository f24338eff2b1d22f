"""The compiled drafter is the plain one, with the same graphs for all its layers, whatever the lengths are."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from pipeline.model.anchors import document_ids
from pipeline.model.compiled_drafter import compile_parts, project_layer
from pipeline.model.drafter import PLAIN, Drafter, DrafterCode, DrafterLayer, DrafterShape, Rotary
from pipeline.model.lazy_compile import LazyCompile
from pipeline.model.mask_evaluated import additive_mask
from pipeline.model.mask_rule import mask_tables
from pipeline.train.evidence import compilations
from pipeline.train.rows import positions_in_document

SHAPE = DrafterShape(
    hidden_size=32, num_heads=4, num_kv_heads=2, head_dim=16, intermediate_size=48, num_layers=3, num_taps=2
)
BLOCK = 4
ANCHORS = (1, 5, 12, 20)


@pytest.fixture
def drafter() -> Drafter:
    torch.manual_seed(0)
    made = Drafter(SHAPE)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    return made


def draft(drafter: Drafter, code: DrafterCode, num_context: int, room: int = 0) -> tuple[Tensor, list[Tensor]]:
    """Output and all gradients, from the same random inputs for both codes."""
    generator = torch.Generator().manual_seed(num_context)
    hidden_TF = torch.randn(num_context, SHAPE.num_taps * SHAPE.hidden_size, generator=generator)
    block_QD = torch.randn(len(ANCHORS) * BLOCK, SHAPE.hidden_size, generator=generator)
    upstream_QD = torch.randn(block_QD.shape, generator=generator)
    anchor_A, lengths = torch.tensor(ANCHORS), (10, num_context - 10)
    position_T = positions_in_document(lengths, num_context + room)
    position_Q = (position_T[anchor_A][:, None] + torch.arange(BLOCK)).flatten()
    tables = mask_tables(anchor_A, document_ids(list(lengths), num_context + room), block_size=BLOCK, window=6)
    masks = [additive_mask(tables)] * SHAPE.num_layers
    drafter.zero_grad(set_to_none=True)
    out_QD = drafter(hidden_TF, block_QD, torch.cat([position_T, position_Q]), masks, code=code)
    out_QD.backward(upstream_QD)
    gradients = [parameter.grad for parameter in drafter.parameters() if parameter.grad is not None]
    return out_QD.detach(), gradients


# torch looks for gradients of tensors that are no leaves on the way.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute:UserWarning")
def test_compiled_parts_are_the_plain_ones_and_compile_once_for_all_layers_and_lengths(drafter: Drafter) -> None:
    torch.compiler.reset()
    before = list(compilations())
    # Traced as always, but run without inductor's code: test_step.py has that, and it takes 15 s to compile.
    code = compile_parts(compiler=partial(LazyCompile, backend="aot_eager")).code

    for num_context, room in ((32, 0), (48, 16), (27, 5)):
        expected_QD, expected = draft(drafter, PLAIN, num_context, room)
        out_QD, gradients = draft(drafter, code, num_context, room)

        torch.testing.assert_close(out_QD, expected_QD, atol=1e-5, rtol=1e-5)
        assert len(expected) == len(gradients) == len(list(drafter.parameters()))
        for one, other in zip(expected, gradients, strict=True):
            torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-4)

    new = [item for item in compilations() if all(item is not old for old in before)]
    forward = [item.co_name for item in new if item.is_forward is not False]
    # Twice for layers: the first one's block tokens are embedded and need no gradient.
    assert ["finish_layer"] * 2 + ["normalise"] + ["project_layer"] * 2 + ["read_context"] == sorted(forward)


@pytest.mark.parametrize("room", [1, 16])
def test_room_for_more_context_changes_nothing(drafter: Drafter, room: int) -> None:
    expected_QD, expected = draft(drafter, PLAIN, 32)
    expected = [gradient.clone() for gradient in expected]

    out_QD, gradients = draft(drafter, PLAIN, 32, room)

    torch.testing.assert_close(out_QD, expected_QD)
    for one, other in zip(expected, gradients, strict=True):
        torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-5)


# On a CPU autocast leaves norms alone, and their weights are float32.
@pytest.mark.filterwarnings("ignore:Mismatch dtype:UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.no_grad()
def test_joined_projections_are_those_of_each_matrix(drafter: Drafter, dtype: torch.dtype) -> None:
    layer = drafter.layers[0]
    assert isinstance(layer, DrafterLayer)
    context_TD, block_QD = torch.randn(24, SHAPE.hidden_size), torch.randn(8, SHAPE.hidden_size)
    rotation = Rotary(SHAPE.head_dim, 1e6)(torch.arange(32))

    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
        joined = project_layer(layer, context_TD, block_QD, rotation)
        apart = layer.self_attn(context_TD, layer.input_layernorm(block_QD), rotation)

    assert [dtype] * 3 == [one.dtype for one in joined]
    for one, other in zip(apart, joined, strict=True):
        torch.testing.assert_close(other, one.to(dtype))
