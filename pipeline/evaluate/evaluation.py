"""
One evaluation: held-out batches, then prompts that the target answers alone and with drafts.

Results come one by one, each the whole so far, so that an interrupted evaluation still says what it has. Nothing is
caught here: a benchmark that evaluates between stretches of training keeps its own Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import datasets
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flashprof.contracts.errors import UsageError
from pipeline.data.batches import BatchPlan, batch_rule, collate, plan_epoch
from pipeline.evaluate.drafting import CachedDrafter
from pipeline.evaluate.generate import (
    Difference,
    Generation,
    Limits,
    first_difference,
    generate_greedily,
    generate_with_drafts,
)
from pipeline.evaluate.heldout import HeldOut, HeldOutEvaluator
from pipeline.evaluate.taps import CachedTarget, cached_target, stop_ids
from pipeline.model.drafter import Drafter, DrafterShape
from pipeline.model.tables import FrozenTables
from pipeline.presets import DataPlan, DrafterPlan

NUM_WARM_UP_TOKENS = 8
TIE_LIMITS = {torch.float32: 1e-3, torch.bfloat16: 0.5}
"""Logits that rounding may be off by: of SmolLM2's, which reach 30, one unit in bfloat16's last place is 0.125."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is evaluated; the same effort on the same data asks the same questions."""

    num_batches: int = 16
    max_blocks: int = 128
    """Blocks a held-out batch."""
    num_prompts: int = 32
    max_new_tokens: int = 128
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A drafter, and what it drafts with; all of it on one device, and in the precision that is evaluated."""

    drafter: Drafter
    shape: DrafterShape
    plan: DrafterPlan
    """With the layer types that were in force in training."""
    model: Any
    """The target: a causal LM of transformers."""
    layer_ids: tuple[int, ...]
    mask_token_id: int

    @property
    def tables(self) -> FrozenTables:
        """The target's own tables, not copied."""
        return FrozenTables(
            embedding_VD=self.model.get_input_embeddings().weight.detach(),
            head_VD=self.model.get_output_embeddings().weight.detach(),
            mask_token_id=self.mask_token_id,
        )


@dataclass(frozen=True, kw_only=True)
class HeldOutText:
    """Samples that were never trained on."""

    dataset: datasets.Dataset
    """Columns `input_ids`, `loss_mask`, `length`, `first_supervised`."""
    indices_N: NDArray[np.int64]
    data: DataPlan


@dataclass(frozen=True, kw_only=True)
class TextResult:
    """One prompt's two texts."""

    sample: int
    """Index in the data set."""
    num_prompt_tokens: int
    own: Generation
    drafted: Generation
    difference: Difference | None
    """None: lossless."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is known so far."""

    effort: Effort
    device: str
    dtype: str
    tie_limit: float
    """Logits; a difference with a smaller gap is rounding."""
    num_batches: int = 0
    held_out: HeldOut = field(default_factory=HeldOut)
    texts: tuple[TextResult, ...] = ()

    @property
    def acceptance_length(self) -> float:
        """Tokens a round of real generation, over all rounds of all prompts; NaN before the first round."""
        lengths = [length for text in self.texts for length in text.drafted.accepted_lengths]
        return sum(lengths) / len(lengths) if lengths else float("nan")

    @property
    def num_lossless(self) -> int:
        """Prompts whose text with drafts is the target's own, token by token."""
        return sum(text.difference is None for text in self.texts)

    @property
    def num_wrong(self) -> int:
        """Prompts whose text differs by more than rounding explains: a bug."""
        differences = [text.difference for text in self.texts if text.difference]
        return sum(not difference.is_tie(self.tie_limit) for difference in differences)

    @property
    def own_tok_per_s(self) -> float:
        """The target alone, prompts included."""
        return _rate([text.own for text in self.texts])

    @property
    def drafted_tok_per_s(self) -> float:
        """With drafts, prompts included."""
        return _rate([text.drafted for text in self.texts])

    @property
    def speedup(self) -> float:
        """With drafts over alone."""
        return self.drafted_tok_per_s / self.own_tok_per_s if self.texts else float("nan")


def evaluate_drafter(
    subject: Subject, text: HeldOutText, effort: Effort, *, on_progress: Callable[[Evaluation], None] = lambda _: None
) -> Evaluation:
    """
    Evaluate what is in memory.

    Args:
        subject: Is left as it was, but for eval mode.
        text: From the subject's data.
        effort: How much.
        on_progress: Called with each result so far.

    Raises:
        UsageError: There is no held-out sample, or a prompt and its answer have more tokens than the target positions.
    """
    evaluation = _nothing_yet(subject, effort)
    for evaluation in evaluations(subject, text, effort):
        on_progress(evaluation)
    return evaluation


def evaluations(subject: Subject, text: HeldOutText, effort: Effort) -> Iterator[Evaluation]:
    """
    The same, as an iterator of results so far: one a held-out batch, then one a prompt.

    Raises:
        UsageError: There is no held-out sample, or a prompt and its answer have more tokens than the target positions.
    """
    if not len(text.indices_N):
        raise UsageError(
            "no sample is held out, so there is nothing to evaluate on",
            offered=f"held_out_share={text.data.held_out_share:g}",
            next_command="train with a larger held-out share, or on more data",
        )
    _check_room(subject, text, effort)
    subject.drafter.eval()
    evaluation = _nothing_yet(subject, effort)
    for held_out in _held_out_batches(subject, text, effort):
        evaluation = replace(
            evaluation, num_batches=evaluation.num_batches + 1, held_out=evaluation.held_out + held_out
        )
        yield evaluation
    for result in _texts(subject, text, effort):
        evaluation = replace(evaluation, texts=(*evaluation.texts, result))
        yield evaluation


