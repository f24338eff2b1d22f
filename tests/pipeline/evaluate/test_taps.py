"""Reading a text in pieces is reading it at once; the taps are those that training sees; hooks do not stay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.evaluate.taps import CachedTarget, cached_target, stop_ids

TEXT_T = torch.tensor([5, 9, 33, 12, 60, 7, 8, 21, 40, 3])


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@torch.no_grad()
def test_pieces_and_wrong_turns_taken_back_read_like_the_whole(target: CachedTarget, data: st.DataObject) -> None:
    target.start()
    whole = target.read(TEXT_T)
    target.start()
    logits, hidden = [], []
    num_read = 0
    while num_read < len(TEXT_T):
        num_new = data.draw(st.integers(1, len(TEXT_T) - num_read))
        num_wrong = data.draw(st.integers(0, 4))
        part = target.read(torch.cat([TEXT_T[num_read : num_read + num_new], torch.full((num_wrong,), 50)]))
        logits.append(part.logits_TV[:num_new])
        hidden.append(part.hidden_TF[:num_new])
        num_read += num_new
        target.keep(num_read)

    torch.testing.assert_close(torch.cat(logits), whole.logits_TV, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(torch.cat(hidden), whole.hidden_TF, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_taps_are_transformers_hidden_states_one_further(model: Any, target: CachedTarget) -> None:
    reference = model(input_ids=TEXT_T[None], output_hidden_states=True).hidden_states
    target.start()
    hidden_TF = target.read(TEXT_T).hidden_TF

    torch.testing.assert_close(torch.cat([reference[2][0], reference[4][0]], dim=-1), hidden_TF)


@torch.no_grad()
def test_a_prompt_needs_the_last_logits_alone(target: CachedTarget) -> None:
    target.start()
    all_logits_TV = target.read(TEXT_T).logits_TV
    target.start()
    last = target.read(TEXT_T, last_only=True)

    assert 1 == len(last.logits_TV)
    torch.testing.assert_close(all_logits_TV[-1], last.logits_TV[0])


def num_hooks(model: Any) -> list[int]:
    return [len(layer._forward_hooks) for layer in model.model.layers]


def test_hooks_are_taken_off_again_even_after_an_error(model: Any) -> None:
    # Transformers 5.24 leaves hooks of its own for ever, once it was asked for hidden states.
    before = num_hooks(model)
    with cached_target(model, (1, 3)):
        during = num_hooks(model)
    with pytest.raises(RuntimeError), cached_target(model, (1, 3)):
        raise RuntimeError

    assert [1, 1] == [during[layer] - before[layer] for layer in (1, 3)]
    assert before == num_hooks(model)


@pytest.mark.parametrize(("eos", "expected"), [(None, set()), (7, {7}), ([7, 0], {0, 7})])
def test_stop_tokens_are_those_of_the_generation_config(eos: Any, expected: set[int]) -> None:
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=eos))

    assert expected == stop_ids(model)
