"""An exported drafter is the same model in z-lab's own class, generates losslessly there, and comes back from disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from flashprof.contracts.errors import FormatError, ToolError, UsageError
from pipeline.checkpoint.zlab import read_plan, read_zlab, write_zlab
from pipeline.model.anchors import document_ids
from pipeline.model.drafter import Drafter, DrafterShape, tap_layers
from pipeline.model.mask_evaluated import additive_mask
from pipeline.model.mask_rule import mask_tables
from pipeline.model.target import load_target
from pipeline.presets import FULL, SLIDING, TINY

Make = Callable[..., Any]
NUM_CONTEXT = 20


@pytest.fixture
def exported(tmp_path: Path, make_learner: Make, make_state: Make) -> Path:
    """A drafter with one full and one sliding layer, in bfloat16."""
    folder = tmp_path / "exported"
    state = make_state(layer_types=(FULL, SLIDING))
    write_zlab(folder, state, make_learner().drafter.state_dict(), dtype="bfloat16")
    return folder


def load_with_z_labs_class(folder: Path) -> Any:
    z_lab = pytest.importorskip("dflash.model", reason="needs z-lab's code: pip install --no-deps dflash")
    model, info = z_lab.DFlashDraftModel.from_pretrained(folder, dtype="auto", output_loading_info=True)

    assert [] == [problem for problems in info.values() for problem in problems]
    return model.eval()


@pytest.mark.parametrize(
    ("layer_types", "toggles"),
    [((FULL, FULL), "none"), ((SLIDING, FULL), "none"), ((FULL, FULL), "swa")],
)
@torch.no_grad()
def test_z_labs_class_computes_the_same_hidden_states(
    tmp_path: Path, make_learner: Make, make_state: Make, layer_types: tuple[str, ...], toggles: str
) -> None:
    drafter, state = make_learner().drafter, make_state(layer_types=layer_types, toggles=toggles)
    write_zlab(tmp_path / "exported", state, drafter.state_dict(), dtype="float32")
    theirs = load_with_z_labs_class(tmp_path / "exported")
    hidden_TF, block_QD = draw_inputs(state.shape)

    expected = theirs(
        position_ids=torch.arange(NUM_CONTEXT + len(block_QD))[None],
        noise_embedding=block_QD[None],
        target_hidden=hidden_TF[None],
    )[0]
    actual = draft(drafter, hidden_TF, block_QD, windows_of(state.layer_types))
    other = draft(drafter, hidden_TF, block_QD, windows_of((FULL, FULL)))

    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    # The comparison can tell a window from none.
    assert (SLIDING in state.layer_types) == bool((other - actual).abs().max() > 1e-3)


def windows_of(layer_types: tuple[str, ...]) -> list[int | None]:
    return [6 if kind == SLIDING else None for kind in layer_types]


def draw_inputs(shape: Any) -> tuple[Tensor, Tensor]:
    """Hidden states of the context and embeddings of one block of 4."""
    generator = torch.Generator().manual_seed(1)
    hidden_TF = torch.randn(NUM_CONTEXT, shape.num_taps * shape.hidden_size, generator=generator)
    return hidden_TF, torch.randn(4, shape.hidden_size, generator=generator)


def draft(drafter: Drafter, hidden_TF: Tensor, block_QD: Tensor, windows: list[int | None]) -> Tensor:
    """One block behind the context; the row has one position more, which is the anchor's own."""
    num_context, num_queries = len(hidden_TF), len(block_QD)
    anchor_A = torch.tensor([num_context])
    document_T = document_ids([num_context + 1], num_context + 1)
    row_TF = torch.cat([hidden_TF, torch.full_like(hidden_TF[:1], 9.0)])
    positions = torch.cat([torch.arange(num_context + 1), num_context + torch.arange(num_queries)])
    masks: list[Any] = [
        additive_mask(mask_tables(anchor_A, document_T, block_size=num_queries, window=window)) for window in windows
    ]
    out: Tensor = drafter(row_TF, block_QD, positions, masks)
    return out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
