"""With drafts the text is the target's own, whatever is drafted; what each round yields is counted exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from pipeline.evaluate.drafting import CachedDrafter
from pipeline.evaluate.generate import Difference, Limits, first_difference, generate_greedily, generate_with_drafts
from pipeline.evaluate.taps import CachedTarget

VOCAB_SIZE = 64
PROMPT_T = torch.tensor([5, 9, 33, 12, 60, 7])
LONG = Limits(max_new_tokens=30)
FIXTURES = [HealthCheck.function_scoped_fixture]


class Oracle:
    """Knows the target's own text, and is wrong in the slots that it is told to be wrong in."""

    def __init__(self, text: Sequence[int], *, block_size: int, num_right: Callable[[int], int]) -> None:
        self.block_size = block_size
        self.hidden_TF: list[Tensor] = []
        self._text = text
        self._num_right = num_right
        self._round = 0

    def start(self, capacity: int) -> None:
        self.capacity = capacity
        self.hidden_TF = []
        self._round = 0

    def extend(self, hidden_TF: Tensor) -> None:
        self.hidden_TF.append(hidden_TF)

    def draft(self, anchor_1: Tensor) -> Tensor:
        position = sum(len(part_TF) for part_TF in self.hidden_TF) - len(PROMPT_T)
        padded = [*self._text, *[0] * self.block_size]

        assert padded[position] == int(anchor_1)
        drafted = padded[position + 1 : position + self.block_size]
        num_right = self._num_right(self._round)
        self._round += 1
        return torch.tensor(
            [token if slot < num_right else (token + 1) % VOCAB_SIZE for slot, token in enumerate(drafted)]
        )


@pytest.fixture
def own_text(target: CachedTarget) -> tuple[int, ...]:
    return generate_greedily(target, PROMPT_T, Limits(max_new_tokens=60)).tokens


@torch.no_grad()
def test_greedy_text_is_the_argmax_of_the_whole_text_before_it(target: CachedTarget) -> None:
    generation = generate_greedily(target, PROMPT_T, LONG)
    target.start()
    logits_TV = target.read(torch.cat([PROMPT_T, torch.tensor(generation.tokens)])).logits_TV

    assert generation.tokens == tuple(logits_TV.argmax(dim=-1)[len(PROMPT_T) - 1 : -1].tolist())
    assert LONG.max_new_tokens == len(generation.tokens)
    assert generation.seconds > 0


@settings(max_examples=12, deadline=None, suppress_health_check=FIXTURES)
@given(prompt=st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=12), length=st.integers(1, 24))
def test_an_untrained_drafter_changes_nothing(
    target: CachedTarget, drafting: CachedDrafter, prompt: list[int], length: int
) -> None:
    """Prompts are shorter and longer than the drafter's window of 5."""
    prompt_T = torch.tensor(prompt)
    limits = Limits(max_new_tokens=length)
    own = generate_greedily(target, prompt_T, limits)
    drafted = generate_with_drafts(target, drafting, prompt_T, limits)

    assert own.tokens == drafted.tokens
    assert length == 1 + sum(drafted.accepted_lengths)
    assert first_difference(target, prompt_T, own.tokens, drafted.tokens) is None


@pytest.mark.parametrize("block_size", [2, 4, 8])
def test_an_oracle_fills_every_block(target: CachedTarget, own_text: tuple[int, ...], block_size: int) -> None:
    oracle = Oracle(own_text, block_size=block_size, num_right=lambda _: block_size - 1)
    generation = generate_with_drafts(target, oracle, PROMPT_T, Limits(max_new_tokens=1 + 3 * block_size))

    assert own_text[: 1 + 3 * block_size] == generation.tokens
    assert (block_size,) * 3 == generation.accepted_lengths


