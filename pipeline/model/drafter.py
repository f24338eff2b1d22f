"""
The drafter: z-lab's DFlash architecture, written for training many blocks in one forward pass.

`c = hidden_norm(fc(concat of the tapped hidden states))` is computed once; every layer projects keys and values from
`c` and from the block tokens with the same matrices. Weight names are z-lab's (research/dflash-training-peers.md
§1.2), so that a checkpoint loads elsewhere.

Shapes: T context positions, Q block tokens, D hidden size, F tapped layers × D, H heads, G key/value heads, E head
size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from pipeline.model.shape import DrafterShape

KERNEL_OPTIONS: Mapping[str, Any] = MappingProxyType({"FORCE_USE_FLEX_ATTENTION": True})
"""Below 128 queries torch 2.11 would take its decoding kernel, which does not compile for these masks."""


def tap_layers(num_target_layers: int, num_taps: int) -> tuple[int, ...]:
    """
    Target layers to tap, evenly from 1 to n-3; layer i's output is `hidden_states[i + 1]` of transformers.

    For Qwen3-8B, `tap_layers(36, 5)` is (1, 9, 17, 25, 33), as z-lab published.
    """
    if num_taps == 1:
        return (num_target_layers // 2,)
    first, last = 1, num_target_layers - 3
    return tuple(round(first + index * (last - first) / (num_taps - 1)) for index in range(num_taps))


@dataclass(frozen=True)
class DrafterCode:
    """What computes the parts of the forward pass; their order is the drafter's."""

    read_context: Callable[[Drafter, Tensor], Tensor]
    """Tapped hidden states to the context that every layer reads."""
    run_layer: Callable[[Any, Tensor, Tensor, tuple[Tensor, Tensor], Tensor | BlockMask], Tensor]
    """As `DrafterLayer.forward`, of the layer that comes first."""
    normalise: Callable[[Drafter, Tensor], Tensor]


class Drafter(nn.Module):
    """The trained model; embeddings and output head are the target's and stay outside."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DrafterLayer(shape) for _ in range(shape.num_layers))
        self.fc = nn.Linear(shape.num_taps * shape.hidden_size, shape.hidden_size, bias=False)
        self.hidden_norm = WideNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.norm = WideNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self._rotary = Rotary(shape.head_dim, shape.rope_theta)

    def forward(
        self,
        hidden_TF: Tensor,
        block_QD: Tensor,
        position_K: Tensor,
        masks: list[Tensor | BlockMask],
        *,
        code: DrafterCode | None = None,
    ) -> Tensor:
        """
        Draft every block at once.

        Args:
            hidden_TF: Tapped hidden states of the packed row.
            block_QD: Embedded block tokens: each block its anchor's token, then mask tokens.
            position_K: int64, position within its document of every key, context first, then block tokens. Where it
                has room for more context than there are hidden states, zeros stand in for them.
            masks: One a layer, as a `MaskBuilder` made it.
            code: What computes the parts; None: `PLAIN`.

        Returns:
            Final hidden states `[Q, D]`, normalised, ready for the target's output head.
        """
        code = code or PLAIN
        context_TD = code.read_context(self, hidden_TF)
        if num_missing := position_K.numel() - len(block_QD) - len(context_TD):
            context_TD = F.pad(context_TD, (0, 0, 0, num_missing))
        rotation = self._rotary(position_K)
        for layer, mask in zip(self.layers, masks, strict=True):
            block_QD = code.run_layer(layer, context_TD, block_QD, rotation, mask)
        return code.normalise(self, block_QD)


class DrafterLayer(nn.Module):
    """Attention over context and own block, then a gated MLP; both with pre-normalisation and a residual."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.self_attn = DrafterAttention(shape)
        self.mlp = GatedMlp(shape.hidden_size, shape.intermediate_size)
        self.input_layernorm = WideNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.post_attention_layernorm = WideNorm(shape.hidden_size, eps=shape.rms_norm_eps)

    def forward(
        self, context_TD: Tensor, block_QD: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | BlockMask
    ) -> Tensor:
        """Block tokens in, block tokens out; the context is read, never updated."""
        query_QHE, key_KGE, value_KGE = self.self_attn(context_TD, self.input_layernorm(block_QD), rotation)
        return finish_layer(self, attend(query_QHE, key_KGE, value_KGE, mask).flatten(1), block_QD)


def read_context(drafter: Drafter, hidden_TF: Tensor) -> Tensor:
    """The context that every layer reads, `[T, D]`, from tapped hidden states of any floating type."""
    # Half the bytes travel where the target computes in bfloat16; the drafter's precision begins here.
    context_TD: Tensor = drafter.hidden_norm(drafter.fc(hidden_TF.to(drafter.fc.weight.dtype)))
    return context_TD


