"""
The target's layers as two functions around attention, with joined weight matrices: for speed, compiled or not.

Where time goes beside the matrix products, counted for Qwen3-8B at 6,144 tokens in bfloat16, in passes over one
`[T, 4096]` tensor (50 MB, 12 µs at 4.24 TB/s): transformers' layer makes some 96, its RMSNorm in float32 alone 58, its
rotary embedding 12, the gated MLP 15, residuals 6; 34 layers × 96 × 12 µs = 39 ms of the 186 ms that were measured.
Compiled these functions make 20: 8 ms. Joining q, k, v fills the waves that products of 1,024 columns leave half empty
(3 ms).

The functions take weights as arguments, so that one compiled graph serves all layers, and tokens are their only
dynamic dimension. Attention stays between them: its kernels are not inductor's, and what it needs of a batch changes.

Shapes: T tokens of all samples, D hidden size, P (H + 2 G) × E, I intermediate size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.model.lazy_compile import LazyCompile, vary
from pipeline.model.target_attention import Attend

KNOWN_LAYERS = ("Qwen3DecoderLayer", "LlamaDecoderLayer")
"""transformers' classes that compute what the functions here do; others keep their own forward."""


class Widths(NamedTuple):
    """What the weights' shapes do not tell."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    eps: float


class AttentionWeights(NamedTuple):
    """What comes before attention."""

    norm_D: Tensor
    joined_PD: Tensor
    """Projections to queries, keys and values, one below the other."""
    query_norm_E: Tensor | None
    """None: the architecture does not normalise heads."""
    key_norm_E: Tensor | None


class MlpWeights(NamedTuple):
    """What comes after attention."""

    out_DP: Tensor
    norm_D: Tensor
    joined_ID: Tensor
    """Gate above up."""
    down_DI: Tensor


Layer = tuple[AttentionWeights, MlpWeights]


def before_attention(
    hidden_TD: Tensor, cos_TE: Tensor, sin_TE: Tensor, weights: AttentionWeights, widths: Widths
) -> tuple[Tensor, Tensor, Tensor]:
    """`query_THE, key_TGE, value_TGE` of one layer, rotated."""
    normed_TD = F.rms_norm(hidden_TD, weights.norm_D.shape, weights.norm_D, widths.eps)
    heads_THE = F.linear(normed_TD, weights.joined_PD).unflatten(-1, (-1, widths.head_dim))
    query, key, value = heads_THE.split((widths.num_heads, widths.num_kv_heads, widths.num_kv_heads), dim=1)
    if weights.query_norm_E is not None and weights.key_norm_E is not None:
        query = F.rms_norm(query, weights.query_norm_E.shape, weights.query_norm_E, widths.eps)
        key = F.rms_norm(key, weights.key_norm_E.shape, weights.key_norm_E, widths.eps)
    return _rotate(query, cos_TE, sin_TE), _rotate(key, cos_TE, sin_TE), value


def after_attention(attended_TP: Tensor, hidden_TD: Tensor, weights: MlpWeights, eps: float) -> Tensor:
    """The layer's output."""
    hidden_TD = hidden_TD + F.linear(attended_TP, weights.out_DP)
    normed_TD = F.rms_norm(hidden_TD, weights.norm_D.shape, weights.norm_D, eps)
    gate_TI, up_TI = F.linear(normed_TD, weights.joined_ID).chunk(2, dim=-1)
    return hidden_TD + F.linear(F.silu(gate_TI) * up_TI, weights.down_DI)


