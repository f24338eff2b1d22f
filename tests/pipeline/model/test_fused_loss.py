"""The fused loss is the plain loss: same value, gradient and counts, in bounded memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.model.fused_loss import CPU_CHUNK_BYTES, chunk_slots, fused_dflash_loss
from pipeline.model.loss import LossParts, Targets, dflash_loss
from pipeline.model.scoring import Score, score_at_once, score_stepwise

BLOCK, NUM_BLOCKS, WIDTH, VOCAB = 4, 6, 8, 50
ROW_BYTES = 4 * VOCAB
"""Logits of one slot in float32."""


@pytest.fixture
def targets() -> Targets:
    generator = torch.Generator().manual_seed(2)
    num_slots = NUM_BLOCKS * (BLOCK - 1)
    weight_N = torch.rand(num_slots, generator=generator) * (torch.rand(num_slots, generator=generator) < 0.8)
    return Targets(torch.randint(0, VOCAB, (num_slots,), generator=generator), weight_N)


def inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    final_QD = torch.randn(NUM_BLOCKS * BLOCK, WIDTH, generator=generator).to(dtype).requires_grad_()
    return final_QD, torch.randn(VOCAB, WIDTH, generator=generator).to(dtype)


def differentiate(loss: Any, dtype: torch.dtype, targets: Targets, **options: Any) -> tuple[LossParts, Tensor]:
    final_QD, head_VD = inputs(dtype)
    parts = loss(final_QD, head_VD, targets, block_size=BLOCK, total_weight=targets.weight * 3, **options)
    # Not 1: the gradient that arrives has to be passed on.
    (parts.loss * 7).backward()
    assert final_QD.grad is not None
    return parts, final_QD.grad


@pytest.mark.parametrize("num_rows", [1, 5, 18, 1000])
@pytest.mark.parametrize("score", [score_stepwise, score_at_once])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_value_gradient_and_counts_are_the_plain_ones(
    dtype: torch.dtype, score: Score, num_rows: int, targets: Targets
) -> None:
    plain, plain_grad = differentiate(dflash_loss, dtype, targets)
    fused, fused_grad = differentiate(fused_dflash_loss, dtype, targets, chunk_bytes=num_rows * ROW_BYTES, score=score)

    assert float(plain.loss.detach()) == pytest.approx(float(fused.loss.detach()), rel=1e-5)
    assert float((fused_grad - plain_grad).norm() / plain_grad.norm()) < 1e-5
    assert int(plain.num_right) == int(fused.num_right)
    assert int(plain.num_supervised) == int(fused.num_supervised)


def test_its_gradient_is_that_of_finite_differences(targets: Targets) -> None:
    final_QD, head_VD = inputs(torch.float64)
    doubles = Targets(targets.label_N, targets.weight_N.double())

    def loss(x: Tensor) -> Tensor:
        return fused_dflash_loss(
            x, head_VD, doubles, block_size=BLOCK, total_weight=doubles.weight, chunk_bytes=5 * ROW_BYTES
        ).loss

    assert torch.autograd.gradcheck(loss, final_QD)


def test_right_answers_count_where_they_are_supervised() -> None:
    final_QD = torch.eye(10)[[9, 1, 9, 3]].requires_grad_()
    targets = Targets(torch.tensor([1, 2, 3]), torch.tensor([1.0, 0.5, 0.0]))

    parts = fused_dflash_loss(final_QD, torch.eye(10), targets, block_size=4, total_weight=targets.weight)

    assert (1, 2) == (int(parts.num_right), int(parts.num_supervised))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_without_a_supervised_token_loss_and_gradients_are_zero_not_nan(dtype: torch.dtype, targets: Targets) -> None:
    nothing = Targets(targets.label_N, torch.zeros_like(targets.weight_N))

    parts, grad = differentiate(fused_dflash_loss, dtype, nothing)

    assert 0.0 == float(parts.loss.detach())
    assert not grad.any()


def test_it_does_as_autocast_says_as_the_plain_one_does(targets: Targets) -> None:
    def under_autocast(loss: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> LossParts:
            with torch.autocast("cpu", torch.bfloat16):
                parts: LossParts = loss(*arguments, **options)
            return parts

        return run

    exact, exact_grad = differentiate(dflash_loss, torch.float64, targets)
    plain, plain_grad = differentiate(under_autocast(dflash_loss), torch.float32, targets)
    fused, fused_grad = differentiate(under_autocast(fused_dflash_loss), torch.float32, targets)

    assert float(plain.loss.detach()) == pytest.approx(float(fused.loss.detach()), rel=1e-6)
    # In bfloat16 or not at all: float32 would be a thousand times nearer.
    assert 1e-4 < float((fused_grad - exact_grad).norm() / exact_grad.norm()) < 1e-2
    assert torch.float32 == fused_grad.dtype == plain_grad.dtype
    assert float(exact.loss.detach()) == pytest.approx(float(fused.loss.detach()), rel=1e-2)


def test_a_confident_slot_still_learns_in_bfloat16() -> None:
    # The label's probability, 1 − 2e-5, is 1 in bfloat16: rounded before the subtraction, its gradient would be 0.
    final_QD = torch.tensor([[0.0, 0.0], [12.0, 1.0]], dtype=torch.bfloat16, requires_grad=True)
    head_VD = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.bfloat16)
    targets = Targets(torch.tensor([0]), torch.ones(1))

    fused_dflash_loss(final_QD, head_VD, targets, block_size=2, total_weight=targets.weight).loss.backward()

    assert final_QD.grad is not None
    assert float(final_QD.grad[1, 0]) == pytest.approx(float(torch.sigmoid(torch.tensor(11.0))) - 1, rel=2e-2)


class Shapes(TorchDispatchMode):
    """Notes the sizes of what operations make, and the matrix products among them."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.num_products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.num_products += func.overloadpacket.__name__ in ("mm", "addmm")
        if isinstance(out, Tensor):
            self.largest = max(self.largest, out.numel())
        return out


