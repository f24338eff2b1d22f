"""
Drafting while text is generated: a draft costs one pass over the tokens of one block.

The context's keys and values are computed once, as hidden states arrive, and kept: the drafter never updates its
context, so they do not depend on what is drafted. Only accepted tokens come in, so nothing is ever taken back.

Shapes: T new context positions, Q tokens of the block, K keys, D hidden size, F tapped layers × D, G key/value heads,
E head size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.model.drafter import Drafter, DrafterShape, Rotary, rotate
from pipeline.model.tables import FrozenTables
from pipeline.presets import SLIDING, DrafterPlan


class Drafting(Protocol):
    """Proposes the tokens that follow an anchor."""

    @property
    def block_size(self) -> int:
        """Tokens of a block, the anchor among them."""
        ...

    def start(self, capacity: int) -> None:
        """A new sequence of at most *capacity* tokens begins."""
        ...

    def extend(self, hidden_TF: Tensor) -> None:
        """The target has accepted T more tokens; these are its tapped hidden states."""
        ...

    def draft(self, anchor_1: Tensor) -> Tensor:
        """Draft the int64 `[Q − 1]` tokens after the anchor, whose hidden states the context does not hold yet."""
        ...


@dataclass(frozen=True)
class LayerCache:
    """One layer's keys, rotated, and values; the block's own are written behind the context's."""

    key_KGE: Tensor
    value_KGE: Tensor


class CachedDrafter:
    """A `Drafting` that runs a `Drafter`'s own modules."""

    def __init__(self, drafter: Drafter, shape: DrafterShape, plan: DrafterPlan, tables: FrozenTables) -> None:
        self._drafter: Any = drafter
        self._shape = shape
        self._tables = tables
        self._windows = [plan.sliding_window if kind == SLIDING else None for kind in plan.layer_types]
        self._block_size = plan.block_size
        weight = drafter.fc.weight
        self._like = {"dtype": weight.dtype, "device": weight.device}
        self._mask_ids = torch.full((plan.block_size - 1,), tables.mask_token_id, device=weight.device)
        self._visible_QK = window_mask(plan.block_size, plan.sliding_window, weight.device)
        self._caches: list[LayerCache] = []
        self._capacity = 0
        self._num_context = 0

    @property
    def block_size(self) -> int:
        """Tokens of a block, the anchor among them."""
        return self._block_size

    def start(self, capacity: int) -> None:
        """A new sequence of at most *capacity* tokens; memory of an earlier one is used again where it suffices."""
        self._num_context = 0
        if capacity <= self._capacity:
            return
        self._capacity = capacity
        shape = self._shape
        size = (capacity + self._block_size, shape.num_kv_heads, shape.head_dim)
        self._caches = [
            LayerCache(torch.empty(size, **self._like), torch.empty(size, **self._like)) for _ in self._windows
        ]
        position_K = torch.arange(size[0], device=self._like["device"])
        self._cos_KE, self._sin_KE = Rotary(shape.head_dim, shape.rope_theta)(position_K)

    def extend(self, hidden_TF: Tensor) -> None:
        """Compute keys and values of T more context positions."""
        context_TD = self._drafter.hidden_norm(self._drafter.fc(hidden_TF.to(self._like["dtype"])))
        for layer, cache in zip(self._drafter.layers, self._caches, strict=True):
            self._write(layer.self_attn, cache, context_TD)
        self._num_context += hidden_TF.shape[0]

    def draft(self, anchor_1: Tensor) -> Tensor:
        """The likeliest token of every slot behind the anchor."""
        tables = self._tables
        block_QD = F.embedding(torch.cat([anchor_1, self._mask_ids]), tables.embedding_VD)
        final_QD = self.final_states(block_QD.to(self._like["dtype"]))
        return F.linear(final_QD[1:].to(tables.head_VD.dtype), tables.head_VD).argmax(dim=-1)

    def final_states(self, block_QD: Tensor) -> Tensor:
        """What `Drafter.forward` gives for one block at the end of the context."""
        for layer, cache, window in zip(self._drafter.layers, self._caches, self._windows, strict=True):
            normalised_QD = layer.input_layernorm(block_QD)
            block_QD = block_QD + self._attend(layer.self_attn, cache, normalised_QD, window)
            block_QD = block_QD + layer.mlp(layer.post_attention_layernorm(block_QD))
        final_QD: Tensor = self._drafter.norm(block_QD)
        return final_QD

    def _attend(self, attention: Any, cache: LayerCache, x_QD: Tensor, window: int | None) -> Tensor:
        end = self._write(attention, cache, x_QD)
        query_QHE = attention.q_norm(self._heads(attention.q_proj(x_QD)))
        query_QHE = rotate(query_QHE, self._cos_KE[end - len(x_QD) : end], self._sin_KE[end - len(x_QD) : end])
        first = 0 if window is None else max(0, self._num_context - window + 1)
        visible_QK = None if window is None else self._visible_QK[:, first - end :]
        query, key, value = (
            x.transpose(0, 1)[None] for x in (query_QHE, cache.key_KGE[first:end], cache.value_KGE[first:end])
        )
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=visible_QK, enable_gqa=True)
        out_QD: Tensor = attention.o_proj(attended[0].transpose(0, 1).flatten(1))
        return out_QD

    def _write(self, attention: Any, cache: LayerCache, x_TD: Tensor) -> int:
        """Keys and values of *x_TD* go behind the context's; returns where they end."""
        end = self._num_context + len(x_TD)
        here = slice(self._num_context, end)
        key_TGE = attention.k_norm(self._heads(attention.k_proj(x_TD)))
        cache.key_KGE[here] = rotate(key_TGE, self._cos_KE[here], self._sin_KE[here])
        cache.value_KGE[here] = self._heads(attention.v_proj(x_TD))
        return end

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (-1, self._shape.head_dim))


def window_mask(block_size: int, window: int, device: torch.device) -> Tensor:
    """
    Which keys the queries of a block at the end of a long context see in a sliding layer.

    Keys are the last `window − 1` context positions and the block: slot k no longer sees the k oldest of them. With a
    shorter context the last columns hold.

    Returns:
        bool `[Q, window − 1 + Q]`.
    """
    slot_Q = torch.arange(block_size, device=device)[:, None]
    column_K = torch.arange(window - 1 + block_size, device=device)
    return (column_K >= slot_Q) | (column_K >= window - 1)
