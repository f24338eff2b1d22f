"""
The work that every system is given: shapes, texts, lengths.

Arithmetic of the full work (`drafter_tflop`): 145 TFLOP a drafter step, 192 ms at the 756 TFLOP/s that an H200 reached
in a matrix product (anchors.md; 204 ms with the optimizer's bytes); the target's 34 layers are 86 TFLOP, 114 ms. The
peers are predicted from anchors.md: speculators 323 ms and 122 s of warm-up, specforge 394, the target with logits 210.

Shapes: B samples, S padded length, T packed length, F tapped layers × hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from pipeline.data.batches import BatchRule
from pipeline.data.buckets import BatchShape, batch_shapes
from pipeline.data.filled import fill_epoch
from pipeline.model.drafter import tap_layers
from pipeline.model.flop import drafter_flop
from pipeline.model.shape import DrafterShape

STORY_SHARES_PCT = (3.8, 7.4, 10.5, 15.0, 16.6, 46.6)
"""Of the story's batches, by length bucket (story.md)."""

MAX_SAMPLES = 64
"""Of a batch."""
FILL_FROM = 10
"""So few of thousands of batches are the last ones, which nothing is left to fill, that they should be few here too."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Qwen3-8B's shapes with the peers' recipe, and how often each thing is done."""

    hidden_size: int = 4096
    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    intermediate_size: int = 12_288
    vocab_size: int = 151_936
    mask_token_id: int = 151_669
    num_target_layers: int = 36
    num_draft_layers: int = 5
    block_size: int = 16
    loss_decay_gamma: float = 7.0
    num_samples: int = 2
    length: int = 3072
    """Tokens a sample where lengths do not vary."""
    anchors_a_sample: int = 512
    bucket_bounds: tuple[int, ...] = (769, 1215, 1727, 2431, 3295, 6144)
    """The story's; its last bucket ends at 8,192, which the token budget cuts."""
    toggles: str = "all,-swa"
    """Of ours: everything that does not change the model."""
    num_warmup: int = 6
    num_windows: int = 3
    steps_a_window: int = 8
    num_varying: int = 16
    """Batches of varying lengths in a pass."""

    @property
    def token_budget(self) -> int:
        """Tokens in a batch of fixed length, and most of one of varying lengths, padding included."""
        return self.num_samples * self.length

    @property
    def num_anchors(self) -> int:
        """Of a batch."""
        return self.num_samples * self.anchors_a_sample

    @property
    def layer_ids(self) -> tuple[int, ...]:
        """The target's layers that are tapped."""
        return tap_layers(self.num_target_layers, self.num_draft_layers)

    @property
    def num_features(self) -> int:
        """Width of the joined taps."""
        return self.num_draft_layers * self.hidden_size

    @property
    def shapes(self) -> tuple[BatchShape, ...]:
        """That batches of varying lengths have: two padded lengths a bucket."""
        return batch_shapes(self.bucket_bounds, self.token_budget, MAX_SAMPLES)


FULL = Work()
TINY = Work(
    hidden_size=64,
    num_heads=2,
    num_kv_heads=1,
    head_dim=32,
    intermediate_size=96,
    vocab_size=512,
    mask_token_id=511,
    num_target_layers=6,
    num_draft_layers=2,
    block_size=4,
    loss_decay_gamma=3.0,
    length=96,
    anchors_a_sample=16,
    bucket_bounds=(32, 64, 96, 192),
    num_warmup=1,
    num_windows=2,
    steps_a_window=2,
    num_varying=3,
)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Samples, padded on the right; on the host."""

    input_ids_BS: Tensor
    """int64."""
    loss_mask_BS: Tensor
    """bool, False in padding."""
    lengths: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Without padding."""
        return sum(self.lengths)

    @property
    def is_token_BS(self) -> Tensor:
        """Where it is no padding, bool."""
        return torch.arange(self.input_ids_BS.shape[1]) < torch.tensor(self.lengths)[:, None]

    def packed(self, tensor_BS: Tensor, padded_length: int) -> Tensor:
        """The real tokens of *tensor_BS*, one sample behind the other, and zeros up to *padded_length*."""
        tensor_T = tensor_BS[self.is_token_BS]
        return torch.nn.functional.pad(tensor_T, (0, padded_length - tensor_T.numel()))


def fixed_batch(work: Work, seed: int) -> Batch:
    """Samples of the fixed length; the first quarter of each is not supervised."""
    lengths = (work.length,) * work.num_samples
    return _make_batch(work, lengths, work.length, seed)


def check_batch(work: Work, seed: int) -> Batch:
    """
    A batch of the fixed shape in which chance has no say, for comparing losses.

    The first `anchors_a_sample` tokens of each sample are supervised: every rule of choosing anchors then takes all
    places where a block has something to learn, and places that only one rule allows have no supervised slot.
    """
    batch = fixed_batch(work, seed)
    supervised_S = torch.arange(work.length) < work.anchors_a_sample
    return Batch(
        input_ids_BS=batch.input_ids_BS, loss_mask_BS=supervised_S.expand(work.num_samples, -1), lengths=batch.lengths
    )


