"""Operations that training needs: counted by hand, against torch's own count, and against the masks themselves."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from pipeline.model.anchors import document_ids
from pipeline.model.drafter import Drafter
from pipeline.model.flop import block_pairs, drafter_flop, layer_flop, target_flop
from pipeline.model.mask_evaluated import additive_mask
from pipeline.model.mask_rule import mask_tables
from pipeline.model.shape import DrafterShape
from pipeline.model.target import drafter_shape
from tests.support.tiny_llama import make_tiny_llama

SHAPE = DrafterShape(
    hidden_size=32, num_heads=4, num_kv_heads=2, head_dim=8, intermediate_size=48, num_layers=2, num_taps=3
)


def test_a_layer_by_hand() -> None:
    products = 2 * (7 * 32 * 32 + 7 * 32 * 32 + 3 * 7 * 32 * 48 + 2 * 9 * 32 * 16)
    attention = 4 * 11 * 32

    assert products + attention == layer_flop(SHAPE, num_queries=7, num_keys=9, num_pairs=11)


def test_a_causal_target_sees_half_of_its_square_and_its_diagonal() -> None:
    one, two = (target_flop(SHAPE, num_layers=5, lengths=lengths) for lengths in ([6], [3, 3]))

    assert 5 * 4 * 32 * (6 * 7 / 2 - 2 * 3 * 4 / 2) == one - two


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    block_size=st.integers(1, 6),
    window=st.one_of(st.none(), st.integers(1, 50)),
    data=st.data(),
)
def test_pairs_are_those_that_the_mask_lets_through(
    lengths: list[int], block_size: int, window: int | None, data: st.DataObject
) -> None:
    anchors = sorted(data.draw(st.sets(st.integers(0, sum(lengths) - 1), min_size=1, max_size=4)))
    document_T = document_ids(lengths, sum(lengths))
    tables = mask_tables(torch.tensor(anchors), document_T, block_size=block_size, window=window)
    starts = [sum(lengths[: int(document_T[anchor])]) for anchor in anchors]

    seen = int((additive_mask(tables) == 0).sum())

    contexts = [anchor - start for anchor, start in zip(anchors, starts, strict=True)]
    assert seen == block_pairs(contexts, block_size, window)


def test_a_drafters_step_is_what_torch_counts() -> None:
    num_context, num_blocks, block_size, vocab_size = 12, 2, 4, 50
    num_slots = num_blocks * block_size
    drafter, head = Drafter(SHAPE), torch.randn(vocab_size, SHAPE.hidden_size)
    hidden_TF = torch.randn(num_context, SHAPE.num_taps * SHAPE.hidden_size)
    block_QD = torch.randn(num_slots, SHAPE.hidden_size, requires_grad=True)
    masks = [torch.zeros(1, 1, num_slots, num_context + num_slots)] * SHAPE.num_layers
    is_drafted_Q = torch.arange(num_slots) % block_size > 0

    # Its fused kernel on a CPU is counted as nothing.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        final_QD = drafter(hidden_TF, block_QD, torch.arange(num_context + num_slots), masks)
        F.linear(final_QD[is_drafted_Q], head).sum().backward()

    expected = drafter_flop(
        SHAPE,
        vocab_size=vocab_size,
        block_size=block_size,
        num_context=num_context,
        num_blocks=num_blocks,
        pairs=[num_slots * (num_context + num_slots)] * SHAPE.num_layers,
    )
    assert pytest.approx(expected) == counter.get_total_flops()


def test_a_targets_layers_are_what_torch_counts() -> None:
    model = make_tiny_llama(50)
    shape = drafter_shape(model.config, num_layers=1, num_taps=1)
    length = 10

    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model.model(input_ids=torch.ones(1, length, dtype=torch.int64), use_cache=False)

    num_layers, heads = model.config.num_hidden_layers, shape.num_heads * shape.head_dim
    # torch counts attention as if every query saw every key.
    unseen = num_layers * 4 * heads * length * (length - 1) / 2
    counted = counter.get_total_flops() - unseen
    assert pytest.approx(target_flop(shape, num_layers=num_layers, lengths=[length])) == counted