def test_no_tensor_holds_more_logits_than_a_chunk_and_backward_multiplies_nothing(targets: Targets) -> None:
    final_QD, head_VD = inputs(torch.float32)
    total_weight = targets.weight

    with Shapes() as shapes:
        parts = fused_dflash_loss(
            final_QD, head_VD, targets, block_size=BLOCK, total_weight=total_weight, chunk_bytes=9 * ROW_BYTES
        )
        parts.loss.backward()

    # 18 slots in two chunks of nine, two products each; the head is smaller than a chunk.
    assert 9 * VOCAB == shapes.largest
    assert 4 == shapes.num_products


def test_left_to_itself_a_cpu_scores_as_many_slots_at_a_time_as_its_cache_holds() -> None:
    num_slots = 5
    head_VD = torch.zeros(CPU_CHUNK_BYTES // 4 // num_slots, 1)
    targets = Targets(torch.zeros(2 * num_slots, dtype=torch.int64), torch.ones(2 * num_slots))

    with Shapes() as shapes:
        fused_dflash_loss(torch.zeros(4 * num_slots, 1), head_VD, targets, block_size=2, total_weight=targets.weight)

    assert 2 == shapes.num_products
    assert num_slots * len(head_VD) == shapes.largest


@pytest.mark.parametrize(
    ("num_bytes", "num_slots"), [(1, 1), (1023 * 200, 1023), (1024 * 200, 1024), (2047 * 200, 1024), (4100 * 200, 4096)]
)
def test_large_chunks_are_whole_waves(num_bytes: int, num_slots: int) -> None:
    assert num_slots == chunk_slots(num_bytes, 50)


def test_without_a_gradient_to_compute_only_the_logits_are_multiplied(targets: Targets) -> None:
    final_QD, head_VD = inputs(torch.float32)

    with Shapes() as shapes:
        parts = fused_dflash_loss(
            final_QD.detach(), head_VD, targets, block_size=BLOCK, total_weight=targets.weight, chunk_bytes=1
        )

    assert 18 == shapes.num_products
    assert not parts.loss.requires_grad