def check_slots(work: Work) -> tuple[float, float]:
    """Supervised slots of `check_batch`, and their summed loss weight."""
    num_supervised, weight = 0, 0.0
    for slot in range(1, work.block_size):
        num_blocks = work.num_samples * max(0, work.anchors_a_sample - slot)
        num_supervised += num_blocks
        weight += num_blocks * math.exp(-(slot - 1) / work.loss_decay_gamma)
    return num_supervised, weight


def varying_batches(work: Work, num_batches: int, seed: int) -> list[Batch]:
    """Batches of like lengths; buckets are drawn by the story's shares, lengths evenly within a batch's shape."""
    generator = torch.Generator().manual_seed(seed)
    shapes, shortest = work.shapes, _shortest(work.shapes)
    shares = torch.tensor([STORY_SHARES_PCT[shape.bucket] for shape in shapes])
    # A bucket's share is dealt evenly to its shapes.
    shares /= torch.tensor([float(sum(other.bucket == shape.bucket for other in shapes)) for shape in shapes])
    drawn = torch.multinomial(shares, num_batches, replacement=True, generator=generator).tolist()
    batches = []
    for number, index in enumerate(drawn):
        longest = shapes[index].padded_length
        size = (shapes[index].num_rows,)
        lengths = torch.randint(shortest[index], longest + 1, size, generator=generator).tolist()
        batches.append(_make_batch(work, tuple(lengths), longest, seed * 1000 + number))
    return batches


def filled_batches(work: Work, num_batches: int, seed: int) -> list[Batch]:
    """The same samples as systems batch them that take packed rows: some of what ten times as many batches fill."""
    drawn = varying_batches(work, FILL_FROM * num_batches, seed)
    lengths_N = np.array([length for batch in drawn for length in batch.lengths])
    rule = BatchRule(bounds=work.bucket_bounds, token_budget=work.token_budget, max_samples=MAX_SAMPLES, seed=seed)
    plans = fill_epoch(lengths_N, np.arange(len(lengths_N)), rule, 0)[:num_batches]
    filled = [tuple(lengths_N[list(plan.indices)].tolist()) for plan in plans]
    return [_make_batch(work, lengths, max(lengths), seed * 1000 + number) for number, lengths in enumerate(filled)]


def hidden_states(work: Work, batch: Batch, device: torch.device, seed: int) -> Tensor:
    """What a target would hand over: random `states_TF`, T real tokens; the same on every process of a device kind."""
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(
        batch.num_tokens, work.num_features, generator=generator, device=device, dtype=states_dtype(device)
    )


def states_dtype(device: torch.device) -> torch.dtype:
    """That targets compute in."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def drafter_shape(work: Work) -> DrafterShape:
    """Of all systems' drafters."""
    return DrafterShape(
        hidden_size=work.hidden_size,
        num_heads=work.num_heads,
        num_kv_heads=work.num_kv_heads,
        head_dim=work.head_dim,
        intermediate_size=work.intermediate_size,
        num_layers=work.num_draft_layers,
        num_taps=work.num_draft_layers,
    )


def drafter_tflop(work: Work) -> float:
    """
    Floating-point operations of a step at the fixed shape, as `pipeline.model.flop` counts them.

    A query sees half of the supervised part and all of the first quarter on average.
    """
    num_pairs = work.num_anchors * work.block_size * (work.length * 5 / 8 + work.block_size)
    flop = drafter_flop(
        drafter_shape(work),
        vocab_size=work.vocab_size,
        block_size=work.block_size,
        num_context=work.token_budget,
        num_blocks=work.num_anchors,
        pairs=[num_pairs] * work.num_draft_layers,
    )
    return flop / 1e12


def _shortest(shapes: Sequence[BatchShape]) -> list[int]:
    lengths = [shape.padded_length for shape in shapes]
    # Of the first shape, samples that are shorter than a quarter of it are left out: they hold hardly a block.
    return [max(1, lengths[0] // 4), *(shorter + 1 for shorter, _ in pairwise(lengths))]


def _make_batch(work: Work, lengths: tuple[int, ...], padded_length: int, seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    lengths_B1 = torch.tensor(lengths)[:, None]
    position_S = torch.arange(padded_length)
    # The mask token does not occur in text.
    input_ids_BS = torch.randint(0, work.mask_token_id, (len(lengths), padded_length), generator=generator)
    return Batch(
        input_ids_BS=input_ids_BS * (position_S < lengths_B1),
        loss_mask_BS=(position_S >= lengths_B1 // 4) & (position_S < lengths_B1),
        lengths=lengths,
    )
