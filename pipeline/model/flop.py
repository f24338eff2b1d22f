"""
Floating-point operations that training needs, whatever a run computes besides: for model FLOP utilisation (MFU).

MFU as PaLM defines it (Chowdhery et al. 2022, arXiv:2204.02311, appendix B): operations of the model's matrix products,
forward and backward, over what the device could do in the time. Nothing that is computed again counts, no elementwise
work, no padding, no layer behind the last tap. A product of m × k and k × n counts 2 m k n; its backward pass
is two such products, or one where the weights are frozen or the input needs no gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.model.shape import DrafterShape


def layer_flop(widths: DrafterShape, *, num_queries: float, num_keys: float, num_pairs: float) -> float:
    """
    One layer, forward.

    Args:
        widths: Of the layer, a target's or a drafter's, whose MLP is gated.
        num_queries: Tokens that run through the layer.
        num_keys: Tokens that keys and values are made of.
        num_pairs: Of a query and a key that it sees, over the batch.
    """
    heads, kv_heads = widths.num_heads * widths.head_dim, widths.num_kv_heads * widths.head_dim
    through = 2.0 * num_queries * widths.hidden_size * (2 * heads + 3 * widths.intermediate_size)
    return through + 2.0 * num_keys * widths.hidden_size * 2 * kv_heads + 4.0 * num_pairs * heads


def target_flop(widths: DrafterShape, *, num_layers: int, lengths: Iterable[int]) -> float:
    """
    A target's forward pass over samples of these lengths, causal, through *num_layers* layers, without a head.

    Args:
        widths: Of its layers.
        num_layers: Up to the last tapped one.
        lengths: Tokens of each sample.
    """
    lengths = list(lengths)
    num_tokens, num_pairs = sum(lengths), sum(length * (length + 1) / 2 for length in lengths)
    return num_layers * layer_flop(widths, num_queries=num_tokens, num_keys=num_tokens, num_pairs=num_pairs)


def drafter_flop(
    shape: DrafterShape,
    *,
    vocab_size: int,
    block_size: int,
    num_context: float,
    num_blocks: float,
    pairs: Sequence[float],
) -> float:
    """
    Forward and backward pass of a drafter's step.

    The head is frozen, so it costs two products; `fc` too, as hidden states get no gradient. A block's first token is
    given, so the head scores the others.

    Args:
        shape: The drafter's.
        vocab_size: Rows of the head.
        block_size: Tokens of a block.
        num_context: Tokens of context, padding excluded.
        num_blocks: That are trained.
        pairs: Of a query and a key that it sees, for each layer.
    """
    num_slots = num_blocks * block_size
    layers = sum(
        layer_flop(shape, num_queries=num_slots, num_keys=num_slots + num_context, num_pairs=num_pairs)
        for num_pairs in pairs
    )
    fc = 2.0 * num_context * shape.num_taps * shape.hidden_size**2
    head = 2.0 * num_blocks * (block_size - 1) * shape.hidden_size * vocab_size
    return 3 * layers + 2 * fc + 2 * head


def block_pairs(contexts: Sequence[int], block_size: int, window: int | None) -> int:
    """
    Pairs of a query and a key that it sees: all of its block, and the context before the block.

    Args:
        contexts: Tokens of its document before each block.
        block_size: Tokens of a block.
        window: Of a sliding layer: a query at position p sees context from p − window + 1 on; None: all.
    """
    own = len(contexts) * block_size**2
    if window is None:
        return own + block_size * sum(contexts)
    reaches = [max(0, window - 1 - slot) for slot in range(block_size)]
    shortest, longest, all_reaches = reaches[-1], reaches[0], sum(reaches)
    seen = 0
    for context in contexts:
        if context <= shortest:
            seen += block_size * context
        elif context >= longest:
            seen += all_reaches
        else:
            seen += sum(min(context, reach) for reach in reaches)
    return own + seen
