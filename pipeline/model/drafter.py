"""
The drafter: z-lab's DFlash architecture, written for training many blocks in one forward pass.

`c = hidden_norm(fc(concat of the tapped hidden states))` is computed once; every layer projects keys and values from
`c` and from the block tokens with the same matrices. Weight names are z-lab's (research/dflash-training-peers.md
§1.2), so that a checkpoint loads elsewhere.

Shapes: T context positions, Q block tokens, D hidden size, F tapped layers × D, H heads, G key/value heads, E head
size.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from pipeline.model.shape import DrafterShape

KERNEL_OPTIONS = {"FORCE_USE_FLEX_ATTENTION": True}
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


class Drafter(nn.Module):
    """The trained model; embeddings and output head are the target's and stay outside."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DrafterLayer(shape) for _ in range(shape.num_layers))
        self.fc = nn.Linear(shape.num_taps * shape.hidden_size, shape.hidden_size, bias=False)
        self.hidden_norm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.norm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self._rotary = Rotary(shape.head_dim, shape.rope_theta)

    def forward(
        self, hidden_TF: Tensor, block_QD: Tensor, position_K: Tensor, masks: list[Tensor | BlockMask]
    ) -> Tensor:
        """
        Draft every block at once.

        Args:
            hidden_TF: Tapped hidden states of the packed row.
            block_QD: Embedded block tokens: each block its anchor's token, then mask tokens.
            position_K: int64, position within its document of every key, context first, then block tokens.
            masks: One a layer, as a `MaskBuilder` made it.

        Returns:
            Final hidden states `[Q, D]`, normalised, ready for the target's output head.
        """
        context_TD = self.hidden_norm(self.fc(hidden_TF))
        rotation = self._rotary(position_K)
        for layer, mask in zip(self.layers, masks, strict=True):
            block_QD = layer(context_TD, block_QD, rotation, mask)
        normalised: Tensor = self.norm(block_QD)
        return normalised


class DrafterLayer(nn.Module):
    """Attention over context and own block, then a gated MLP; both with pre-normalisation and a residual."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.self_attn = DrafterAttention(shape)
        self.mlp = GatedMlp(shape.hidden_size, shape.intermediate_size)
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)

    def forward(
        self, context_TD: Tensor, block_QD: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | BlockMask
    ) -> Tensor:
        """Block tokens in, block tokens out; the context is read, never updated."""
        block_QD = block_QD + self.self_attn(context_TD, self.input_layernorm(block_QD), rotation, mask)
        out_QD: Tensor = block_QD + self.mlp(self.post_attention_layernorm(block_QD))
        return out_QD


class DrafterAttention(nn.Module):
    """Queries from the block; keys and values from context and block by the same projections."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self._head_dim = shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, shape.num_heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, shape.num_kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, shape.num_kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.num_heads * shape.head_dim, shape.hidden_size, bias=False)
        self.q_norm = nn.RMSNorm(shape.head_dim, eps=shape.rms_norm_eps)
        self.k_norm = nn.RMSNorm(shape.head_dim, eps=shape.rms_norm_eps)

    def forward(
        self, context_TD: Tensor, block_QD: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | BlockMask
    ) -> Tensor:
        """Attend; returns `[Q, D]`."""
        cos_KE, sin_KE = rotation
        num_queries = block_QD.shape[0]
        query_QHE = self.q_norm(self._heads(self.q_proj(block_QD)))
        key_KGE = self.k_norm(torch.cat([self._heads(self.k_proj(context_TD)), self._heads(self.k_proj(block_QD))]))
        value_KGE = torch.cat([self._heads(self.v_proj(context_TD)), self._heads(self.v_proj(block_QD))])
        query_QHE = rotate(query_QHE, cos_KE[-num_queries:], sin_KE[-num_queries:])
        key_KGE = rotate(key_KGE, cos_KE, sin_KE)
        attended_QHE = attend(query_QHE, key_KGE, value_KGE, mask)
        out_QD: Tensor = self.o_proj(attended_QHE.flatten(1))
        return out_QD

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (-1, self._head_dim))


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


def attend(query_QHE: Tensor, key_KGE: Tensor, value_KGE: Tensor, mask: Tensor | BlockMask) -> Tensor:
    """
    Grouped-query attention under *mask*: SDPA for an additive mask, flex_attention for a `BlockMask`.

    Two engines because flex_attention cannot train on a CPU (torch 2.13: any input that requires grad raises).
    """
    query, key, value = (x.transpose(0, 1)[None] for x in (query_QHE, key_KGE, value_KGE))
    if isinstance(mask, BlockMask):
        out: Any = _compiled_flex_attention()(
            query, key, value, block_mask=mask, enable_gqa=True, kernel_options=KERNEL_OPTIONS
        )
    else:
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask.to(query.dtype), enable_gqa=True)
    attended: Tensor = out[0].transpose(0, 1)
    return attended


@cache
def _compiled_flex_attention() -> Any:
    """Only compiled is flex_attention fast and memory-safe. Not at import: there `torch.compile` takes 1.9 s."""
    return torch.compile(flex_attention)
