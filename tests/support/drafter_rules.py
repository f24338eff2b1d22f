"""The rules of a drafter step as plain loops, each with the mistakes that others shipped as named mutants."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pipeline.model.mask_rule import MaskRequest


def slow_mask(
    anchors: list[int], documents: list[int], block_size: int, window: int | None, *, mutant: str = ""
) -> list[list[bool]]:
    """The attention rule, pair by pair; each list is a query's row: context, then block tokens."""
    return [
        [
            *(
                _sees_context(key, (anchor, slot), documents, window, mutant)
                # Context sorted by the blocks that it belongs to: blocks overlap, so an earlier one reaches behind.
                or (mutant == "context by block index" and any(key - at in range(block_size) for at in anchors[:block]))
                for key in range(len(documents))
            ),
            *(
                _sees_block_token((other, other_slot), (block, slot), mutant, slides=window is not None)
                for other in range(len(anchors))
                for other_slot in range(block_size)
            ),
        ]
        for block, anchor in enumerate(anchors)
        for slot in range(block_size)
    ]


def _sees_context(key: int, query: tuple[int, int], documents: list[int], window: int | None, mutant: str) -> bool:
    anchor, slot = query
    seen = key <= anchor if mutant == "not strict" else key < anchor
    if mutant != "mixes documents":
        seen = seen and documents[key] == documents[anchor]
    if window is not None:
        seen = seen and key > (anchor if mutant == "block-uniform window" else anchor + slot) - window
    return seen


def _sees_block_token(key: tuple[int, int], query: tuple[int, int], mutant: str, *, slides: bool) -> bool:
    is_causal = mutant == "causal in the block" or (mutant == "causal where it slides" and slides)
    own = key[0] == query[0] and not (is_causal and key[1] > query[1])
    return own or (mutant == "sees earlier blocks" and key[0] < query[0])


def slow_loss(
    logits_QV: Tensor, row: tuple[list[int], list[bool]], blocks: list[tuple[int, bool]], *, mutant: str = ""
) -> tuple[float, float]:
    """
    Weighted sum of the loss, and the weight, slot by slot, at γ = 2.5.

    Args:
        logits_QV: One row a slot of every block.
        row: Token ids, and which are supervised.
        blocks: Anchor of each block, and whether it is used.
        mutant: A mistake.
    """
    ids, supervised = row
    block_size = len(logits_QV) // len(blocks)
    total, weight = 0.0, 0.0
    for block, (anchor, used) in enumerate(blocks):
        for slot in range(0 if mutant == "slot 0 supervised" else 1, block_size):
            label_at = anchor + slot + (mutant == "labels shifted")
            if not used or label_at >= len(ids) or not supervised[anchor + slot]:
                continue
            decay = math.exp(-(slot - (mutant != "decay shifted")) / 2.5)
            logit_V = logits_QV[block * block_size + slot].double()
            total -= decay * float(torch.log_softmax(logit_V, dim=-1)[ids[label_at]])
            weight += decay
    return total, weight


def slow_valid(lengths: list[int], supervised: list[bool], block_size: int, *, mutant: str = "") -> list[int]:
    """Where a block may start."""
    found = []
    start = 0
    for length in [sum(lengths)] if mutant == "mixes documents" else lengths:
        found += [position for position in range(start, start + length - block_size + 1) if supervised[position + 1]]
        start += length
    return found


def mask_request(anchors: list[int], documents: list[int], block_size: int, window: int | None) -> MaskRequest:
    """The request of the same layout; a document's positions lie side by side."""
    positions = [index - documents.index(document) for index, document in enumerate(documents)]
    return MaskRequest(
        anchor_A=torch.tensor(anchors),
        document_T=torch.tensor(documents),
        position_T=torch.tensor(positions).where(torch.tensor(documents) >= 0, 0),
        block_size=block_size,
        window=window,
    )


def seen_pairs(mask: Tensor) -> list[list[bool]]:
    """What an additive mask lets through."""
    assert {0.0, float("-inf")} >= set(mask.unique().tolist())
    found: list[list[bool]] = (mask[0, 0] == 0).tolist()
    return found