def finish_layer(layer: DrafterLayer, attended_QX: Tensor, block_QD: Tensor) -> Tensor:
    """What a layer does behind attention; X: all heads side by side."""
    block_QD = block_QD + layer.self_attn.o_proj(attended_QX)
    out_QD: Tensor = block_QD + layer.mlp(layer.post_attention_layernorm(block_QD))
    return out_QD


def normalise(drafter: Drafter, block_QD: Tensor) -> Tensor:
    """The last normalisation."""
    normalised_QD: Tensor = drafter.norm(block_QD)
    return normalised_QD


def _call_layer(layer: DrafterLayer, *arguments: Any) -> Tensor:
    out_QD: Tensor = layer(*arguments)
    return out_QD


PLAIN = DrafterCode(read_context, _call_layer, normalise)
"""Each operation by itself."""


class DrafterAttention(nn.Module):
    """
    Queries from the block; keys and values from context and block by the same projections.

    What `attend` needs, and the projection of what it gives.
    """

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, shape.num_heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, shape.num_kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, shape.num_kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.num_heads * shape.head_dim, shape.hidden_size, bias=False)
        self.q_norm = WideNorm(shape.head_dim, eps=shape.rms_norm_eps)
        self.k_norm = WideNorm(shape.head_dim, eps=shape.rms_norm_eps)

    def forward(
        self, context_TD: Tensor, block_QD: Tensor, rotation: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[Q, H, E]`, keys and values `[K, G, E]` for `attend`; G key/value heads."""
        cos_KE, sin_KE = rotation
        num_queries = block_QD.shape[0]
        query_QHE = self.q_norm(self._heads(self.q_proj(block_QD)))
        key_KGE = self.k_norm(torch.cat([self._heads(self.k_proj(context_TD)), self._heads(self.k_proj(block_QD))]))
        value_KGE = torch.cat([self._heads(self.v_proj(context_TD)), self._heads(self.v_proj(block_QD))])
        query_QHE = rotate(query_QHE, cos_KE[-num_queries:], sin_KE[-num_queries:])
        return query_QHE, rotate(key_KGE, cos_KE, sin_KE), value_KGE

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (-1, self.head_dim))


class WideNorm(nn.RMSNorm):
    """
    RMSNorm computed in its weight's type, given back in its input's.

    torch 2.11 has no fused kernel for bfloat16 with a float32 weight: of queries, 16,384 × 32 × 128, forward and
    backward took 3.2 ms on an H200, and 1.5 this way; without `compile-drafter` each layer has that to do.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Any shape whose last size is the weight's."""
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


class GatedMlp(nn.Module):
    """`down(silu(gate(x)) · up(x))`, as in Qwen3 and Llama."""

    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """`[…, D]` to `[…, D]`."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Rotary(nn.Module):
    """Rotary frequencies, always float32: rounded to bfloat16 they are wrong (research §1.4, bug 9)."""

    def __init__(self, head_dim: int, theta: float) -> None:
        super().__init__()
        self._head_dim = head_dim
        self._theta = theta

    def forward(self, position_K: Tensor) -> tuple[Tensor, Tensor]:
        """`cos, sin`, each float32 `[K, 1, E]`, ready to broadcast over heads."""
        exponent = torch.arange(0, self._head_dim, 2, device=position_K.device, dtype=torch.float32) / self._head_dim
        angle = position_K[:, None].float() * self._theta**-exponent
        angle_KE = torch.cat([angle, angle], dim=-1)[:, None, :]
        return angle_KE.cos(), angle_KE.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """
    Apply rotary embedding to `[K, heads, E]`, halves convention, as transformers does for Qwen3 and Llama.

    Computed in the angles' float32 and given back in the type of *x*: under autocast flex_attention takes queries and
    keys only in the type of the values.
    """
    left, right = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-right, left], dim=-1) * sin).to(x.dtype)


def attend(
    query_QHE: Tensor,
    key_KGE: Tensor,
    value_KGE: Tensor,
    mask: Tensor | BlockMask,
    kernel_options: Mapping[str, Any] = KERNEL_OPTIONS,
) -> Tensor:
    """
    Grouped-query attention under *mask*: SDPA for an additive mask, flex_attention for a `BlockMask`.

    Two engines because flex_attention cannot train on a CPU (torch 2.13: any input that requires grad raises). The
    options of the kernel are flex_attention's.
    """
    query, key, value = (x.transpose(0, 1)[None] for x in (query_QHE, key_KGE, value_KGE))
    if isinstance(mask, BlockMask):
        out: Any = _compiled_flex_attention()(
            query, key, value, block_mask=mask, enable_gqa=True, kernel_options=dict(kernel_options)
        )
    else:
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask.to(query.dtype), enable_gqa=True)
    attended: Tensor = out[0].transpose(0, 1)
    return attended


@cache
def _compiled_flex_attention() -> Any:
    """Only compiled is flex_attention fast and memory-safe. Not at import: there `torch.compile` takes 1.9 s."""
    return torch.compile(flex_attention)
