"""A target's work from the item to the message: padded or packed, the drafter gets the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing
from hypothesis import given, settings
from hypothesis import strategies as st
from trainer_config import some_config

from flashprof.contracts.errors import UsageError
from flashprof.contracts.events import decode
from flashprof.emit import connect
from pipeline.model.checksum import bit_sum
from pipeline.model.taps import TappedTarget, pack
from pipeline.roles.target import check_packs, compute, lay_out, own_way, pack_message, run_target
from pipeline.roles.worker import WorkerSeat
from pipeline.transport.messages import HiddenStates, WorkItem
from pipeline.transport.queue import HiddenStateQueue, create_queue

CPU = torch.device("cpu")


def make_target(architecture: str = "Qwen3", **options: Any) -> TappedTarget:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{architecture}Config")(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_size=48,
        vocab_size=64,
        max_position_embeddings=512,
        **options,
    )
    return TappedTarget(getattr(transformers, f"{architecture}ForCausalLM")(config).eval(), (0, 2))


@pytest.fixture(scope="module")
def target() -> TappedTarget:
    return make_target()


def make_item(lengths: list[int], num_rows: int, seed: int = 0) -> WorkItem:
    """Rows past the samples, and what lies behind a sample, hold token 0."""
    rng = np.random.default_rng(seed)
    lengths_B = np.array(lengths + [0] * (num_rows - len(lengths)))[:, None]
    is_token_BS = np.arange(max(lengths) + 3) < lengths_B
    return WorkItem(
        step=5,
        drafter=0,
        part=1,
        input_ids_BS=(rng.integers(1, 64, is_token_BS.shape) * is_token_BS).astype(np.int32),
        loss_mask_BS=(rng.random(is_token_BS.shape) < 0.5) & is_token_BS,
        lengths=tuple(lengths),
        early_exit=True,
    )


LENGTHS = st.lists(st.integers(1, 90), min_size=1, max_size=5)


@settings(max_examples=25, deadline=None)
@given(lengths=LENGTHS, num_empty=st.integers(0, 2), seed=st.integers(0, 9))
def test_padded_or_packed_the_message_is_the_same(
    target: TappedTarget, lengths: list[int], num_empty: int, seed: int
) -> None:
    item = make_item(lengths, len(lengths) + num_empty, seed)
    padded, packed = (pack_message(one, *compute(target, one, CPU), pack) for one in (item, replace(item, packed=True)))

    assert torch.equal(padded.input_ids_T, packed.input_ids_T)
    assert torch.equal(padded.loss_mask_T, packed.loss_mask_T)
    assert padded.hidden_TF.shape == packed.hidden_TF.shape
    torch.testing.assert_close(packed.hidden_TF, padded.hidden_TF, atol=1e-5, rtol=1e-5)
    assert not packed.hidden_TF[item.num_tokens :].any()
    for message in (padded, packed):
        assert bit_sum(message.hidden_TF) == message.checksum
        assert (5, 1, item.lengths) == (message.step, message.part, message.lengths)


@given(lengths=LENGTHS, num_empty=st.integers(0, 2), is_packed=st.booleans())
def test_rows_hold_every_token_once_and_count_their_padding(
    lengths: list[int], num_empty: int, is_packed: bool
) -> None:
    item = replace(make_item(lengths, len(lengths) + num_empty), packed=is_packed)

    rows = lay_out(item, packed=is_packed)

    tokens = np.concatenate([item.input_ids_BS[row, :length] for row, length in enumerate(lengths)])
    assert tokens.tolist() == rows.input_ids_BS[rows.is_token_BS].tolist()
    assert int(item.loss_mask_BS.sum()) == int((rows.loss_mask_BS & rows.is_token_BS).sum())
    assert item.num_padding_tokens == rows.num_padding_tokens
    assert not is_packed or (1, item.padded_row) == tuple(rows.input_ids_BS.shape)


@pytest.mark.parametrize(
    ("compiled", "packed", "way"),
    [(False, False, "eager, padded"), (True, False, "compiled, padded"), (True, True, "compiled, packed")],
)
def test_the_way_is_told(target: TappedTarget, compiled: bool, packed: bool, way: str) -> None:
    item = replace(make_item([3], 1), compiled=compiled, packed=packed)

    assert way == own_way(target, item)


def test_unknown_layers_go_transformers_way_and_say_so() -> None:
    target = make_target("Qwen3", attention_bias=True)
    item = replace(make_item([7, 4], 2), compiled=True, packed=True)
    rows, states = compute(target, item, CPU)

    assert "eager, padded" == own_way(target, item)
    assert not rows.is_packed
    assert 2 * 10 - 11 == rows.num_padding_tokens == pack_message(item, rows, states, pack).num_padding_tokens
    assert [(2, 10, 32)] * 2 == [tuple(state.shape) for state in states]


def test_a_target_that_cannot_take_packed_rows_is_refused_with_the_way_out(target: TappedTarget) -> None:
    check_packs(target, "Qwen3ForCausalLM")

    with pytest.raises(UsageError, match="as one text") as raised:
        check_packs(make_target("Qwen3", attention_bias=True), "Qwen3ForCausalLM")
    assert "--batches bucketed" == raised.value.next_command
    assert "Qwen3ForCausalLM" == raised.value.offered


def make_seat(folder: Path, status: Any, queue: HiddenStateQueue) -> WorkerSeat:
    return WorkerSeat(
        role="target",
        local_rank=0,
        config=some_config(cache=folder),
        mask_token_id=0,
        rehearsals=(),
        rendezvous=folder / "rendezvous",
        carrier_name="shared",
        status=status,
        stderr=status,
        orders=None,
        queues=(queue,),
    )


def test_work_is_answered_in_order_and_a_switch_changes_the_way_from_its_work_on(tmp_path: Path) -> None:
    context = torch.multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    queue = create_queue(context, depth=8)
    plain = make_item([50, 9], 3)
    for step, change in enumerate([{}, {"packed": True}, {}]):
        ours.send(replace(plain, step=step, **change))
    ours.send(None)
    emitter = connect("target", run_dir=tmp_path)

    run_target(make_seat(tmp_path, theirs, queue), emitter)
    emitter.close()

    messages: list[HiddenStates] = [queue.reader.recv() for _ in range(3)]
    log = decode((tmp_path / "events" / "target-0.jsonl").read_text().splitlines(), where="events")
    ways = [mark.detail["way"] for mark in log.marks if mark.detail.get("phase") == "forward"]
    assert [0, 1, 2] == [message.step for message in messages]
    assert torch.equal(messages[0].hidden_TF, messages[2].hidden_TF)
    torch.testing.assert_close(messages[1].hidden_TF, messages[0].hidden_TF, atol=1e-4, rtol=1e-4)
    assert all(bit_sum(message.hidden_TF) == message.checksum for message in messages)
    assert ["layers: 4, eager, padded", "layers: 4, eager, packed", "layers: 4, eager, padded"] == ways
    assert [3 * 53 - 59, 128 - 59, 3 * 53 - 59] == [step.num_padding_tokens for step in log.steps]
    assert ["ready", *["request"] * 4] == [ours.recv() for _ in range(5)]
