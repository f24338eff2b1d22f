"""The same effort asks the same questions; results come one by one, and add up to what the numbers say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from flashprof.contracts.errors import UsageError
from pipeline.evaluate.evaluation import (
    Effort,
    Evaluation,
    HeldOutText,
    Subject,
    TextResult,
    draw_prompts,
    evaluate_drafter,
    evaluations,
    exact_float32,
    num_results,
    plan_batches,
)
from pipeline.evaluate.generate import Difference, Generation
from pipeline.model.drafter import Drafter, DrafterShape
from pipeline.presets import FULL, SLIDING, DataPlan, DrafterPlan

EFFORT = Effort(num_batches=2, max_blocks=6, num_prompts=3, max_new_tokens=7)
PLAN = DrafterPlan(layer_types=(SLIDING, FULL), sliding_window=5, block_size=4, num_anchors=8, loss_decay_gamma=4.0)
DATA = DataPlan(source="file", max_length=64, bucket_bounds=(32, 64), token_budget=64)


@pytest.fixture(scope="session")
def text() -> HeldOutText:
    rng = np.random.default_rng(0)
    lengths = [int(n) for n in rng.integers(12, 60, size=12)]
    first = [int(rng.integers(1, length - 6)) for length in lengths]
    dataset = datasets.Dataset.from_dict(
        {
            "input_ids": [rng.integers(3, 64, size=n).tolist() for n in lengths],
            "loss_mask": [[int(i >= f) for i in range(n)] for n, f in zip(lengths, first, strict=True)],
            "length": lengths,
            "first_supervised": first,
        }
    )
    return HeldOutText(dataset=dataset, indices_N=np.array([1, 3, 4, 7, 8, 10]), data=DATA)


@pytest.fixture
def subject(model: Any, drafter: Drafter, shape: DrafterShape) -> Subject:
    return Subject(drafter=drafter, shape=shape, plan=PLAN, model=model, layer_ids=(1, 3), mask_token_id=2)


def generation(num_tokens: int, *accepted_lengths: int, seconds: float = 1.0) -> Generation:
    return Generation(tokens=(5,) * num_tokens, accepted_lengths=accepted_lengths, seconds=seconds)


def result(own: Generation, drafted: Generation, difference: Difference | None = None) -> TextResult:
    return TextResult(sample=0, num_prompt_tokens=4, own=own, drafted=drafted, difference=difference)


def evaluation(*texts: TextResult) -> Evaluation:
    return Evaluation(effort=EFFORT, device="cpu", dtype="float32", tie_limit=1e-3, texts=texts)


def test_results_come_one_by_one_and_each_is_the_whole_so_far(subject: Subject, text: HeldOutText) -> None:
    results = list(evaluations(subject, text, EFFORT))

    assert [(1, 0), (2, 0), (2, 1), (2, 2), (2, 3)] == [(r.num_batches, len(r.texts)) for r in results]
    assert len(results) == num_results(text, EFFORT)
    assert results[0].held_out.num_blocks < results[1].held_out.num_blocks <= 2 * EFFORT.max_blocks


def test_an_untrained_drafter_is_lossless_and_gets_hardly_a_token(subject: Subject, text: HeldOutText) -> None:
    seen: list[Evaluation] = []
    last = evaluate_drafter(subject, text, EFFORT, on_progress=seen.append)

    assert last is seen[-1]
    assert (3, 0) == (last.num_lossless, last.num_wrong)
    assert 1.0 <= last.acceptance_length < 1.5
    assert 1.0 <= last.held_out.acceptance_length < 1.5
    assert last.held_out.loss > math.log(64) / 2
    assert last.own_tok_per_s > 0


def test_an_evaluation_can_be_repeated(subject: Subject, text: HeldOutText) -> None:
    first, second = (evaluate_drafter(subject, text, EFFORT) for _ in range(2))
    other = evaluate_drafter(subject, text, replace(EFFORT, seed=1))

    assert first.held_out == second.held_out
    assert [t.own.tokens for t in first.texts] == [t.own.tokens for t in second.texts]
    assert first.held_out != other.held_out


def test_only_held_out_samples_are_asked_and_prompts_end_before_the_answer(text: HeldOutText) -> None:
    everything = Effort(num_batches=99, num_prompts=99)
    batches = plan_batches(text, everything)
    prompts = draw_prompts(text, everything)

    assert sorted(text.indices_N) == sorted(index for plan in batches for index in plan.indices)
    assert sorted(text.indices_N) == sorted(index for index, _ in prompts)
    for index, prompt_T in prompts:
        sample = text.dataset[index]

        assert sample["input_ids"][: sample["first_supervised"]] == prompt_T.tolist()


def test_fewer_prompts_are_the_first_of_more(text: HeldOutText) -> None:
    few, many = (draw_prompts(text, Effort(num_prompts=n)) for n in (2, 5))

    assert [index for index, _ in many[:2]] == [index for index, _ in few]


def test_nothing_held_out_is_a_usage_error(subject: Subject, text: HeldOutText) -> None:
    nothing = replace(text, indices_N=np.array([], dtype=np.int64))
    with pytest.raises(UsageError, match="held out"):
        evaluate_drafter(subject, nothing, EFFORT)


def test_training_goes_on_in_the_precision_that_it_had(subject: Subject, text: HeldOutText) -> None:
    torch.set_float32_matmul_precision("high")
    try:
        with exact_float32():
            inside = torch.get_float32_matmul_precision()
        between = [torch.get_float32_matmul_precision() for _ in evaluations(subject, text, EFFORT)]
    finally:
        torch.set_float32_matmul_precision("highest")

    assert "highest" == inside
    assert {"high"} == set(between)


def test_the_acceptance_length_is_pooled_over_rounds_and_not_averaged_over_prompts() -> None:
    long, short = generation(9, 1, 1, 1, 1, 1, 1, 2), generation(9, 4, 4)

    assert pytest.approx(16 / 9) == evaluation(result(long, long), result(short, short)).acceptance_length


def test_rates_are_all_tokens_over_all_seconds() -> None:
    done = evaluation(
        result(generation(10, seconds=1.0), generation(10, 3, seconds=0.5)),
        result(generation(30, seconds=3.0), generation(30, 3, seconds=0.5)),
    )

    assert (10.0, 40.0, 4.0) == (done.own_tok_per_s, done.drafted_tok_per_s, done.speedup)


def test_a_tie_is_not_lossless_but_not_wrong_either() -> None:
    tie = Difference(position=3, top2_gap=1e-5, said_gap=1e-5)
    bug = Difference(position=3, top2_gap=1e-5, said_gap=2.0)
    done = evaluation(*(result(generation(9), generation(9, 3), difference) for difference in (None, tie, bug)))

    assert (1, 1) == (done.num_lossless, done.num_wrong)


def test_what_is_not_known_yet_is_no_number() -> None:
    assert math.isnan(evaluation().acceptance_length)
    assert math.isnan(evaluation().speedup)


def test_an_answer_past_the_targets_positions_is_refused_and_the_most_that_fits_is_named(
    subject: Subject, text: HeldOutText
) -> None:
    longest = max(prompt_T.numel() for _, prompt_T in draw_prompts(text, EFFORT))
    room = subject.model.config.max_position_embeddings - longest
    with pytest.raises(UsageError) as caught:
        next(evaluations(subject, text, replace(EFFORT, max_new_tokens=room + 1)))

    assert f"--max-new-tokens {room}" == caught.value.next_command
    assert next(evaluations(subject, text, replace(EFFORT, max_new_tokens=room)))
    assert next(evaluations(subject, text, replace(EFFORT, num_prompts=0, max_new_tokens=room + 1)))
