"""
Bugs that other DFlash trainers shipped: each has a check here that ours passes and the buggy rule fails.

Numbers are those of the list that this project keeps (issue 3); the ones that are missing are not about the model:
5 is in test_loss.py (`partial losses`) and train/test_step.py (`accumulated rows`), 6 in train/test_lockstep.py, 8 in
data/test_vocabulary.py, 12 in evaluate/test_heldout.py.

     1  context by block index leaks later hidden states         https://github.com/sgl-project/SpecForge/issues/470
     2  `kv <= anchor`; labels and decay shifted by one          https://github.com/sgl-project/SpecForge/issues/473
     3  causal inside the block                                  https://github.com/sgl-project/SpecForge/pull/427
        uniform blocks instead of random anchors                 https://github.com/sgl-project/SpecForge/pull/463
     4  a mask for every head                                    https://github.com/sgl-project/SpecForge/issues/452
        an anchor out of bounds                                  https://github.com/sgl-project/SpecForge/issues/501
     7  captured layers off by one                               https://github.com/vllm-project/vllm/issues/42704
     9  rotary frequencies rounded to bfloat16                   https://github.com/NVIDIA-NeMo/Automodel/pull/2819
    10  anchors and documents in a packed row                    https://github.com/vllm-project/speculators/issues/1071
    11  unsorted anchors destroy block sparsity                  https://github.com/vllm-project/speculators/pull/823
    13  causal where a layer slides                              https://github.com/NVIDIA/TensorRT-LLM/issues/16914
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from drafter_rules import mask_request, seen_pairs, slow_loss, slow_mask, slow_valid
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from pipeline.model.anchors import Anchors, document_ids, sample_anchors, valid_anchors
from pipeline.model.drafter import Rotary
from pipeline.model.fused_loss import fused_dflash_loss
from pipeline.model.loss import block_targets, dflash_loss
from pipeline.model.mask_rule import mask_rule, mask_tables
from pipeline.model.masks import MaskFactory
from pipeline.model.taps import TappedTarget

# A packed row of two documents and padding; blocks of the first overlap.
ANCHORS, DOCUMENTS, BLOCK = [3, 5, 12, 15], [0] * 8 + [1] * 10 + [-1] * 2, 3
NUM_CONTEXT = len(DOCUMENTS)
SLIDES = {"full": None, "sliding": 4}

Seen = list[list[bool]]


def block_seen(seen: Seen, query: int) -> list[int]:
    """Numbers of the block tokens that a query sees."""
    return [key for key, is_seen in enumerate(seen[query][NUM_CONTEXT:]) if is_seen]


def sees_no_other_block(seen: Seen) -> bool:
    return all(key // BLOCK == query // BLOCK for query in range(len(seen)) for key in block_seen(seen, query))


def sees_all_of_its_block(seen: Seen) -> bool:
    own = [list(range(query - query % BLOCK, query - query % BLOCK + BLOCK)) for query in range(len(seen))]
    return all(set(own[query]) <= set(block_seen(seen, query)) for query in range(len(seen)))


def sees_nothing_from_its_anchor_on(seen: Seen) -> bool:
    return not any(any(row[ANCHORS[query // BLOCK] : NUM_CONTEXT]) for query, row in enumerate(seen))


def sees_its_own_document_only(seen: Seen) -> bool:
    return all(
        DOCUMENTS[key] == DOCUMENTS[ANCHORS[query // BLOCK]]
        for query, row in enumerate(seen)
        for key in range(NUM_CONTEXT)
        if row[key]
    )


def looks_back_from_its_own_position(seen: Seen) -> bool:
    """The window of a sliding layer moves with the slot."""
    return [sum(seen[9 + slot][:NUM_CONTEXT]) for slot in range(BLOCK)] == [3, 2, 1]


MASK_BUGS = [
    (1, "sees earlier blocks", "full", sees_no_other_block),
    (1, "context by block index", "full", sees_nothing_from_its_anchor_on),
    (2, "not strict", "full", sees_nothing_from_its_anchor_on),
    (3, "causal in the block", "full", sees_all_of_its_block),
    (10, "mixes documents", "full", sees_its_own_document_only),
    (13, "causal where it slides", "sliding", sees_all_of_its_block),
    (13, "block-uniform window", "sliding", looks_back_from_its_own_position),
]


@pytest.mark.parametrize("analytic", [False, True], ids=["evaluated", "analytic"])
@pytest.mark.parametrize(
    ("mutant", "kind", "check"), [bug[1:] for bug in MASK_BUGS], ids=[f"{bug[0]} {bug[1]}" for bug in MASK_BUGS]
)
def test_what_a_query_sees(mutant: str, kind: str, check: Callable[[Seen], bool], analytic: bool) -> None:
    layout = (ANCHORS, DOCUMENTS, BLOCK, SLIDES[kind])
    mask = MaskFactory(is_cuda=False).build(mask_request(*layout), compiled=False, analytic=analytic)
    assert isinstance(mask, Tensor)

    assert check(seen_pairs(mask))
    assert not check(slow_mask(*layout, mutant=mutant))


@pytest.mark.parametrize("loss", [dflash_loss, fused_dflash_loss])
@pytest.mark.parametrize("mutant", ["labels shifted", "decay shifted", "slot 0 supervised"])
def test_2_slot_k_predicts_the_token_at_anchor_plus_k_and_decay_starts_at_one(mutant: str, loss: Any) -> None:
    generator = torch.Generator().manual_seed(3)
    ids_T, supervised_T = torch.randint(0, 50, (20,), generator=generator), torch.rand(20, generator=generator) < 0.7
    head_VD, final_QD = (torch.randn(num, 8, generator=generator) for num in (50, 3 * 4))
    anchors = Anchors(torch.tensor([1, 6, 16]), torch.tensor([True] * 3))
    row, blocks = (ids_T.tolist(), supervised_T.tolist()), [(1, True), (6, True), (16, True)]

    targets = block_targets(ids_T, supervised_T, anchors, block_size=4, gamma=2.5)
    # One weight for both: a shifted decay only scales all weights, so it would not show in the mean.
    ours = float(loss(final_QD, head_VD, targets, block_size=4, total_weight=torch.tensor(1.0)).loss)

    assert slow_loss(final_QD @ head_VD.T, row, blocks)[0] == pytest.approx(ours, rel=1e-5)
    assert slow_loss(final_QD @ head_VD.T, row, blocks, mutant=mutant)[0] != pytest.approx(ours, rel=1e-3)


Sampler = Callable[[Tensor, int, torch.Generator], Anchors]


def uniform_blocks(valid_T: Tensor, num_anchors: int, generator: torch.Generator) -> Anchors:
    """Every block starts where the last one ended, as a text is cut for training a diffusion model."""
    position_A = torch.arange(0, valid_T.numel(), 4)[:num_anchors]
    return Anchors(position_A, valid_T[position_A])


def padded_behind_the_end(valid_T: Tensor, num_anchors: int, generator: torch.Generator) -> Anchors:
    made = sample_anchors(valid_T, num_anchors, generator)
    return Anchors(made.position_A.where(made.used_A, valid_T.numel()), made.used_A)


def unsorted(valid_T: Tensor, num_anchors: int, generator: torch.Generator) -> Anchors:
    made = sample_anchors(valid_T, num_anchors, generator)
    return Anchors(made.position_A[torch.randperm(num_anchors, generator=generator)], made.used_A)


def quota_a_document(valid_T: Tensor, num_anchors: int, generator: torch.Generator) -> Anchors:
    """As many anchors in a short document as in a long one; what a short one cannot use is lost."""
    halves = [sample_anchors(half_T, num_anchors // 2, generator) for half_T in (valid_T[:10], valid_T[10:])]
    return Anchors(
        torch.cat([halves[0].position_A, halves[1].position_A + 10]), torch.cat([half.used_A for half in halves])
    )


def draws_every_valid_position(sample: Sampler) -> bool:
    valid_T, generator = torch.ones(12, dtype=torch.bool), torch.Generator().manual_seed(0)
    drawn = {int(at) for _ in range(100) for at in sample(valid_T, 2, generator).position_A}
    return drawn == set(range(12))


def stays_in_the_row(sample: Sampler) -> bool:
    anchors = sample(torch.tensor([True] * 3 + [False] * 17), 6, torch.Generator().manual_seed(0))
    try:
        mask_tables(anchors.position_A, torch.tensor(DOCUMENTS), block_size=BLOCK, window=None)
    except IndexError:
        return False
    return True


def needs_few_blocks(sample: Sampler) -> bool:
    """One document of 4,096 tokens: eight blocks of 128 queries, whose anchors end 512 tokens apart if sorted."""
    anchors = sample(torch.ones(4096, dtype=torch.bool), 64, torch.Generator().manual_seed(0))
    request = mask_request(anchors.position_A.tolist(), [0] * 4096, 16, None)
    mask = MaskFactory(is_cuda=True).build(request, compiled=False, analytic=True)
    assert isinstance(mask, BlockMask)
    assert mask.full_kv_num_blocks is not None
    # Half of 8 × 32 context blocks and the eight own ones; unsorted, nearly every query block reads all of the row.
    return int(mask.kv_num_blocks.sum() + mask.full_kv_num_blocks.sum()) < 180


def uses_as_many_slots_as_there_are_positions(sample: Sampler) -> bool:
    """A document of four tokens with one valid position, and a long one."""
    valid_T = torch.tensor([True] + [False] * 9 + [True] * 30)
    return int(sample(valid_T, 16, torch.Generator().manual_seed(0)).used_A.sum()) == 16


ANCHOR_BUGS = [
    (3, uniform_blocks, draws_every_valid_position),
    (4, padded_behind_the_end, stays_in_the_row),
    (10, quota_a_document, uses_as_many_slots_as_there_are_positions),
    (11, unsorted, needs_few_blocks),
]


@pytest.mark.parametrize(
    ("buggy", "check"), [bug[1:] for bug in ANCHOR_BUGS], ids=[f"{bug[0]} {bug[1].__name__}" for bug in ANCHOR_BUGS]
)
def test_which_anchors_are_drawn(buggy: Sampler, check: Callable[[Sampler], bool]) -> None:
    assert check(sample_anchors)
    assert not check(buggy)


def test_4_one_mask_serves_all_heads() -> None:
    def needs_one_table(mask: BlockMask) -> bool:
        return mask.kv_indices.shape[:2] == (1, 1)

    request = mask_request(ANCHORS, DOCUMENTS, BLOCK, None)
    tables = mask_tables(request.anchor_A, request.document_T, block_size=BLOCK, window=None)
    ours = [MaskFactory(is_cuda=True).build(request, compiled=False, analytic=analytic) for analytic in (False, True)]
    buggy = create_block_mask(mask_rule(tables), 1, 8, *ours[0].shape[-2:], device="cpu")

    assert all(needs_one_table(mask) for mask in ours if isinstance(mask, BlockMask))
    assert not needs_one_table(buggy)


def test_7_a_tap_is_the_output_of_its_layer_not_its_input() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 64}
    model = LlamaForCausalLM(LlamaConfig(**shape, num_hidden_layers=5)).eval()
    input_ids_BS = torch.arange(12)[None]
    with torch.no_grad():
        reference = model(input_ids=input_ids_BS, output_hidden_states=True).hidden_states

    def is_output_of_layer_3(layer_id: int) -> bool:
        (state_BSD,) = TappedTarget(model, [layer_id]).forward(input_ids_BS, early_exit=True)
        return torch.allclose(state_BSD, reference[3 + 1])

    assert is_output_of_layer_3(3)
    assert not is_output_of_layer_3(3 - 1)


def test_9_rotary_frequencies_are_float32_whatever_type_the_model_has() -> None:
    def rounded(position_K: Tensor) -> Tensor:
        frequency_E = (1e6 ** (-torch.arange(0, 16, 2) / 16)).to(torch.bfloat16).float()
        return (position_K[:, None] * frequency_E).cos().repeat(1, 2)[:, None]

    def is_exact(cosines: Callable[[Tensor], Tensor]) -> bool:
        # Rounded frequencies are off by up to 0.4 %: 12 radians at position 3,000.
        exact_E = torch.cos(3000 * 1e6 ** (-torch.arange(0, 16, 2).double() / 16)).repeat(2)
        return torch.allclose(cosines(torch.tensor([3000]))[0, 0].double(), exact_E, atol=1e-3, rtol=0)

    assert is_exact(lambda position_K: Rotary(16, 1e6).to(torch.bfloat16)(position_K)[0])
    assert not is_exact(rounded)


def test_10_no_block_leaves_its_document() -> None:
    lengths, supervised = [6, 6], [True] * 12

    def stays_in_its_document(starts: list[int]) -> bool:
        return all(start // 6 == (start + 4 - 1) // 6 for start in starts)

    valid_T = valid_anchors(document_ids(lengths, 12), torch.tensor(supervised), 4)

    assert [0, 1, 2, 6, 7, 8] == torch.nonzero(valid_T).squeeze(1).tolist()
    assert stays_in_its_document(torch.nonzero(valid_T).squeeze(1).tolist())
    assert not stays_in_its_document(slow_valid(lengths, supervised, 4, mutant="mixes documents"))
