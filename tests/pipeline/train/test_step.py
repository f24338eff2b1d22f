"""One optimizer step: what it learns from, what the toggles may and may not change."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from flashprof.contracts.control import Command, CommandName
from flashprof.contracts.events import EventLog, decode
from flashprof.contracts.toggles import Toggle, ToggleValues, parse_toggles
from flashprof.emit import Emitter, connect
from pipeline.config import HostPlace
from pipeline.model.checksum import bit_sum
from pipeline.model.drafter import Drafter, DrafterShape
from pipeline.model.tables import FrozenTables
from pipeline.presets import TINY, Preset
from pipeline.toggles import REGISTRY
from pipeline.train.evidence import compilations
from pipeline.train.optimizer import make_optimizer
from pipeline.train.peers import Peers
from pipeline.train.step import DrafterStep, Learner, StepInput, StepResult
from pipeline.transport.messages import HiddenStates, Order

NUM_STEPS = 5
VOCAB = 64
PHASES = ["anchors", "mask", "forward", "loss", "backward", "clip", "optimizer", "metrics"]
SHAPE = DrafterShape(
    hidden_size=32, num_heads=2, num_kv_heads=1, head_dim=32, intermediate_size=48, num_layers=2, num_taps=2
)


def preset() -> Preset:
    return replace(TINY, drafter=replace(TINY.drafter, num_anchors=32, sliding_window=16))


def item(step: int) -> HiddenStates:
    generator = torch.Generator().manual_seed(step)
    lengths = (70, 40)
    hidden_TF = torch.randn(128, SHAPE.num_taps * SHAPE.hidden_size, generator=generator)
    return HiddenStates(
        step=step,
        hidden_TF=hidden_TF,
        checksum=bit_sum(hidden_TF),
        input_ids_T=torch.randint(3, VOCAB, (128,), generator=generator),
        loss_mask_T=torch.arange(128) < sum(lengths),
        lengths=lengths,
        num_padding_tokens=2,
    )


def trainer(drafter: Drafter, tmp_path: Path, device: str = "cpu", emitter: Emitter | None = None) -> DrafterStep:
    generator = torch.Generator().manual_seed(9)
    frozen = FrozenTables(
        embedding_VD=torch.randn(VOCAB, SHAPE.hidden_size, generator=generator).to(device),
        head_VD=torch.randn(VOCAB, SHAPE.hidden_size, generator=generator).to(device),
        mask_token_id=2,
    )
    optimizer = make_optimizer(drafter, preset().recipe)
    learner = Learner(drafter=drafter, optimizer=optimizer, preset=preset(), num_steps=20)
    peers = Peers(rank=0, num_drafters=1, rendezvous=tmp_path / "store", host=HostPlace(), device=torch.device(device))
    return DrafterStep(learner, frozen, peers, emitter or Emitter(None, None))


@pytest.fixture
def drafter() -> Drafter:
    torch.manual_seed(0)
    return Drafter(SHAPE)


def toggles(expression: str = "none") -> ToggleValues:
    return parse_toggles(expression, REGISTRY)


def given(step: int, expression: str = "none", order: Order | None = None) -> StepInput:
    return StepInput(
        step=step,
        generator=torch.Generator().manual_seed(step),
        toggles=toggles(expression),
        order=order or Order(),
    )


def on(device: str, sent: HiddenStates) -> HiddenStates:
    return replace(sent, hidden_TF=sent.hidden_TF.to(device), checksum=sent.checksum.to(device))


def train(drafter: Drafter, tmp_path: Path, expression: str = "none", device: str = "cpu") -> list[StepResult]:
    step = trainer(drafter.to(device), tmp_path, device)
    return [step.run([on(device, item(at))], given(at, expression)) for at in range(NUM_STEPS)]


def losses(results: list[StepResult]) -> list[float]:
    return [float(result.scalars["loss"]) for result in results]


def test_the_same_steps_give_the_same_losses_bit_for_bit(drafter: Drafter, tmp_path: Path) -> None:
    first, second = copy.deepcopy(drafter), copy.deepcopy(drafter)

    assert losses(train(first, tmp_path)) == losses(train(second, tmp_path))


@pytest.mark.parametrize("toggle", [toggle for toggle in REGISTRY if "cuda" not in toggle.needs], ids=lambda t: t.name)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_toggle_gives_the_same_losses_within_the_tolerance_that_it_declares(
    drafter: Drafter, tmp_path: Path, toggle: Toggle
) -> None:
    base = losses(train(copy.deepcopy(drafter), tmp_path))
    on = losses(train(copy.deepcopy(drafter), tmp_path, toggle.name))

    if toggle.changes_numbers:
        assert base != on
    else:
        assert base == pytest.approx(on, rel=toggle.loss_tolerance, abs=0.0)


def test_the_loss_of_rows_that_are_repeated_falls(drafter: Drafter, tmp_path: Path) -> None:
    step = trainer(drafter, tmp_path)

    trained = [step.run([item(0)], replace(given(0), step=at)) for at in range(15)]

    assert losses(trained)[-1] < losses(trained)[0] - 0.2


def test_a_rehearsal_teaches_nothing(drafter: Drafter, tmp_path: Path) -> None:
    before = copy.deepcopy(drafter.state_dict())
    step = trainer(drafter, tmp_path)
    expected = losses(train(copy.deepcopy(drafter), tmp_path))

    step.rehearse(item(7), toggles())
    unchanged = all(torch.equal(before[name], weight) for name, weight in drafter.state_dict().items())
    rehearsed = [step.run([item(at)], given(at)) for at in range(NUM_STEPS)]

    assert unchanged
    assert expected == losses(rehearsed)


def unsupervised(step: int) -> HiddenStates:
    return replace(item(step), loss_mask_T=torch.zeros(128, dtype=torch.bool))


def test_a_step_with_nothing_to_learn_leaves_weights_and_metrics_alone(drafter: Drafter, tmp_path: Path) -> None:
    before = copy.deepcopy(drafter.state_dict())

    result = trainer(drafter, tmp_path).run([unsupervised(0)], given(0))

    assert {} == result.scalars
    assert all(torch.equal(before[name], weight) for name, weight in drafter.state_dict().items())


def test_accumulated_rows_weigh_by_their_tokens_not_by_row(drafter: Drafter, tmp_path: Path) -> None:
    """SpecForge#731: a mean of means would give the short row's tokens more than the long one's."""
    rows = [item(0), replace(item(1), loss_mask_T=torch.arange(128) < 30)]
    together, first, second = (copy.deepcopy(drafter) for _ in range(3))
    generators = [torch.Generator().manual_seed(5) for _ in range(3)]

    result = trainer(together, tmp_path).run(rows, replace(given(0), generator=generators[0]))
    parts = []
    for model, row, generator in zip((first, second), rows, generators[1:], strict=True):
        # The second row's anchors are drawn after the first row's.
        if model is second:
            trainer(copy.deepcopy(drafter), tmp_path)._layout.make(rows[0], toggles(), generator)
        step = trainer(model, tmp_path)
        peek = copy.deepcopy(generator.get_state())
        weight = step._layout.make(row, toggles(), generator).weight
        generator.set_state(peek)
        parts.append((weight, float(step.run([row], replace(given(0), generator=generator)).scalars["loss"])))
    expected = sum(weight * loss for weight, loss in parts) / sum(weight for weight, _ in parts)
    mean_of_means = sum(loss for _, loss in parts) / 2

    assert expected == pytest.approx(float(result.scalars["loss"]), rel=1e-6)
    assert mean_of_means != pytest.approx(float(result.scalars["loss"]), rel=1e-6)


