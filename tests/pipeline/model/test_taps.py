"""The target's taps, how its rows are packed, and where it stops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.model.taps import TappedTarget, pack

LAYER_IDS = (1, 3)
NUM_LAYERS = 6
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 48,
    "vocab_size": 64,
    "max_position_embeddings": 64,
}


def make_model(architecture: str, **options: Any) -> Any:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{architecture}Config")(**SHAPE, **options)
    return getattr(transformers, f"{architecture}ForCausalLM")(config).eval()


@pytest.fixture(scope="module")
def model() -> Any:
    return make_model("Qwen3")


@pytest.fixture(scope="module")
def target(model: Any) -> TappedTarget:
    return TappedTarget(model, LAYER_IDS)


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(1, 64, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("early_exit", [False, True])
def test_a_tap_is_transformers_hidden_state_one_further(model: Any, target: TappedTarget, early_exit: bool) -> None:
    input_ids_BS = tokens(2, 12)
    with torch.no_grad():
        reference = model(input_ids=input_ids_BS, output_hidden_states=True).hidden_states

    states = target.forward(input_ids_BS, early_exit=early_exit)

    assert len(LAYER_IDS) == len(states)
    for layer_id, state_BSD in zip(LAYER_IDS, states, strict=True):
        torch.testing.assert_close(state_BSD, reference[layer_id + 1])


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("Qwen3", {}),
        ("Qwen3", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}),
        ("Llama", {"tie_word_embeddings": True}),
    ],
    ids=["Qwen3", "sliding Qwen3", "Llama"],
)
def test_early_exit_runs_no_layer_behind_the_last_tap_and_taps_the_same_bits(
    architecture: str, options: dict[str, Any]
) -> None:
    model = make_model(architecture, **options)
    target = TappedTarget(model, LAYER_IDS)
    calls: list[int] = []
    for index, layer in enumerate(model.model.layers):
        layer.register_forward_hook(lambda *call, index=index: calls.append(index))

    whole = target.forward(tokens(2, 12), early_exit=False)
    called_whole = calls.copy()
    calls.clear()
    early = target.forward(tokens(2, 12), early_exit=True)

    assert list(range(NUM_LAYERS)) == called_whole
    assert [0, 1, 2, 3] == calls
    assert all(torch.equal(one, other) for one, other in zip(whole, early, strict=True))


def test_the_model_is_whole_after_an_early_exit_even_one_that_failed(model: Any, target: TappedTarget) -> None:
    before = model(input_ids=tokens(1, 5)).logits

    target.forward(tokens(1, 5), early_exit=True)
    with pytest.raises(IndexError):
        target.forward(torch.full((1, 5), 1000), early_exit=True)

    assert NUM_LAYERS == len(model.model.layers)
    assert torch.equal(before, model(input_ids=tokens(1, 5)).logits)


def test_padding_on_the_right_changes_nothing_for_real_tokens(target: TappedTarget) -> None:
    short = tokens(1, 9)
    padded = torch.zeros(1, 20, dtype=torch.int64)
    padded[:, :9] = short

    alone, among = target.forward(short, early_exit=False), target.forward(padded, early_exit=False)

    for state, padded_state in zip(alone, among, strict=True):
        torch.testing.assert_close(padded_state[:, :9], state, atol=1e-5, rtol=1e-5)


def test_taps_keep_no_tensor_of_an_earlier_batch(target: TappedTarget) -> None:
    first = target.forward(tokens(1, 5), early_exit=True)
    second = target.forward(tokens(1, 7), early_exit=True)

    assert {(1, 5, 32)} == {tuple(state.shape) for state in first}
    assert {(1, 7, 32)} == {tuple(state.shape) for state in second}


def test_pack_drops_the_padding_and_joins_taps_position_by_position() -> None:
    # Three samples of at most four tokens, 3, 1 and 2 of them real.
    states = [torch.arange(12.0).view(3, 4, 1), torch.arange(100.0, 112.0).view(3, 4, 1)]
    kept = [0, 1, 2, 4, 8, 9]

    hidden_TF = pack(states, torch.tensor(kept), 8)

    assert [[at, 100.0 + at] for at in kept] + [[0.0, 0.0]] * 2 == hidden_TF.tolist()
