"""One optimizer step: what it learns from, what the toggles may and may not change."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from flashprof.contracts.toggles import ToggleValues, parse_toggles
from flashprof.emit import connect
from pipeline.model.drafter import Drafter, DrafterShape
from pipeline.presets import TINY, Preset
from pipeline.toggles import REGISTRY
from pipeline.train.peers import Peers
from pipeline.train.step import (
    DrafterStep,
    FrozenTables,
    StepResult,
    learning_rate_share,
    make_optimizer,
    positions_in_document,
)
from pipeline.transport.messages import HiddenStates

NUM_STEPS = 5
VOCAB = 64
SHAPE = DrafterShape(
    hidden_size=32, num_heads=2, num_kv_heads=1, head_dim=32, intermediate_size=48, num_layers=2, num_taps=2
)


def preset() -> Preset:
    return replace(TINY, drafter=replace(TINY.drafter, num_anchors=32, sliding_window=16))


def item(step: int) -> HiddenStates:
    generator = torch.Generator().manual_seed(step)
    lengths = (70, 40)
    return HiddenStates(
        step=step,
        hidden_TF=torch.randn(128, SHAPE.num_taps * SHAPE.hidden_size, generator=generator),
        input_ids_T=torch.randint(3, VOCAB, (128,), generator=generator),
        loss_mask_T=torch.arange(128) < sum(lengths),
        lengths=lengths,
        num_padding_tokens=2,
    )


def trainer(drafter: Drafter, tmp_path: Path, device: str = "cpu") -> DrafterStep:
    generator = torch.Generator().manual_seed(9)
    return DrafterStep(
        drafter=drafter,
        frozen=FrozenTables(
            embedding_VD=torch.randn(VOCAB, SHAPE.hidden_size, generator=generator).to(device),
            head_VD=torch.randn(VOCAB, SHAPE.hidden_size, generator=generator).to(device),
            mask_token_id=2,
        ),
        preset=preset(),
        peers=Peers(rank=0, num_drafters=1, rendezvous=tmp_path / "store", device=torch.device(device)),
        emitter=connect("drafter"),
        optimizer=make_optimizer(drafter, preset(), 20),
    )


@pytest.fixture
def drafter() -> Drafter:
    torch.manual_seed(0)
    return Drafter(SHAPE)


def toggles(expression: str = "none") -> ToggleValues:
    return parse_toggles(expression, REGISTRY)


def train(drafter: Drafter, tmp_path: Path, expression: str = "none") -> list[StepResult]:
    step = trainer(drafter, tmp_path)
    return [step.run(item(at), toggles(expression), torch.Generator().manual_seed(at)) for at in range(NUM_STEPS)]


def losses(results: list[StepResult]) -> list[float]:
    return [float(result.scalars["loss"]) for result in results]


def test_the_same_steps_give_the_same_losses_bit_for_bit(drafter: Drafter, tmp_path: Path) -> None:
    first, second = copy.deepcopy(drafter), copy.deepcopy(drafter)

    assert losses(train(first, tmp_path)) == losses(train(second, tmp_path))


def test_clipping_on_the_device_changes_no_number_and_sliding_all_layers_does(drafter: Drafter, tmp_path: Path) -> None:
    base = losses(train(copy.deepcopy(drafter), tmp_path))

    assert base == losses(train(copy.deepcopy(drafter), tmp_path, "grad-norm"))
    assert base != losses(train(copy.deepcopy(drafter), tmp_path, "swa"))


def test_the_loss_of_rows_that_are_repeated_falls(drafter: Drafter, tmp_path: Path) -> None:
    step = trainer(drafter, tmp_path)

    trained = [step.run(item(0), toggles(), torch.Generator().manual_seed(0)) for _ in range(15)]

    assert losses(trained)[-1] < losses(trained)[0] - 0.2


def test_a_rehearsal_teaches_nothing(drafter: Drafter, tmp_path: Path) -> None:
    before = copy.deepcopy(drafter.state_dict())
    step = trainer(drafter, tmp_path)
    expected = losses(train(copy.deepcopy(drafter), tmp_path))

    step.rehearse(item(7), toggles())
    unchanged = all(torch.equal(before[name], weight) for name, weight in drafter.state_dict().items())
    rehearsed = [step.run(item(at), toggles(), torch.Generator().manual_seed(at)) for at in range(NUM_STEPS)]

    assert unchanged
    assert expected == losses(rehearsed)


def test_a_row_with_nothing_to_learn_leaves_numbers_finite(drafter: Drafter, tmp_path: Path) -> None:
    nothing = replace(item(0), loss_mask_T=torch.zeros(128, dtype=torch.bool))

    result = trainer(drafter, tmp_path).run(nothing, toggles(), torch.Generator().manual_seed(0))

    assert {"loss": 0.0, "acc": 0.0, "grad_norm": 0.0} == {name: float(x) for name, x in result.scalars.items()}


def test_a_step_reports_its_tokens_without_padding(drafter: Drafter, tmp_path: Path) -> None:
    assert [110] * NUM_STEPS == [result.num_tokens_all for result in train(drafter, tmp_path)]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("expression", ["none", "compile,swa,grad-norm"])
def test_steps_on_cuda_agree_with_steps_on_the_cpu(drafter: Drafter, tmp_path: Path, expression: str) -> None:
    expected = losses(train(copy.deepcopy(drafter), tmp_path, expression.removeprefix("compile,")))
    step = trainer(drafter.to("cuda"), tmp_path, "cuda")

    results = [step.run(item(at), toggles(expression), torch.Generator().manual_seed(at)) for at in range(NUM_STEPS)]

    # bfloat16 products under autocast against float32.
    assert expected == pytest.approx(losses(results), rel=0.02)


def test_positions_count_from_zero_in_every_document() -> None:
    position_T: Tensor = positions_in_document((3, 2), 7)

    assert [0, 1, 2, 0, 1, 0, 0] == position_T.tolist()


def test_learning_rate_rises_then_falls_along_a_cosine_and_stays_down() -> None:
    shares = [learning_rate_share(step, num_warmup=2, num_steps=10) for step in (0, 1, 2, 6, 10, 15, 18)]

    assert [0.0, 0.5, 1.0, 0.5, 0.0, 0.0, 0.0] == pytest.approx(shares)


def test_learning_rate_of_an_open_end_rises_and_stays() -> None:
    shares = [learning_rate_share(step, num_warmup=4, num_steps=0) for step in (0, 2, 4, 5, 100_000)]

    assert [0.0, 0.5, 1.0, 1.0, 1.0] == shares


def test_learning_rate_is_transformers_up_to_the_last_step(drafter: Drafter) -> None:
    from transformers import get_cosine_schedule_with_warmup

    reference = get_cosine_schedule_with_warmup(torch.optim.AdamW(drafter.parameters(), lr=1.0), 3, 40)

    for step in range(40):
        share = learning_rate_share(step, num_warmup=3, num_steps=40)
        assert reference.lr_lambdas[0](step) == pytest.approx(share)