@pytest.mark.parametrize("layer_types", [(FULL, FULL), (SLIDING, FULL)])
@torch.no_grad()
def test_generation_in_z_labs_code_is_the_targets_own(
    tmp_path: Path, make_state: Make, layer_types: tuple[str, ...]
) -> None:
    z_lab = pytest.importorskip("dflash.model", reason="needs z-lab's code: pip install --no-deps dflash")
    target: Any = load_target(TINY, tmp_path)
    plan = TINY.target
    shape = DrafterShape(
        hidden_size=plan.hidden_size,
        num_heads=plan.num_heads,
        num_kv_heads=plan.num_kv_heads,
        head_dim=plan.head_dim,
        intermediate_size=plan.intermediate_size,
        num_layers=2,
        num_taps=2,
    )
    torch.manual_seed(0)
    drafter = Drafter(shape)
    state = make_state(
        layer_types=layer_types,
        shape=shape,
        layer_ids=tap_layers(6, 2),
        num_target_layers=6,
        vocab_size=plan.vocab_size,
        max_positions=TINY.data.max_length,
    )
    write_zlab(tmp_path / "exported", state, drafter.state_dict(), dtype="float32")
    prompt = torch.randint(0, plan.vocab_size, (1, 17), generator=torch.Generator().manual_seed(2))

    expected = target.generate(prompt, max_new_tokens=12, do_sample=False, pad_token_id=0)
    actual = z_lab.dflash_generate(
        load_with_z_labs_class(tmp_path / "exported"), target, prompt, max_new_tokens=12, stop_token_ids=None
    )

    assert (1, 17 + 12) == tuple(expected.shape)
    assert expected.tolist() == actual.tolist()


def test_the_file_holds_exactly_the_drafter(exported: Path, make_learner: Make) -> None:
    weights = load_file(exported / "model.safetensors")

    assert set(make_learner().drafter.state_dict()) == set(weights)
    assert {torch.bfloat16} == {tensor.dtype for tensor in weights.values()}
    assert {"config.json", "model.safetensors"} == {path.name for path in exported.iterdir()}


def test_the_config_has_what_the_loaders_read(exported: Path) -> None:
    config = json.loads((exported / "config.json").read_text())
    expected = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": 4,
        "num_target_layers": 6,
        "dflash_config": {"block_size": 4, "mask_token_id": 7, "target_layer_ids": [1, 3], "causal": False},
        "layer_types": [FULL, SLIDING],
        "sliding_window": 6,
        "use_sliding_window": True,
        "is_causal": False,
        "dtype": "bfloat16",
        "rope_theta": 1e6,
        "vocab_size": 128,
        "max_position_embeddings": 1024,
    }

    assert expected == {key: config[key] for key in expected}


@pytest.mark.parametrize(("layer_types", "has_class"), [((FULL, FULL), True), ((FULL, SLIDING), False)])
def test_remote_code_that_knows_no_windows_is_not_named_for_sliding_layers(
    tmp_path: Path, make_learner: Make, make_state: Make, layer_types: tuple[str, ...], *, has_class: bool
) -> None:
    state = make_state(layer_types=layer_types)
    write_zlab(tmp_path / "exported", state, make_learner().drafter.state_dict(), dtype="float32")

    assert has_class == ("auto_map" in json.loads((tmp_path / "exported" / "config.json").read_text()))


def test_a_window_smaller_than_a_block_is_refused(tmp_path: Path, make_learner: Make, make_state: Make) -> None:
    state = make_state(layer_types=(FULL, SLIDING))
    narrow = replace(state.preset, drafter=replace(state.preset.drafter, sliding_window=3))

    with pytest.raises(UsageError, match="within a block"):
        write_zlab(tmp_path / "x", replace(state, preset=narrow), make_learner().drafter.state_dict(), dtype="float32")
    assert not (tmp_path / "x").exists()


def test_an_earlier_export_and_an_empty_folder_are_replaced(
    exported: Path, tmp_path: Path, make_learner: Make, make_state: Make
) -> None:
    (tmp_path / "empty").mkdir()
    other = make_learner(seed=5).drafter.state_dict()
    for folder in (exported, tmp_path / "empty"):
        write_zlab(folder, make_state(), other, dtype="float32")

        assert torch.equal(other["fc.weight"], read_zlab(folder).weights["fc.weight"])
    assert ["empty", "exported"] == sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", ["notes.txt", "config.json", "model.safetensors"])