def plan_batches(text: HeldOutText, effort: Effort) -> list[BatchPlan]:
    """The held-out batches that this effort draws."""
    lengths_N = np.asarray(text.dataset.data.column("length").to_numpy(), dtype=np.int64)
    return plan_epoch(lengths_N, text.indices_N, batch_rule(text.data, effort.seed), 0)[: effort.num_batches]


def num_results(text: HeldOutText, effort: Effort) -> int:
    """How many results `evaluations` gives."""
    return len(plan_batches(text, effort)) + min(effort.num_prompts, len(text.indices_N))


def draw_prompts(text: HeldOutText, effort: Effort) -> list[tuple[int, Tensor]]:
    """Index and tokens of the prompts that this effort draws: samples up to their first supervised token."""
    samples = [(int(index), text.dataset[int(index)]) for index in _prompt_order(text, effort)]
    return [(index, torch.tensor(sample["input_ids"][: sample["first_supervised"]])) for index, sample in samples]


def _prompt_order(text: HeldOutText, effort: Effort) -> NDArray[np.int64]:
    order_N: NDArray[np.int64] = np.random.default_rng(effort.seed).permutation(text.indices_N)[: effort.num_prompts]
    return order_N


def _check_room(subject: Subject, text: HeldOutText, effort: Effort) -> None:
    """Past its positions a model's words mean nothing, with drafts or without."""
    positions = getattr(subject.model.config, "max_position_embeddings", None)
    if positions is None or not effort.num_prompts:
        return
    lengths_N = text.dataset.data.column("first_supervised").to_numpy()[_prompt_order(text, effort)]
    longest = int(lengths_N.max())
    room = positions - longest
    if effort.max_new_tokens > room:
        raise UsageError(
            f"a prompt of {longest:,} tokens and its answer have more tokens than the target has positions",
            offered=f"--max-new-tokens {effort.max_new_tokens}",
            allowed=f"at most {room:,}, by max_position_embeddings {positions:,}"
            if room > 0
            else f"no answer to a prompt this long, by max_position_embeddings {positions:,}",
            next_command=f"--max-new-tokens {room}" if room > 0 else "--num-prompts 0: held-out batches alone",
        )


@contextmanager
def exact_float32() -> Iterator[None]:
    """Float32 products in float32: TF32 keeps 10 bits, and two ways to the same logits then differ by 1e-2."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _held_out_batches(subject: Subject, text: HeldOutText, effort: Effort) -> Iterator[HeldOut]:
    evaluator = HeldOutEvaluator(subject.drafter, subject.plan, subject.model, subject.layer_ids)
    for number, plan in enumerate(plan_batches(text, effort)):
        generator = torch.Generator().manual_seed(effort.seed * 1_000_003 + number)
        batch = collate(text.dataset, plan)
        # Entered anew each time: between two results the caller computes as it likes.
        with exact_float32():
            held_out = evaluator.evaluate(batch, subject.tables, max_blocks=effort.max_blocks, generator=generator)
        yield held_out


def _texts(subject: Subject, text: HeldOutText, effort: Effort) -> Iterator[TextResult]:
    drafting = CachedDrafter(subject.drafter, subject.shape, subject.plan, subject.tables)
    limits = Limits(max_new_tokens=effort.max_new_tokens, stop_ids=stop_ids(subject.model))
    for number, (sample, prompt_T) in enumerate(draw_prompts(text, effort)):
        with exact_float32(), cached_target(subject.model, subject.layer_ids) as target:
            if number == 0:
                _warm_up(target, drafting, prompt_T)
            result = _both_texts(target, drafting, prompt_T, limits, sample=sample, drafts_first=number % 2 == 1)
        yield result


def _warm_up(target: CachedTarget, drafting: CachedDrafter, prompt_T: Tensor) -> None:
    """The first calls load kernels, which on a GPU takes longer than a text."""
    limits = Limits(max_new_tokens=NUM_WARM_UP_TOKENS)
    generate_greedily(target, prompt_T, limits)
    generate_with_drafts(target, drafting, prompt_T, limits)


def _both_texts(
    target: CachedTarget, drafting: CachedDrafter, prompt_T: Tensor, limits: Limits, *, sample: int, drafts_first: bool
) -> TextResult:
    # Every second prompt the other way round: what drifts or warms up then falls on both alike.
    if drafts_first:
        drafted = generate_with_drafts(target, drafting, prompt_T, limits)
        own = generate_greedily(target, prompt_T, limits)
    else:
        own = generate_greedily(target, prompt_T, limits)
        drafted = generate_with_drafts(target, drafting, prompt_T, limits)
    return TextResult(
        sample=sample,
        num_prompt_tokens=prompt_T.numel(),
        own=own,
        drafted=drafted,
        difference=first_difference(target, prompt_T, own.tokens, drafted.tokens),
    )


def _nothing_yet(subject: Subject, effort: Effort) -> Evaluation:
    weight = subject.model.get_output_embeddings().weight
    return Evaluation(
        effort=effort,
        device=weight.device.type,
        dtype=str(weight.dtype).removeprefix("torch."),
        tie_limit=TIE_LIMITS[weight.dtype],
    )


def _rate(generations: list[Generation]) -> float:
    seconds = sum(generation.seconds for generation in generations)
    return sum(len(generation.tokens) for generation in generations) / seconds if seconds else float("nan")
