"""Four ways to one mask: evaluated or from intervals, eager or compiled; dense on a CPU, blocks on CUDA."""

from __future__ import annotations

import shutil
from itertools import pairwise

import pytest
import torch
from drafter_rules import mask_request, seen_pairs, slow_mask
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from pipeline.model.anchors import document_ids
from pipeline.model.mask_analytic import analytic_block_tables, interval_mask
from pipeline.model.mask_evaluated import additive_mask_of, block_occupancy_of
from pipeline.model.mask_rule import MaskRequest
from pipeline.model.masks import MaskFactory
from pipeline.train.evidence import compilations

needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler; try: apt-get install g++"
)

Layout = tuple[list[int], list[int], int, int | None]
"""Anchors, document of each context position, block size, window."""


def build(request: MaskRequest, *, analytic: bool) -> Tensor:
    mask = MaskFactory(is_cuda=False).build(request, compiled=False, analytic=analytic)
    assert isinstance(mask, Tensor)
    return mask


def build_blocks(request: MaskRequest, *, analytic: bool) -> BlockMask:
    mask = MaskFactory(is_cuda=True).build(request, compiled=False, analytic=analytic)
    assert isinstance(mask, BlockMask)
    return mask


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    documents = document_ids(lengths, sum(lengths) + draw(st.integers(0, 6))).tolist()
    used = draw(st.lists(st.integers(0, sum(lengths) - 1), min_size=1, max_size=5))
    anchors = sorted(used) + [0] * draw(st.integers(0, 2))
    return anchors, documents, draw(st.integers(1, 4)), draw(st.one_of(st.none(), st.integers(1, 15)))


@st.composite
def block_layouts(draw: st.DrawFn) -> Layout:
    """Rows of whole blocks of 128, as they are packed."""
    num_context = 128 * draw(st.integers(1, 5))
    num_padding = draw(st.integers(0, 127))
    num_tokens = num_context - num_padding
    # One token cannot be cut.
    cuts = draw(st.sets(st.integers(1, num_tokens - 1), max_size=3)) if num_tokens > 1 else set()
    ends = [0, *sorted(cuts), num_tokens]
    lengths = [end - start for start, end in pairwise(ends)]
    used = draw(st.lists(st.integers(0, sum(lengths) - 1), min_size=1, max_size=20))
    anchors = sorted(used) + [0] * draw(st.integers(0, 6))
    block_size = draw(st.sampled_from([1, 3, 8, 10, 16, 128, 200]))
    window = draw(st.one_of(st.none(), st.integers(1, 700), st.sampled_from([127, 128, 129, 256])))
    return anchors, document_ids(lengths, num_context).tolist(), block_size, window


@pytest.mark.parametrize("analytic", [False, True])
@given(layout=layouts())
@settings(max_examples=60, deadline=None)
def test_every_pair_is_as_the_rule_says(layout: Layout, analytic: bool) -> None:
    mask = build(mask_request(*layout), analytic=analytic)

    assert slow_mask(*layout) == seen_pairs(mask)


LAYOUT: Layout = ([3, 5, 12, 15], [0] * 8 + [1] * 10 + [-1] * 2, 3, 4)


@pytest.mark.parametrize("analytic", [False, True])
def test_padding_is_visible_to_nobody_and_every_query_sees_its_own_block(analytic: bool) -> None:
    request = mask_request([0, 0, 2], [0] * 4 + [-1] * 4, 2, None)

    seen = torch.tensor(seen_pairs(build(request, analytic=analytic)))

    assert not seen[:, 4:8].any()
    assert seen[:, 8:].sum(dim=1).tolist() == [2] * 6
    # An unused slot stands at position 0: before it lies nothing.
    assert not seen[:4, :8].any()


@pytest.mark.parametrize("analytic", [False, True])
def test_one_mask_serves_all_heads(analytic: bool) -> None:
    mask = build(mask_request(*LAYOUT), analytic=analytic)
    blocks = build_blocks(mask_request(*LAYOUT), analytic=analytic)

    assert (torch.float32, (1, 1, 12, 32)) == (mask.dtype, tuple(mask.shape))
    assert (1, 1, 12, 32) == tuple(blocks.shape)