def test_a_row_without_supervised_tokens_changes_nothing_beside_one_that_has_some(
    drafter: Drafter, tmp_path: Path
) -> None:
    alone, beside = copy.deepcopy(drafter), copy.deepcopy(drafter)

    expected = trainer(alone, tmp_path).run([item(0)], given(0))
    result = trainer(beside, tmp_path).run([item(0), unsupervised(1)], given(0))

    assert float(expected.scalars["loss"]) == float(result.scalars["loss"])
    for one, other in zip(alone.parameters(), beside.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-7)


def test_hidden_states_that_are_not_what_the_target_computed_are_told(drafter: Drafter, tmp_path: Path) -> None:
    sent = item(0)
    sent.hidden_TF[3, 5] += 1

    result = trainer(drafter, tmp_path).run([sent, item(1)], given(0))

    assert 1.0 == float(result.scalars["hidden_mismatch"])


def test_alone_an_order_is_agreed_at_once(drafter: Drafter, tmp_path: Path) -> None:
    command = Command(command_id=1, name=CommandName.WINDOW_END, detail={"label": "a"})

    result = trainer(drafter, tmp_path).run([item(0)], given(0, order=Order(commands=(command,), stop=True)))

    assert (command,) == result.agreement.commands
    assert result.agreement.stop
    assert 110 == result.agreement.num_tokens


