"""Both ways to score a chunk of logits give the same numbers; the one for the compiler compiles once."""

from __future__ import annotations

import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pipeline.model.scoring import CompiledScore, score_at_once, score_stepwise
from pipeline.train.evidence import compilations

VOCAB = 50


def chunk(num_slots: int, dtype: torch.dtype, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_slots)
    logits_CV = (torch.randn(num_slots, VOCAB, generator=generator, dtype=torch.float64) * scale).to(dtype)
    return logits_CV, torch.randint(0, VOCAB, (num_slots,), generator=generator)


@settings(deadline=None)
@given(num_slots=st.integers(1, 9), scale=st.sampled_from([0.0, 1.0, 30.0, 1e4]), differentiate=st.booleans())
def test_at_once_is_stepwise(num_slots: int, scale: float, differentiate: bool) -> None:
    # At a scale of 0 all tokens are equally likely: both have to name the first.
    logits_CV, label_C = chunk(num_slots, torch.float64, scale)

    loss_C, right_C, gradient_CV = score_at_once(logits_CV, label_C, differentiate)
    expected_C, expected_right_C, expected_CV = score_stepwise(logits_CV.clone(), label_C, differentiate)

    torch.testing.assert_close(loss_C, expected_C)
    assert torch.equal(right_C, expected_right_C)
    if expected_CV is None:
        assert gradient_CV is None
    else:
        torch.testing.assert_close(gradient_CV, expected_CV)


@pytest.mark.parametrize("score", [score_stepwise, score_at_once])
def test_in_bfloat16_the_loss_is_float32_and_the_gradient_bfloat16(score: object) -> None:
    logits_CV, label_C = chunk(6, torch.bfloat16)
    logits_CV[0, label_C[0]] = 14
    exact_CV = torch.softmax(logits_CV.double(), dim=1) - torch.nn.functional.one_hot(label_C, VOCAB)

    assert callable(score)
    loss_C, _, gradient_CV = score(logits_CV.clone(), label_C, True)

    assert (torch.float32, torch.bfloat16) == (loss_C.dtype, gradient_CV.dtype)
    # Every entry by itself: that of a confident label, 1 in bfloat16 before the subtraction, would be lost in a norm.
    torch.testing.assert_close(gradient_CV.double(), exact_CV, rtol=8e-3, atol=3e-7)
    torch.testing.assert_close(
        loss_C.double(), torch.nn.functional.cross_entropy(logits_CV.double(), label_C, reduction="none")
    )


@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_it_compiles_once_for_all_numbers_of_slots() -> None:
    torch.compiler.reset()
    before = list(compilations())
    score = CompiledScore()

    for num_slots in (7, 4, 9):
        logits_CV, label_C = chunk(num_slots, torch.float32)
        loss_C, right_C, gradient_CV = score(logits_CV, label_C, True)
        expected_C, expected_right_C, expected_CV = score_stepwise(logits_CV.clone(), label_C, True)

        torch.testing.assert_close(loss_C, expected_C)
        torch.testing.assert_close(gradient_CV, expected_CV)
        assert torch.equal(right_C, expected_right_C)

    new = [item.co_name for item in compilations() if all(item is not old for old in before)]
    assert ["score_at_once"] == new