@settings(max_examples=15, deadline=None, suppress_health_check=FIXTURES)
@given(num_right=st.lists(st.integers(0, 3), min_size=30, max_size=30), length=st.integers(1, 30))
def test_a_round_yields_its_right_prefix_and_one_more(
    target: CachedTarget, own_text: tuple[int, ...], num_right: list[int], length: int
) -> None:
    oracle = Oracle(own_text, block_size=4, num_right=num_right.__getitem__)
    generation = generate_with_drafts(target, oracle, PROMPT_T, Limits(max_new_tokens=length))
    expected = []
    while sum(expected) < length - 1:
        # Only the last round is cut.
        expected.append(min(num_right[len(expected)] + 1, length - 1 - sum(expected)))

    assert own_text[:length] == generation.tokens
    assert tuple(expected) == generation.accepted_lengths


def test_the_drafter_gets_the_hidden_states_of_accepted_tokens_only(
    target: CachedTarget, own_text: tuple[int, ...]
) -> None:
    num_right = [0, 3, 1, 2, 0, 3, 3]
    oracle = Oracle(own_text, block_size=4, num_right=num_right.__getitem__)
    generate_with_drafts(target, oracle, PROMPT_T, Limits(max_new_tokens=18))
    seen_TF = torch.cat(oracle.hidden_TF)
    target.start()
    with torch.no_grad():
        whole_TF = target.read(torch.cat([PROMPT_T, torch.tensor(own_text)])).hidden_TF

    assert [len(PROMPT_T), 1, 4, 2, 3, 1, 4] == [len(part_TF) for part_TF in oracle.hidden_TF]
    torch.testing.assert_close(seen_TF, whole_TF[: len(seen_TF)], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("stop_at", [0, 1, 2, 5, 6, 11])
@pytest.mark.parametrize("num_right", [0, 2, 3])
def test_a_stop_token_ends_the_text_also_inside_an_accepted_block(
    target: CachedTarget, own_text: tuple[int, ...], stop_at: int, num_right: int
) -> None:
    stop_id = own_text[stop_at]
    end = own_text.index(stop_id) + 1
    limits = Limits(max_new_tokens=40, stop_ids=frozenset({stop_id, 9999}))
    oracle = Oracle(own_text, block_size=4, num_right=lambda _: num_right)
    own = generate_greedily(target, PROMPT_T, limits)
    drafted = generate_with_drafts(target, oracle, PROMPT_T, limits)

    assert own_text[:end] == own.tokens
    assert own.tokens == drafted.tokens
    assert end == 1 + sum(drafted.accepted_lengths)


def test_a_difference_carries_its_place_and_how_near_the_target_was(
    target: CachedTarget, own_text: tuple[int, ...]
) -> None:
    own = own_text[:10]
    target.start()
    with torch.no_grad():
        text_T = torch.cat([PROMPT_T, torch.tensor(own[:4])])
        ranked = target.read(text_T).logits_TV[-1].sort(descending=True)
    second, last = int(ranked.indices[1]), int(ranked.indices[-1])
    near = first_difference(target, PROMPT_T, own, (*own[:4], second, *own[5:]))
    far = first_difference(target, PROMPT_T, own, (*own[:4], last, *own[5:]))

    assert near is not None
    assert far is not None
    gap = float(ranked.values[0] - ranked.values[1])
    assert [4, 4] == [near.position, far.position]
    assert pytest.approx([gap, gap], abs=1e-4) == [near.top2_gap, far.top2_gap]
    assert pytest.approx(gap, abs=1e-4) == near.said_gap
    assert pytest.approx(float(ranked.values[0] - ranked.values[-1]), abs=1e-4) == far.said_gap
    assert near.is_tie(gap + 0.01)
    assert not far.is_tie(gap + 0.01)


def test_a_text_that_ends_early_is_never_a_tie(target: CachedTarget, own_text: tuple[int, ...]) -> None:
    difference = first_difference(target, PROMPT_T, own_text[:9], own_text[:7])

    assert difference is not None
    assert 7 == difference.position
    assert not difference.is_tie(1e9)
    assert isinstance(difference, Difference)
