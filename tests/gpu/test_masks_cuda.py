"""Masks from intervals and the fused loss on a GPU: the same numbers, and no wait for the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from pipeline.model.anchors import document_ids, sample_anchors, valid_anchors
from pipeline.model.drafter import attend
from pipeline.model.fused_loss import fused_dflash_loss
from pipeline.model.loss import LossParts, Targets, dflash_loss
from pipeline.model.mask_evaluated import additive_mask
from pipeline.model.mask_rule import MaskRequest, mask_tables
from pipeline.model.masks import MaskFactory

# torch warns about its own deprecated parts while it compiles, and about its sync debug mode.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]

DEVICE = "cuda"
BLOCK_SIZE = 16


def make_request(num_context: int, window: int | None, *, num_anchors: int = 64) -> MaskRequest:
    """Four documents, padding, and some unused slots."""
    lengths = [num_context // 4 - 20] * 4
    document_T = document_ids(lengths, num_context)
    valid_T = valid_anchors(document_T, torch.ones(num_context, dtype=torch.bool), BLOCK_SIZE)
    drawn = sample_anchors(valid_T, num_anchors - 5, torch.Generator().manual_seed(num_context))
    position_T = torch.zeros(num_context, dtype=torch.int64)
    position_T[: sum(lengths)] = torch.arange(lengths[0]).repeat(4)
    return MaskRequest(
        anchor_A=torch.cat([drawn.position_A, torch.zeros(5, dtype=torch.int64)]).to(DEVICE),
        document_T=document_T.to(DEVICE),
        position_T=position_T.to(DEVICE),
        block_size=BLOCK_SIZE,
        window=window,
    )


def dense_mask(request: MaskRequest) -> Tensor:
    tables = mask_tables(request.anchor_A, request.document_T, block_size=request.block_size, window=request.window)
    return additive_mask(tables)


def tables_of(mask: Tensor | BlockMask) -> list[Tensor | None]:
    assert isinstance(mask, BlockMask)
    return [
        *(mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices),
        *(mask.q_num_blocks, mask.q_indices, mask.full_q_num_blocks, mask.full_q_indices),
    ]


@contextmanager
def no_synchronisation() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("window", [None, 256])
def test_every_way_to_the_block_tables_gives_torchs(window: int | None) -> None:
    factory = MaskFactory(is_cuda=True)

    for num_context in (1024, 2048, 3072):
        request = make_request(num_context, window)
        expected = tables_of(factory.build(request, compiled=False, analytic=False))
        for compiled, analytic in ((True, False), (False, True), (True, True)):
            actual = tables_of(factory.build(request, compiled=compiled, analytic=analytic))
            # Tails too: torch sorts stably, so what lies behind the counted blocks is in order as well.
            for theirs, ours in zip(expected, actual, strict=True):
                assert theirs is not None
                assert ours is not None
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("compiled", [False, True])
def test_an_analytic_mask_never_waits_for_the_device(compiled: bool) -> None:
    factory = MaskFactory(is_cuda=True)
    requests = [make_request(num_context, 256) for num_context in (1024, 2048)]
    for request in requests:
        factory.build(request, compiled=compiled, analytic=True)

    with no_synchronisation():
        masks = [factory.build(request, compiled=compiled, analytic=True) for request in requests]

    assert all(isinstance(mask, BlockMask) for mask in masks)


@pytest.mark.parametrize("window", [None, 256])
def test_flex_attention_under_an_analytic_mask_equals_float64_attention(window: int | None) -> None:
    request = make_request(1024, window, num_anchors=32)
    num_queries = request.anchor_A.numel() * BLOCK_SIZE
    num_keys = request.document_T.numel() + num_queries
    torch.manual_seed(0)
    query, key, value = (
        torch.randn(num, heads, 64, device=DEVICE, requires_grad=True)
        for num, heads in ((num_queries, 8), (num_keys, 2), (num_keys, 2))
    )
    upstream = torch.randn(num_queries, 8, 64, device=DEVICE)
    mask = MaskFactory(is_cuda=True).build(request, compiled=False, analytic=True)

    out = attend(query, key, value, mask)
    out.backward(upstream)
    doubles = [x.detach().double().requires_grad_() for x in (query, key, value)]
    reference = attend(*doubles, dense_mask(request))
    reference.backward(upstream.double())

    # float32 inputs; the kernel may use tf32 products (3e-4 a product, METHOD.md).
    assert (out.double() - reference).norm() / reference.norm() < 2e-3
    for actual, expected in zip((query, key, value), doubles, strict=True):
        assert actual.grad is not None
        assert expected.grad is not None
        assert (actual.grad.double() - expected.grad).norm() / expected.grad.norm() < 2e-3


def make_slots() -> tuple[Tensor, Tensor, Targets]:
    """Final hidden states, head and targets: 240 slots, a vocabulary of 8,192."""
    generator = torch.Generator(device=DEVICE).manual_seed(0)
    final_QD = torch.randn(256, 512, device=DEVICE, generator=generator)
    head_VD = torch.randn(8192, 512, device=DEVICE, generator=generator) * 0.1
    label_N = torch.randint(0, 8192, (240,), device=DEVICE, generator=generator)
    return final_QD, head_VD, Targets(label_N, torch.rand(240, device=DEVICE, generator=generator))


def differentiate(loss: Any, *, autocast: bool, **options: int) -> tuple[LossParts, Tensor]:
    final_QD, head_VD, targets = make_slots()
    final_QD.requires_grad_()
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        parts = loss(final_QD, head_VD, targets, block_size=BLOCK_SIZE, total_weight=targets.weight, **options)
    parts.loss.backward()
    assert final_QD.grad is not None
    return parts, final_QD.grad.double()


def test_the_fused_loss_in_bfloat16_is_as_near_to_float32_as_the_plain_one() -> None:
    exact, exact_grad = differentiate(dflash_loss, autocast=False)
    plain, plain_grad = differentiate(dflash_loss, autocast=True)
    # 64 slots a chunk.
    fused, fused_grad = differentiate(fused_dflash_loss, autocast=True, chunk_bytes=64 * 4 * 8192)

    plain_error = float((plain_grad - exact_grad).norm() / exact_grad.norm())
    fused_error = float((fused_grad - exact_grad).norm() / exact_grad.norm())
    assert fused_error < max(1.2 * plain_error, 1e-2)
    assert abs(float(fused.loss.detach() - exact.loss.detach())) < 1e-2 * float(exact.loss.detach())
    assert float(plain.loss.detach()) == pytest.approx(float(fused.loss.detach()), rel=1e-3)
    assert int(plain.num_right) == int(fused.num_right)
    assert int(plain.num_supervised) == int(fused.num_supervised)


def test_the_fused_loss_in_float32_is_the_plain_one() -> None:
    plain, plain_grad = differentiate(dflash_loss, autocast=False)
    fused, fused_grad = differentiate(fused_dflash_loss, autocast=False, chunk_bytes=64 * 4 * 8192)

    assert float(plain.loss.detach()) == pytest.approx(float(fused.loss.detach()), rel=1e-5)
    assert float((fused_grad - plain_grad).norm() / plain_grad.norm()) < 1e-5


def test_the_fused_loss_never_waits_for_the_device() -> None:
    differentiate(fused_dflash_loss, autocast=True)
    final_QD, head_VD, targets = make_slots()
    final_QD.requires_grad_()
    total_weight = targets.weight

    with no_synchronisation(), torch.autocast("cuda", torch.bfloat16):
        fused_dflash_loss(final_QD, head_VD, targets, block_size=BLOCK_SIZE, total_weight=total_weight).loss.backward()

    assert final_QD.grad is not None
