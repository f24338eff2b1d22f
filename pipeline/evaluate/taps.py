"""
The target, read a piece at a time: keys and values kept between pieces, tapped hidden states from the same pass.

Not `pipeline.model.target.TappedTarget`, which computes no logits and keeps nothing; and these hooks are taken off
again, since an evaluation between two stretches of training borrows the model.

Shapes: T tokens of a piece, V vocabulary, D hidden size, F tapped layers × D.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class TargetPass:
    """What one pass over T tokens gives."""

    logits_TV: Tensor
    states_TD: tuple[Tensor, ...]
    """Outputs of the tapped layers, in layer order."""

    @property
    def hidden_TF(self) -> Tensor:
        """The taps side by side, as the drafter takes them."""
        return torch.cat(self.states_TD, dim=-1)


@contextmanager
def tapped_states(model: Any, layer_ids: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """While entered, every pass of *model* leaves each tapped layer's output `[batch, length, D]` in the mapping."""
    states: dict[int, Tensor] = {}

    def keeper(layer_id: int) -> Any:
        def hook(_module: Any, _arguments: Any, output: Any) -> None:
            states[layer_id] = output[0] if isinstance(output, tuple) else output

        return hook

    handles = [model.model.layers[layer_id].register_forward_hook(keeper(layer_id)) for layer_id in layer_ids]
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()


class CachedTarget:
    """A causal LM of transformers on one sequence; made by `cached_target`."""

    def __init__(self, model: Any, layer_ids: Sequence[int], states: dict[int, Tensor]) -> None:
        self._model = model
        self._layer_ids = tuple(layer_ids)
        self._states = states
        # Transformers 5.24 has renamed the argument, and warns of the old name.
        takes = inspect.signature(model.forward).parameters
        self._cache_argument = "cache" if "cache" in takes else "past_key_values"
        self._cache: Any = None
        self._num_cached = 0

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        device: torch.device = self._model.device
        return device

    def start(self) -> None:
        """Forget everything: a new sequence begins."""
        from transformers import DynamicCache

        # Without a config every layer keeps all keys, also those of a target's sliding layers: only then can it be cut.
        self._cache = DynamicCache()
        self._num_cached = 0

    def read(self, ids_T: Tensor, *, last_only: bool = False) -> TargetPass:
        """
        Run the next tokens of the sequence.

        Args:
            ids_T: int64, on the model's device.
            last_only: Compute logits of the last token alone: a prompt needs no others.
        """
        out = self._model(
            input_ids=ids_T[None],
            use_cache=True,
            logits_to_keep=1 if last_only else 0,
            **{self._cache_argument: self._cache},
        )
        self._num_cached += ids_T.numel()
        states_TD = tuple(self._states.pop(layer_id)[0] for layer_id in self._layer_ids)
        return TargetPass(logits_TV=out.logits[0], states_TD=states_TD)

    def keep(self, num_tokens: int) -> None:
        """Forget all but the first *num_tokens* of the sequence."""
        num_surplus = self._num_cached - num_tokens
        # Transformers 5.17 takes 0 for "keep none", 5.24 for "remove none"; both take −n for "remove n".
        if num_surplus:
            self._cache.crop(-num_surplus)
        self._num_cached = num_tokens


@contextmanager
def cached_target(model: Any, layer_ids: Sequence[int]) -> Iterator[CachedTarget]:
    """*model* with taps on *layer_ids*, until left."""
    with tapped_states(model, layer_ids) as states:
        yield CachedTarget(model, layer_ids, states)


def stop_ids(model: Any) -> frozenset[int]:
    """The tokens that end the model's text, as its generation config says; empty where it says none."""
    config = getattr(model, "generation_config", None)
    eos = getattr(config, "eos_token_id", None)
    return frozenset() if eos is None else frozenset([eos] if isinstance(eos, int) else eos)
