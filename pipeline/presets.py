"""Named workloads: target, drafter, data and recipe. Every number that a run depends on stands here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from flashprof.contracts.errors import UnknownNameError

FULL = "full_attention"
SLIDING = "sliding_attention"


@dataclass(frozen=True, kw_only=True)
class TargetPlan:
    """The frozen model that drafters learn to draft for."""

    source: str
    """`random`: Qwen3 shapes, seeded weights; `smollm2`: the real SmolLM2-135M-Instruct; `folder`: `path`."""
    path: str = ""
    """A transformers folder with model and tokenizer, where the source is `folder`."""
    mask_token_id: int | None = None
    """The token that stands for "to be drafted"; None: the data source knows one."""
    hidden_size: int = 0
    num_layers: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    intermediate_size: int = 0
    vocab_size: int = 0
    """Shapes of a random target; a real one brings its own."""


@dataclass(frozen=True, kw_only=True)
class DrafterPlan:
    """The drafter's own choices; widths are the target's."""

    layer_types: tuple[str, ...]
    """One entry a layer: `full_attention` or `sliding_attention`."""
    sliding_window: int
    """Tokens of context that a sliding layer sees."""
    block_size: int
    """Tokens drafted in one forward pass, the anchor among them."""
    num_anchors: int
    """Blocks trained in one step; fewer where the batch has fewer valid positions."""
    loss_decay_gamma: float
    """Slot k weighs exp(−(k−1)/γ); the paper's recipe: 7, 5, 4 for blocks of 16, 10, 8."""
    tapped_layers: tuple[int, ...] = ()
    """Target layers whose output the drafter reads; empty: as many as it has layers, evenly spaced."""


@dataclass(frozen=True, kw_only=True)
class DataPlan:
    """Which text, and how it is batched."""

    source: str
    """`stdlib`, `dialogues`, or `file`: `path`."""
    max_length: int
    """Longest sample, in tokens; longer ones are cut."""
    bucket_bounds: tuple[int, ...]
    """Largest length of each bucket, in tokens."""
    token_budget: int
    """Most tokens in a batch, padding included."""
    max_samples: int = 64
    path: str = ""
    """Conversations or pre-tokenised samples, where the source is `file`."""
    held_out_share: float = 0.02
    """Part of the samples that is never trained on, and that `evaluate` uses."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the drafter is optimised; the defaults are the paper's (SpecForge#463)."""

    lr: float = 6e-4
    schedule: str = "cosine"
    """`cosine`, `linear`, `wsd` or `constant`, after a linear warm-up; a run without a fixed end is constant."""
    warmup_ratio: float = 0.04
    decay_ratio: float = 0.1
    """Last part of the steps in which `wsd` falls."""
    min_lr_ratio: float = 0.0
    """Where the schedule ends, as a part of the peak."""
    accumulate: int = 1
    """Batches a drafter an optimizer step."""
    max_grad_norm: float = 1.0
    weight_decay: float = 0.0
    open_end_warmup_steps: int = 50
    """Warm-up of a run without a fixed number of steps; its learning rate is constant afterwards."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One workload."""

    name: str
    summary: str
    target: TargetPlan
    drafter: DrafterPlan
    data: DataPlan
    recipe: Recipe


TINY = Preset(
    name="tiny",
    summary="random 6-layer Qwen3-shaped target, Python's own library as text; no download",
    target=TargetPlan(
        source="random",
        hidden_size=128,
        num_layers=6,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        intermediate_size=384,
        vocab_size=4096,
    ),
    drafter=DrafterPlan(
        layer_types=(SLIDING, FULL), sliding_window=256, block_size=8, num_anchors=64, loss_decay_gamma=4.0
    ),
    data=DataPlan(source="stdlib", max_length=1024, bucket_bounds=(128, 256, 384, 512, 768, 1024), token_budget=2048),
    recipe=Recipe(lr=2e-3),
)

SMOLLM2 = Preset(
    name="smollm2",
    summary="real SmolLM2-135M-Instruct and real dialogues; optional extra: make smollm2",
    target=TargetPlan(source="smollm2", vocab_size=49_152),
    drafter=DrafterPlan(
        layer_types=(SLIDING, FULL), sliding_window=256, block_size=8, num_anchors=48, loss_decay_gamma=4.0
    ),
    data=DataPlan(source="dialogues", max_length=512, bucket_bounds=(64, 128, 192, 256, 384, 512), token_budget=512),
    recipe=Recipe(lr=1e-3),
)

SMOLLM2_GPU = replace(
    SMOLLM2,
    name="smollm2-gpu",
    summary="the same models with five drafter layers and larger batches, for one GPU; make smollm2",
    drafter=DrafterPlan(
        layer_types=(FULL,) * 5, sliding_window=256, block_size=16, num_anchors=1024, loss_decay_gamma=7.0
    ),
    data=replace(SMOLLM2.data, token_budget=16_384, max_samples=128),
)

QWEN3_8B = Preset(
    name="qwen3-8b",
    summary="the peers' recipe for Qwen3-8B; needs --target DIR with its weights and --data",
    target=TargetPlan(source="folder", mask_token_id=151_669),
    drafter=DrafterPlan(
        layer_types=(FULL,) * 5, sliding_window=2048, block_size=16, num_anchors=1024, loss_decay_gamma=7.0
    ),
    data=DataPlan(
        source="file",
        max_length=3072,
        bucket_bounds=(512, 1024, 1536, 2048, 2560, 3072),
        token_budget=6144,
    ),
    recipe=Recipe(accumulate=2),
)
"""Two samples of 3,072 tokens × 512 anchors a batch; 3 drafters × 2 batches are 12 samples a step (anchors.md)."""

PRESETS = MappingProxyType({preset.name: preset for preset in (TINY, SMOLLM2, SMOLLM2_GPU, QWEN3_8B)})


def find_preset(name: str) -> Preset:
    """
    The preset of that name.

    Raises:
        UnknownNameError: There is none; offers the nearest.
    """
    if name not in PRESETS:
        raise UnknownNameError("preset", name, PRESETS, next_command="python -m pipeline presets")
    return PRESETS[name]