def counted(counts: Tensor | None, indices: Tensor | None) -> list[list[int]]:
    """The blocks that a table names, row by row, as they stand there."""
    assert counts is not None
    assert indices is not None
    assert (torch.int32, torch.int32) == (counts.dtype, indices.dtype)
    assert counts.is_contiguous()
    assert indices.is_contiguous()
    return [row[:number] for number, row in zip(counts.flatten().tolist(), indices.flatten(0, 2).tolist(), strict=True)]


def kept_blocks(mask: BlockMask) -> list[list[list[int]]]:
    """Partial and full blocks of each query block, then of each key block."""
    return [
        counted(mask.kv_num_blocks, mask.kv_indices),
        counted(mask.full_kv_num_blocks, mask.full_kv_indices),
        counted(mask.q_num_blocks, mask.q_indices),
        counted(mask.full_q_num_blocks, mask.full_q_indices),
    ]


@given(layout=block_layouts())
@settings(max_examples=60, deadline=None)
def test_block_tables_from_intervals_are_those_that_torch_finds_by_looking(layout: Layout) -> None:
    request = mask_request(*layout)

    ours, theirs = build_blocks(request, analytic=True), build_blocks(request, analytic=False)

    # In the same order too: blocks in ascending order are read in the order of memory.
    assert kept_blocks(theirs) == kept_blocks(ours)
    assert (theirs.shape, theirs.BLOCK_SIZE) == (ours.shape, ours.BLOCK_SIZE)


def test_unsorted_anchors_cost_blocks_but_not_correctness() -> None:
    generator = torch.Generator().manual_seed(0)
    anchors = torch.randint(0, 640, (30,), generator=generator).tolist()
    request = mask_request(anchors, [0] * 300 + [1] * 340, 8, None)

    assert kept_blocks(build_blocks(request, analytic=False)) == kept_blocks(build_blocks(request, analytic=True))


@pytest.mark.parametrize("analytic", [False, True])
def test_inside_its_blocks_the_rule_decides(analytic: bool) -> None:
    layout: Layout = ([20, 130, 140], [0] * 100 + [1] * 150 + [-1] * 6, 8, 60)
    blocks = build_blocks(mask_request(*layout), analytic=analytic)
    num_queries, num_keys = blocks.shape[-2:]

    zero = torch.tensor(0)
    seen = blocks.mask_mod(zero, zero, torch.arange(num_queries)[:, None], torch.arange(num_keys))

    assert slow_mask(*layout) == seen.tolist()


@needs_compiler
# torch 2.13 uses deprecated parts of its own on the way to inductor.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("is_cuda", [False, True])
def test_compiled_ways_equal_the_eager_ones_and_compile_once_for_all_shapes(is_cuda: bool) -> None:
    # What an earlier test compiled would not be compiled here.
    torch.compiler.reset()
    before = list(compilations())
    factory = MaskFactory(is_cuda=is_cuda)

    for request in big_requests():
        expected = factory.build(request, compiled=False, analytic=False)
        for analytic in (False, True):
            assert same(expected, factory.build(request, compiled=True, analytic=analytic))

    functions = [block_occupancy_of, analytic_block_tables] if is_cuda else [additive_mask_of, interval_mask]
    new = [item for item in compilations() if all(item is not old for old in before)]
    assert [function.__name__ for function in functions] == [item.co_name for item in new]


def big_requests() -> list[MaskRequest]:
    requests = []
    for num_context, window in ((256, 64), (384, None), (640, 200), (1024, None)):
        generator = torch.Generator().manual_seed(num_context)
        lengths = [num_context // 3, num_context // 4, num_context // 3]
        anchors = torch.randperm(sum(lengths), generator=generator)[:48].sort().values
        requests.append(mask_request(anchors.tolist(), document_ids(lengths, num_context).tolist(), 8, window))
    return requests


def same(expected: Tensor | BlockMask, actual: Tensor | BlockMask) -> bool:
    if isinstance(expected, BlockMask):
        assert isinstance(actual, BlockMask)
        return kept_blocks(expected) == kept_blocks(actual)
    assert isinstance(actual, Tensor)
    return torch.equal(expected, actual)
