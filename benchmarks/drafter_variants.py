"""
Ways to compute a drafter step that `benchmarks.drafter_step` times, and what each should cost on an H200.

Predictions, at 2 × 3,072 tokens, 1,024 blocks of 16, Qwen3-8B's width (Q = 16,384 block tokens, T = 6,144):

Matrix products, 137 TFLOP at the rates of anchors.md: gated MLP 74 TFLOP at 757 TFLOP/s, 98 ms; queries and output 16.5
at 574, 29; keys and values 5.7 at 500, 11; head 38 at 703, 54; `fc` 2, 3. Together 195 ms. Attention: 7.0 ms a layer,
35, where its 8.5 TFLOP need 11. AdamW reads 16 and writes 12 bytes a weight, 1.05 G weights: 7 ms. Clipping reads each
gradient twice and writes it once: 3. Weights to bfloat16 and their gradients back: 3. So 243 ms stand before any
elementwise work: more than the goal of 230, which needs attention at twice its speed or products at 757 throughout.

Elementwise, eager: norms in float32 (autocast's list), 10 × 2 passes of 0.8 GB forward and 2 GB backward, and angles of
queries and keys as six float32 operations, 25 ms; gated units 7; residuals and casts in front of products 14; the
logits of the plain loss, 10 passes of 9 GB and half of them twice, 25; in chunks 8. Compiled: 11 for the layers, 2 for
the scores.

What was left out, by arithmetic: bfloat16 parameters with float32 masters (the cast in front of a product, 1.5 ms,
becomes the copy behind the optimizer, 1.5 ms); gradients scaled inside the fused AdamW (it writes them back: 1 ms
saved, through an attribute that is not documented); CUDA graphs (the host is ahead of a device that is busy for 240
ms).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from benchmarks.peers.work import Work
from pipeline.model.compiled_drafter import CompiledParts, compile_parts, project_layer
from pipeline.model.drafter import (
    KERNEL_OPTIONS,
    DrafterCode,
    DrafterLayer,
    attend,
    finish_layer,
    normalise,
    read_context,
)
from pipeline.model.lazy_compile import LazyCompile
from pipeline.model.scoring import CompiledScore, score_stepwise

BASE = "compile,analytic-mask,grad-norm,docids,prealloc"
FAST = f"{BASE},fused-loss,compile-drafter"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to compute the step."""

    name: str
    predicted_ms: float
    """At the full fixed shape on an H200."""
    why: str
    toggles: str = FAST
    make_parts: Callable[[], CompiledParts] = compile_parts
    half_tables: bool = False
    """Embedding and head in bfloat16, as the target has them."""
    costly: bool = False
    """Compiles for minutes: only where time is left."""


def uncompiled() -> tuple[Variant, Variant]:
    """With and without the loss in chunks."""
    return (
        Variant(name="fused-loss", predicted_ms=305, why="243 + 46 + 8 + 8 eager", toggles=f"{BASE},fused-loss"),
        Variant(name="plain", predicted_ms=322, why="243 + 46 + 25 + 8 eager", toggles=BASE),
    )


def variants(options: Mapping[str, Any] = KERNEL_OPTIONS) -> tuple[Variant, ...]:
    """
    What is timed, in order.

    Args:
        options: The fastest that were found for attention by itself.
    """
    return (
        Variant(name="compile-drafter", predicted_ms=260, why="243 + 11 elementwise + 2 scores + 4 small"),
        Variant(
            name="tuned attention",
            predicted_ms=255,
            why="5 ms less where the best options save 1 ms a layer",
            make_parts=lambda: compile_parts(options),
        ),
        Variant(
            name="flash 4",
            predicted_ms=250,
            why="Triton takes 6.4 ms a layer, 550 TFLOP/s would be 3",
            make_parts=lambda: compile_parts(ATTENTION["flash 4"]),
        ),
        *uncompiled(),
        Variant(
            name="bfloat16 stream",
            predicted_ms=257,
            why="residuals in bfloat16: 5 layers × 1.3 GB less each way",
            half_tables=True,
        ),
        Variant(
            name="scores stepwise",
            predicted_ms=266,
            why="14 bytes a logit instead of 4",
            make_parts=lambda: CompiledParts(compile_parts().code, score_stepwise),
        ),
        Variant(
            name="five projections",
            predicted_ms=264,
            why="queries at N = 4,096: 574 TFLOP/s; joined N = 6,144 perhaps 650",
            make_parts=lambda: compile_parts(project=project_apart),
        ),
        Variant(
            name="all sizes dynamic",
            predicted_ms=261,
            why="index arithmetic only; products do not care",
            make_parts=lambda: compile_parts(compiler=partial(LazyCompile, dynamic=True)),
        ),
        Variant(
            name="attention inside",
            predicted_ms=260,
            why="one graph a layer: the operands of attention are written all the same",
            make_parts=_whole_layers,
        ),
        Variant(
            name="max-autotune",
            predicted_ms=258,
            why="Triton products with a fused end, where they beat cuBLAS",
            make_parts=lambda: compile_parts(compiler=partial(LazyCompile, mode="max-autotune-no-cudagraphs")),
            costly=True,
        ),
    )