class TargetLayers:
    """Runs a frozen model's layers by the functions above; its modules keep working and share the joined memory."""

    def __init__(self, model: Any, layer_ids: Sequence[int]) -> None:
        """*model* is one of those that `can_run` takes; *layer_ids* are tapped, in ascending order."""
        self._backbone = model.model
        self._layer_ids = tuple(layer_ids)
        self._layers: list[Layer] = []
        self._compiled = LazyCompile(before_attention), LazyCompile(after_attention)

    def forward(
        self, input_ids_T: Tensor, position_T: Tensor, attend: Attend, *, early_exit: bool, compiled: bool
    ) -> list[Tensor]:
        """
        Hidden states `[T, D]` of the tapped layers.

        Args:
            input_ids_T: Token ids.
            position_T: Position of each within its sample.
            attend: Attention within samples, as `pipeline.model.target_attention` makes it.
            early_exit: Stop behind the last tapped layer.
            compiled: By compiled functions; the first call compiles, some 20 s with a cold cache.
        """
        before, after = self._compiled if compiled else (before_attention, after_attention)
        layers, widths = self._joined_layers(), self._widths()
        hidden_TD: Tensor = self._backbone.embed_tokens(input_ids_T)
        cos_TE, sin_TE = (x[0] for x in self._backbone.rotary_emb(hidden_TD[None], position_T[None]))
        taps = []
        for index, (attention, mlp) in enumerate(layers[: self._layer_ids[-1] + 1] if early_exit else layers):
            if compiled:
                vary(hidden_TD, cos_TE, sin_TE)
            attended_TP = attend(*before(hidden_TD, cos_TE, sin_TE, attention, widths))
            if compiled:
                vary(attended_TP)
            hidden_TD = after(attended_TP, hidden_TD, mlp, widths.eps)
            if index in self._layer_ids:
                taps.append(hidden_TD)
        return taps

    def empty_heads(self, num_tokens: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the shapes and the type that `attend` will be given, all zero."""
        widths = self._widths()
        query, key, value = (
            like.new_zeros(num_tokens, heads, widths.head_dim)
            for heads in (widths.num_heads, widths.num_kv_heads, widths.num_kv_heads)
        )
        return query, key, value

    def _widths(self) -> Widths:
        layer = self._backbone.layers[0]
        head_dim = layer.self_attn.head_dim
        return Widths(
            num_heads=layer.self_attn.q_proj.out_features // head_dim,
            num_kv_heads=layer.self_attn.k_proj.out_features // head_dim,
            head_dim=head_dim,
            eps=layer.input_layernorm.variance_epsilon,
        )

    def _joined_layers(self) -> list[Layer]:
        # At the first call: where nobody asks for this way, the model stays as it was loaded.
        if not self._layers:
            self._layers = [_join(layer) for layer in self._backbone.layers]
        return self._layers


def can_run(model: Any) -> bool:
    """Whether the functions here compute what *model*'s layers do: known classes, no biases, whole context."""
    config = model.config.get_text_config()
    layers = list(model.model.layers)
    return (
        all(type(layer).__name__ in KNOWN_LAYERS for layer in layers)
        and config.hidden_act == "silu"
        and all(getattr(layer.self_attn, "sliding_window", None) is None for layer in layers)
        and all(type(linear) is nn.Linear and linear.bias is None for layer in layers for linear in _linears(layer))
    )


def _linears(layer: Any) -> list[Any]:
    attention, mlp = layer.self_attn, layer.mlp
    projections = [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
    return [*projections, mlp.gate_proj, mlp.up_proj, mlp.down_proj]


def _join(layer: Any) -> Layer:
    query, key, value, out, gate, up, down = _linears(layer)
    attention = layer.self_attn
    return (
        AttentionWeights(
            norm_D=layer.input_layernorm.weight.detach(),
            joined_PD=_join_rows([query, key, value]),
            query_norm_E=_weight_of(attention, "q_norm"),
            key_norm_E=_weight_of(attention, "k_norm"),
        ),
        MlpWeights(
            out_DP=out.weight.detach(),
            norm_D=layer.post_attention_layernorm.weight.detach(),
            joined_ID=_join_rows([gate, up]),
            down_DI=down.weight.detach(),
        ),
    )


def _join_rows(linears: list[Any]) -> Tensor:
    """One matrix of all; the modules' weights become views of it, or 8 GB of Qwen3-8B would be there twice."""
    joined = torch.cat([linear.weight.detach() for linear in linears])
    for linear, rows in zip(linears, joined.split([linear.out_features for linear in linears]), strict=True):
        linear.weight.data = rows
    return joined


def _weight_of(attention: Any, name: str) -> Tensor | None:
    norm = getattr(attention, name, None)
    return None if norm is None else norm.weight.detach()


def _rotate(heads_THE: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> Tensor:
    """Rotary embedding, halves convention, in the tensors' own type as transformers does it."""
    left, right = heads_THE.chunk(2, dim=-1)
    return heads_THE * cos_TE[:, None] + torch.cat([-right, left], dim=-1) * sin_TE[:, None]