def test_phases_keep_their_names_and_the_ways_are_marked_at_the_step_that_changes_them(
    drafter: Drafter, tmp_path: Path
) -> None:
    log = record(drafter, tmp_path, ["none", "none", "swa,fused-loss", "swa,fused-loss,grad-norm"])
    ways = [mark.detail for mark in log.marks if mark.name == "path"]

    assert PHASES * 4 == [span.phase for span in log.spans]
    # One in the other would take the phase's time.
    assert {0} == {span.depth for span in log.spans}
    assert [
        (0, "anchors", "document_ids_by_position, PinEach"),
        (0, "mask", "evaluated, eager, masks: 2"),
        (0, "forward", "plain layers"),
        (0, "loss", "dflash_loss"),
        (0, "clip", "clip_by_host"),
        (2, "mask", "evaluated, eager, masks: 1"),
        (2, "loss", "fused_dflash_loss, stepwise score"),
        (3, "clip", "clip_on_device"),
    ] == [(way["step"], way["phase"], way["way"]) for way in ways]


def record(drafter: Drafter, tmp_path: Path, expressions: list[str]) -> EventLog:
    emitter = connect("drafter", run_dir=tmp_path)
    step = trainer(drafter, tmp_path, emitter=emitter)
    for at, expression in enumerate(expressions):
        step.run([item(at)], given(at, expression))
    emitter.close()
    (path,) = tmp_path.glob("events/*.jsonl")
    return decode(path.read_text().splitlines(), where=str(path))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("expression", ["none", "compile,swa,grad-norm"])
def test_steps_on_cuda_agree_with_steps_on_the_cpu(drafter: Drafter, tmp_path: Path, expression: str) -> None:
    expected = losses(train(copy.deepcopy(drafter), tmp_path, expression.removeprefix("compile,")))

    results = train(drafter, tmp_path, expression, "cuda")

    # bfloat16 products under autocast against float32.
    assert expected == pytest.approx(losses(results), rel=0.02)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", ["compile-drafter", "compile,analytic-mask,fused-loss,compile-drafter"])
def test_compiled_steps_on_cuda_agree_with_plain_ones(drafter: Drafter, tmp_path: Path, expression: str) -> None:
    expected = losses(train(copy.deepcopy(drafter), tmp_path, "none", "cuda"))

    assert expected == pytest.approx(losses(train(drafter, tmp_path, expression, "cuda")), rel=5e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore")
def test_a_step_never_waits_for_the_device_and_compiles_nothing_behind_the_first(
    drafter: Drafter, tmp_path: Path
) -> None:
    expression = "compile,analytic-mask,grad-norm,docids,prealloc,fused-loss,compile-drafter"
    step = trainer(drafter.to("cuda"), tmp_path, "cuda")
    items = [on("cuda", item(at)) for at in range(2)] + [on("cuda", shorter(2))]
    step.run(items[:1], given(0, expression))
    before = list(compilations())

    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        results = [step.run([sent], given(at, expression)) for at, sent in enumerate(items)]
    finally:
        torch.cuda.set_sync_debug_mode("default")

    assert all(loss > 0 for loss in losses(results))
    assert [] == [one.co_name for one in compilations() if all(one is not old for old in before)]


def shorter(step: int) -> HiddenStates:
    """A row of another length."""
    whole = item(step)
    hidden_TF = whole.hidden_TF[:96]
    return replace(
        whole,
        hidden_TF=hidden_TF,
        checksum=bit_sum(hidden_TF),
        input_ids_T=whole.input_ids_T[:96],
        loss_mask_T=torch.arange(96) < 90,
        lengths=(50, 40),
    )
