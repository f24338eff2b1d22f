"""
The drafter's parts as compiled code (toggle `compile-drafter`).

Eager, everything that is not a matrix product moves through memory by itself, most of it in float32: at 16,384 block
tokens × 4,096, norms and rotary angles of a layer read and write 13 GB forward and backward, residuals, gated units and
casts 8 GB. At an H200's 4.2 TB/s that is 25 ms for five layers; fused, a layer moves 9 GB, 11 ms for five.

A layer is compiled in two graphs, before and behind attention, and the same serve all layers: their weights are inputs.
(Of each there are two: the block tokens of the first layer need no gradient, which saves a product.) Attention stays
beside them, as flex_attention compiles by itself: its operands have to be written for it anyway, and its mask, which is
new in every step, stays out of these graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask

from pipeline.model.drafter import (
    KERNEL_OPTIONS,
    Drafter,
    DrafterCode,
    DrafterLayer,
    attend,
    finish_layer,
    normalise,
    read_context,
    rotate,
)
from pipeline.model.fused_loss import product_dtype
from pipeline.model.lazy_compile import LazyCompile, vary
from pipeline.model.scoring import CompiledScore, Score

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Project = Callable[[DrafterLayer, Tensor, Tensor, tuple[Tensor, Tensor]], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class CompiledParts:
    """Everything of a step that the toggle compiles; nothing is compiled before it is called."""

    code: DrafterCode
    score: Score


def compile_parts(
    kernel_options: Mapping[str, Any] = KERNEL_OPTIONS,
    *,
    project: Project | None = None,
    compiler: Compile = LazyCompile,
) -> CompiledParts:
    """
    The parts, each compiled at its first call, once for all lengths of the context.

    Args:
        kernel_options: Of flex_attention.
        project: A layer up to attention; None: `project_layer`.
        compiler: Makes a function into a compiled one.
    """
    read, finish = compiler(read_context), compiler(finish_layer)
    compiled_project = compiler(project or project_layer)

    def read_varying(drafter: Drafter, hidden_TF: Tensor) -> Tensor:
        vary(hidden_TF)
        context_TD: Tensor = read(drafter, hidden_TF)
        return context_TD

    def run_layer(
        layer: DrafterLayer,
        context_TD: Tensor,
        block_QD: Tensor,
        rotation: tuple[Tensor, Tensor],
        mask: Tensor | BlockMask,
    ) -> Tensor:
        vary(context_TD, *rotation)
        query_QHE, key_KGE, value_KGE = compiled_project(layer, context_TD, block_QD, rotation)
        attended_QHE = attend(query_QHE, key_KGE, value_KGE, mask, kernel_options)
        out_QD: Tensor = finish(layer, attended_QHE.flatten(1), block_QD)
        return out_QD

    code = DrafterCode(read_varying, run_layer, compiler(normalise))
    return CompiledParts(code=code, score=CompiledScore())


def project_layer(
    layer: DrafterLayer, context_TD: Tensor, block_QD: Tensor, rotation: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """
    A layer up to attention: as `DrafterAttention.forward` on normalised block tokens, in two products instead of five.

    The joined weights cost nothing: autocast would write each anew in bfloat16, and here they are written side by side.
    """
    attention, cos_KE, sin_KE = layer.self_attn, *rotation
    weights = (attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight)
    num_q, num_k, num_v = (weight.shape[0] for weight in weights)
    # Cast by hand: what autocast casts would first be joined in float32, 100 MB more.
    joined_XD = torch.cat([weight.to(product_dtype(weight)) for weight in weights])
    of_block_QX = F.linear(layer.input_layernorm(block_QD), joined_XD)
    of_context_TX = F.linear(context_TD, joined_XD[num_q:])
    query_QX, block_key_QX, block_value_QX = of_block_QX.split((num_q, num_k, num_v), dim=1)
    context_key_TX, context_value_TX = of_context_TX.split((num_k, num_v), dim=1)
    query_QHE = attention.q_norm(_heads(query_QX, attention.head_dim))
    key_KGE = attention.k_norm(_heads(torch.cat([context_key_TX, block_key_QX]), attention.head_dim))
    value_KGE = _heads(torch.cat([context_value_TX, block_value_QX]), attention.head_dim)
    first_query = cos_KE.shape[0] - block_QD.shape[0]
    query_QHE = rotate(query_QHE, cos_KE[first_query:], sin_KE[first_query:])
    key_KGE = rotate(key_KGE, cos_KE, sin_KE)
    # Autocast normalises in float32 and would cast in front of attention: 400 MB a layer written and read for nothing.
    return query_QHE.to(value_KGE.dtype), key_KGE.to(value_KGE.dtype), value_KGE


def _heads(projected: Tensor, head_dim: int) -> Tensor:
    return projected.unflatten(-1, (-1, head_dim))