def test_a_folder_that_holds_something_else_is_refused(
    tmp_path: Path, make_learner: Make, make_state: Make, name: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("{}")

    with pytest.raises(UsageError, match="something else") as caught:
        write_zlab(tmp_path / "mine", make_state(), make_learner().drafter.state_dict(), dtype="float32")
    assert name in (caught.value.offered or "")
    assert "{}" == (tmp_path / "mine" / name).read_text()


def test_another_model_in_the_same_layout_is_not_overwritten(
    exported: Path, make_learner: Make, make_state: Make
) -> None:
    edit(exported, architectures=["Qwen3ForCausalLM"])

    with pytest.raises(UsageError, match="something else"):
        write_zlab(exported, make_state(), make_learner().drafter.state_dict(), dtype="float32")


def test_a_folder_that_cannot_be_made_is_a_tool_error(tmp_path: Path, make_learner: Make, make_state: Make) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises((ToolError, UsageError)) as caught:
        write_zlab(tmp_path / "file" / "x", make_state(), make_learner().drafter.state_dict(), dtype="float32")
    assert str(tmp_path / "file" / "x") == caught.value.where


def test_what_was_exported_is_read_back(tmp_path: Path, make_learner: Make, make_state: Make) -> None:
    drafter, state = make_learner().drafter, make_state(layer_types=(FULL, SLIDING))
    write_zlab(tmp_path / "x", state, drafter.state_dict(), dtype="float32")

    read = read_zlab(tmp_path / "x")

    assert (state.shape, state.layer_types, 6, False) == (
        read.shape,
        read.layer_types,
        read.sliding_window,
        read.is_causal,
    )
    assert (4, (1, 3), 7, 6) == (read.block_size, read.layer_ids, read.mask_token_id, read.num_target_layers)
    assert vars(read_plan(tmp_path / "x")).items() <= vars(read).items()
    drafter.load_state_dict(read.weights, strict=True)
    assert [] == [name for name, tensor in drafter.state_dict().items() if not torch.equal(tensor, read.weights[name])]


def edit(folder: Path, *, drop: tuple[str, ...] = (), **changes: Any) -> None:
    file = folder / "config.json"
    config = json.loads(file.read_text()) | changes
    for name in drop:
        config.pop(name, None)
        config["dflash_config"].pop(name, None)
    file.write_text(json.dumps(config))


def test_shards_prefixes_and_the_targets_own_weights_are_understood(exported: Path, make_learner: Make) -> None:
    weights = load_file(exported / "model.safetensors")
    (exported / "model.safetensors").unlink()
    names = sorted(weights)
    shards = {
        "model-00001-of-00002.safetensors": {f"model.{name}": weights[name] for name in names[:9]},
        "model-00002-of-00002.safetensors": {f"model.{name}": weights[name] for name in names[9:]}
        | {"model.embed_tokens.weight": torch.zeros(128, 32), "lm_head.weight": torch.zeros(128, 32)},
    }
    for file, tensors in shards.items():
        save_file(tensors, exported / file)
    weight_map = {name: file for file, tensors in shards.items() for name in tensors}
    (exported / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    read = read_zlab(exported)

    assert list(make_learner().drafter.state_dict()) == list(read.weights)
    assert {torch.float32} == {tensor.dtype for tensor in read.weights.values()}
    assert torch.equal(weights["fc.weight"].float(), read.weights["fc.weight"])


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("content", [None, b"", b"\xff rubbish", b"[]"])
def test_a_damaged_file_is_named(exported: Path, name: str, content: bytes | None) -> None:
    (exported / name).unlink()
    if content is not None:
        (exported / name).write_bytes(content)

    with pytest.raises(FormatError) as caught:
        read_zlab(exported)
    assert str(exported / name) == caught.value.where
    assert "z-lab" in (caught.value.allowed or "")


@pytest.mark.parametrize("content", [{}, {"weight_map": 3}, {"weight_map": {"fc.weight": 3}}])
def test_an_index_without_a_map_is_a_format_error(exported: Path, content: Any) -> None:
    (exported / "model.safetensors.index.json").write_text(json.dumps(content))

    with pytest.raises(FormatError, match="weight_map"):
        read_zlab(exported)


def test_an_index_cannot_name_a_file_outside_the_folder(exported: Path) -> None:
    (exported / "model.safetensors").rename(exported.parent / "outside.safetensors")
    content = {"weight_map": {"fc.weight": "../outside.safetensors"}}
    (exported / "model.safetensors.index.json").write_text(json.dumps(content))

    with pytest.raises(FormatError) as caught:
        read_zlab(exported)
    assert str(exported / "outside.safetensors") == caught.value.where


@pytest.mark.parametrize(
    ("extra", "lacking", "offered"),
    [
        (
            {"layers.0.attention_conv.base_kernel": torch.zeros(2)},
            (),
            "attention_conv.base_kernel (2,) instead of nothing",
        ),
        ({}, ("norm.weight",), "norm.weight missing instead of (32,)"),
        ({"fc.weight": torch.zeros(32, 96)}, (), "fc.weight (32, 96) instead of (32, 64)"),
    ],
)
def test_weights_that_do_not_fit_are_named(
    exported: Path, extra: dict[str, Tensor], lacking: tuple[str, ...], offered: str
) -> None:
    weights = load_file(exported / "model.safetensors") | extra
    save_file({name: tensor for name, tensor in weights.items() if name not in lacking}, exported / "model.safetensors")

    with pytest.raises(FormatError, match="do not fit") as caught:
        read_zlab(exported)
    assert offered in (caught.value.offered or "")
