"""The mask against the docstring's rules as plain loops, eager, compiled and as blocks."""

from __future__ import annotations

import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from pipeline.model.anchors import document_ids
from pipeline.model.mask import (
    CompiledMaskBuilder,
    MaskTables,
    _block_occupancy,
    _ordered_block_mask,
    additive_mask,
    block_mask,
    mask_tables,
)

needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler; try: apt-get install g++"
)


def slow_mask(
    anchors: list[int], documents: list[int], block_size: int, window: int | None, *, mutant: str = ""
) -> list[list[bool]]:
    """The rule, pair by pair; *mutant* names a mistake that others shipped."""
    rows = []
    for block, anchor in enumerate(anchors):
        for slot in range(block_size):
            row = []
            for key, document in enumerate(documents):
                seen = key <= anchor if mutant == "not strict" else key < anchor
                if mutant != "mixes documents":
                    seen = seen and document == documents[anchor]
                if window is not None:
                    seen = seen and key > (anchor if mutant == "block-uniform window" else anchor + slot) - window
                row.append(seen)
            for other in range(len(anchors)):
                for other_slot in range(block_size):
                    own = other == block and (mutant != "causal in the block" or other_slot <= slot)
                    earlier = mutant == "sees earlier blocks" and anchors[other] < anchor
                    row.append(own or earlier)
            rows.append(row)
    return rows


def tables(anchors: list[int], documents: list[int], block_size: int, window: int | None) -> MaskTables:
    return mask_tables(torch.tensor(anchors), torch.tensor(documents), block_size=block_size, window=window)


def visible(mask: Tensor) -> list[list[bool]]:
    assert {0.0, float("-inf")} >= set(mask.unique().tolist())
    found: list[list[bool]] = (mask[0, 0] == 0).tolist()
    return found


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[int], list[int], int, int | None]:
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    padded = sum(lengths) + draw(st.integers(0, 6))
    documents = document_ids(lengths, padded).tolist()
    anchors = sorted(draw(st.lists(st.integers(0, sum(lengths) - 1), min_size=1, max_size=5)))
    return anchors, documents, draw(st.integers(1, 4)), draw(st.one_of(st.none(), st.integers(1, 15)))


@given(layouts())
@settings(max_examples=60, deadline=None)
def test_additive_mask_is_the_rule(layout: tuple[list[int], list[int], int, int | None]) -> None:
    mask = additive_mask(tables(*layout))

    assert slow_mask(*layout) == visible(mask)


LAYOUT = ([3, 5, 12, 15], [0] * 8 + [1] * 10 + [-1] * 2, 3, 4)


@pytest.mark.parametrize(
    "mutant",
    ["not strict", "mixes documents", "block-uniform window", "causal in the block", "sees earlier blocks"],
)
def test_each_known_mistake_would_differ(mutant: str) -> None:
    layout = (*LAYOUT[:3], 100) if mutant == "mixes documents" else LAYOUT
    mask = additive_mask(tables(*layout))

    assert slow_mask(*layout) == visible(mask)
    assert slow_mask(*layout, mutant=mutant) != visible(mask)


def test_padding_is_visible_to_nobody_and_every_query_sees_its_own_block() -> None:
    documents = [0] * 4 + [-1] * 4
    seen = torch.tensor(visible(additive_mask(tables([0, 0, 2], documents, 2, None))))

    assert not seen[:, 4:8].any()
    assert seen[:, 8:].sum(dim=1).tolist() == [2] * 6
    # An unused slot stands at position 0: before it lies nothing.
    assert not seen[:4, :8].any()


def test_one_mask_serves_all_heads() -> None:
    mask = additive_mask(tables(*LAYOUT))

    assert (1, 1, 12, 32) == tuple(mask.shape)


def big_layout(num_context: int, window: int | None, num_anchors: int = 48) -> MaskTables:
    generator = torch.Generator().manual_seed(num_context)
    lengths = [num_context // 3, num_context // 4, num_context // 3]
    anchors = torch.randperm(sum(lengths), generator=generator)[:num_anchors].sort().values
    return mask_tables(anchors, document_ids(lengths, num_context), block_size=8, window=window)


@pytest.mark.parametrize("window", [None, 200])
@pytest.mark.parametrize("num_context", [384, 1024])
def test_ordered_block_mask_is_torchs_block_mask(num_context: int, window: int | None) -> None:
    layout = big_layout(num_context, window)
    partial, full = _block_occupancy(*layout.arguments())

    ours, theirs = _ordered_block_mask(partial, full, layout), block_mask(layout)

    assert theirs.shape == ours.shape
    assert kept_blocks(theirs) == kept_blocks(ours)
    assert torch.equal(theirs.to_dense(), ours.to_dense())
    # Blocks in ascending order are read in the order of memory.
    assert kept_blocks(ours, in_order=True) == kept_blocks(ours)


def test_block_mask_holds_no_visible_pair_outside_its_blocks() -> None:
    layout = big_layout(512, None)
    seen_QK = additive_mask(layout)[0, 0] == 0
    dense = block_mask(layout).to_dense()[0, 0].bool()
    rows, columns = dense.shape
    seen_QK = torch.nn.functional.pad(seen_QK, (0, columns * 128 - seen_QK.shape[1], 0, rows * 128 - seen_QK.shape[0]))

    needed = seen_QK.view(rows, 128, columns, 128).any(dim=3).any(dim=1)

    assert torch.equal(needed, dense)


def kept_blocks(mask: BlockMask, *, in_order: bool = False) -> list[list[int]]:
    """Each row's partial blocks, then its full ones."""
    kept = []
    for counts, indices in ((mask.kv_num_blocks, mask.kv_indices), (mask.full_kv_num_blocks, mask.full_kv_indices)):
        assert counts is not None
        assert indices is not None
        for number, row in zip(counts.flatten().tolist(), indices.flatten(0, 2).tolist(), strict=True):
            kept.append(sorted(row[:number]) if in_order else row[:number])
    return kept


@needs_compiler
# torch 2.13 uses deprecated parts of its own on the way to inductor.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_builder_equals_eager_and_compiles_once_for_all_shapes() -> None:
    compiles: list[tuple[str, float]] = []
    build = CompiledMaskBuilder(is_cuda=False, on_compile=lambda what, seconds: compiles.append((what, seconds)))

    for num_context, window in ((256, 64), (384, None), (640, 200), (1024, None)):
        layout = big_layout(num_context, window)
        assert torch.equal(additive_mask(layout), build(layout))

    assert ["mask builder"] == [what for what, _ in compiles]
    assert compiles[0][1] > 0
