"""When and what the first drafter saves."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn, optim

from flashprof.contracts.toggles import ToggleValues
from pipeline.checkpoint.folder import save_checkpoint
from pipeline.checkpoint.state import CheckpointState
from pipeline.config import TrainConfig
from pipeline.log_output import say
from pipeline.model.shape import DrafterShape


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What a checkpoint says of the models, so that it can be read without the target."""

    shape: DrafterShape
    layer_ids: tuple[int, ...]
    mask_token_id: int
    num_target_layers: int
    vocab_size: int
    max_positions: int

    @property
    def num_features(self) -> int:
        """Width of the joined hidden states."""
        return self.shape.num_taps * self.shape.hidden_size


class Saver:
    """Saves every so many steps and at the end; a run without a checkpoint folder saves nothing."""

    def __init__(self, config: TrainConfig, facts: ModelFacts, drafter: nn.Module, optimizer: optim.Optimizer) -> None:
        self.facts = facts
        self._config = config
        self._plan = config.checkpoints
        self._drafter = drafter
        self._optimizer = optimizer

    def is_due(self, num_steps: int, *, is_last: bool) -> bool:
        """Whether to save after *num_steps* steps, counted from the very first."""
        return self._plan is not None and (is_last or num_steps % self._plan.every == 0)

    def save(self, num_steps: int, num_tokens: int, toggles: ToggleValues) -> None:
        """Write one checkpoint and say so."""
        assert self._plan is not None
        config = self._config
        state = CheckpointState(
            step=num_steps,
            num_tokens=num_tokens,
            seed=config.seed,
            num_steps=config.num_steps,
            preset=config.preset,
            toggles=toggles,
            topology=str(config.topology),
            mask_token_id=self.facts.mask_token_id,
            layer_ids=self.facts.layer_ids,
            shape=self.facts.shape,
            num_target_layers=self.facts.num_target_layers,
            vocab_size=self.facts.vocab_size,
            max_positions=self.facts.max_positions,
        )
        names = [name for name, _ in self._drafter.named_parameters()]
        path = save_checkpoint(
            self._plan.folder, state, self._drafter.state_dict(), self._optimizer, names, keep=self._plan.keep
        )
        say(f"saved {path}")