ATTENTION: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": {},
        "rows safe": {"ROWS_GUARANTEED_SAFE": True},
        "fwd 128x128 s2 w8": {"fwd_BLOCK_M": 128, "fwd_BLOCK_N": 128, "fwd_num_stages": 2, "fwd_num_warps": 8},
        "fwd 128x64 s3 w4": {"fwd_BLOCK_M": 128, "fwd_BLOCK_N": 64, "fwd_num_stages": 3, "fwd_num_warps": 4},
        "fwd tma": {"fwd_USE_TMA": True},
        "bwd 64/64 s3 w4": {
            **{f"bwd_BLOCK_{name}": 64 for name in ("M1", "N1", "M2", "N2")},
            "bwd_num_stages": 3,
            "bwd_num_warps": 4,
        },
        "bwd 64/128 s2 w8": {"bwd_num_stages": 2},
        "bwd 64/128 s3 w4": {"bwd_num_warps": 4},
        "bwd 32/128 s3 w4": {
            "bwd_BLOCK_M1": 32,
            "bwd_BLOCK_N1": 128,
            "bwd_BLOCK_M2": 128,
            "bwd_BLOCK_N2": 32,
            "bwd_num_stages": 3,
            "bwd_num_warps": 4,
        },
        "flash 4": {"BACKEND": "FLASH"},
    }
)
"""
Options of flex_attention on top of `KERNEL_OPTIONS`. torch's own choice for a width of 128 in bfloat16 on Hopper:
forward 128 × 64, 3 stages, 8 warps; backward 64 × 128 and 128 × 64, 3 stages, 8 warps. Every query sees its own block,
so every row is safe. `flash 4` needs the packages flash-attn-4 and nvidia-cutlass-dsl; perhaps 4 ms a layer, but its
backward pass does not give the same bits again.
"""

CHUNK_SLOTS = (512, 1024, 2048, 4096, 8192)
"""Slots of a chunk of the loss; by arithmetic all the same from 512 on but for the last wave of tiles."""


def kernel_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """*options* on top of `KERNEL_OPTIONS`, which another backend than Triton refuses."""
    return dict(options) if "BACKEND" in options else dict(KERNEL_OPTIONS) | dict(options)


def phase_tflop(work: Work, num_keys: float, *, fused_loss: bool) -> dict[str, float]:
    """
    Operations of the phases at the fixed shape: two a multiplication, nothing that is computed again.

    Args:
        work: The shapes.
        num_keys: That a query sees, on average.
        fused_loss: Whether the loss computes the gradient of its input as it goes.
    """
    num_slots, num_context, width = work.num_anchors * work.block_size, work.token_budget, work.hidden_size
    heads, kv_heads = work.num_heads * work.head_dim, work.num_kv_heads * work.head_dim
    layer = 2.0 * num_slots * width * (2 * heads + 3 * work.intermediate_size)
    layer += 2 * (num_slots + num_context) * width * 2 * kv_heads + 4 * num_slots * heads * num_keys
    fc = 2 * num_context * work.num_features * width
    head = 2 * work.num_anchors * (work.block_size - 1) * width * work.vocab_size
    layers = work.num_draft_layers * layer
    of_phase = {
        "forward": layers + fc,
        "loss": head * (2 if fused_loss else 1),
        "backward": 2 * layers + fc + (0 if fused_loss else head),
    }
    return {phase: num / 1e12 for phase, num in of_phase.items()}


def project_apart(
    layer: DrafterLayer, context_TD: Tensor, block_QD: Tensor, rotation: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """As `project_layer`, with a product for each matrix."""
    query_QHE, key_KGE, value_KGE = layer.self_attn(context_TD, layer.input_layernorm(block_QD), rotation)
    return query_QHE.to(value_KGE.dtype), key_KGE.to(value_KGE.dtype), value_KGE


def run_whole_layer(
    layer: DrafterLayer, context_TD: Tensor, block_QD: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | BlockMask
) -> Tensor:
    """A layer for one graph, attention included."""
    query_QHE, key_KGE, value_KGE = project_layer(layer, context_TD, block_QD, rotation)
    if not isinstance(mask, BlockMask):
        return finish_layer(layer, attend(query_QHE, key_KGE, value_KGE, mask).flatten(1), block_QD)
    query, key, value = (x.transpose(0, 1)[None] for x in (query_QHE, key_KGE, value_KGE))
    out: Any = flex_attention(
        query, key, value, block_mask=mask, enable_gqa=True, kernel_options={"FORCE_USE_FLEX_ATTENTION": True}
    )
    return finish_layer(layer, out[0].transpose(0, 1).flatten(1), block_QD)


def _whole_layers() -> CompiledParts:
    code = DrafterCode(LazyCompile(read_context), LazyCompile(run_whole_layer), LazyCompile(normalise))
    return CompiledParts(code, CompiledScore())
