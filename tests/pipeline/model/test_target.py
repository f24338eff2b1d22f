"""Targets from shapes, from a user's folder, and what they mean for a drafter."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from flashprof.contracts.errors import UsageError
from pipeline.model.drafter import tap_layers
from pipeline.model.target import drafter_shape, load_tables, load_target, load_target_config, target_layer_ids
from pipeline.presets import TINY, Preset

NOWHERE = Path("unused")
SMALL = replace(
    TINY,
    target=replace(TINY.target, hidden_size=32, num_heads=2, num_kv_heads=1, head_dim=16, vocab_size=64),
)


def folder_preset(folder: Path) -> Preset:
    return replace(TINY, target=replace(TINY.target, source="folder", path=str(folder)))


def make_config(architecture: str, **options: Any) -> Any:
    import transformers

    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 48,
        "vocab_size": 64,
        "max_position_embeddings": 64,
    }
    return getattr(transformers, f"{architecture}Config")(**shape, **options)


def save(
    folder: Path,
    architecture: str,
    dtype: torch.dtype = torch.float32,
    *,
    max_shard_size: str = "1GB",
    **options: Any,
) -> Any:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(make_config(architecture, **options)).to(dtype)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return model


def test_every_process_builds_the_same_random_target_and_leaves_the_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)

    again = load_target(SMALL, NOWHERE)
    first = load_target(SMALL, NOWHERE)

    assert torch.equal(expected, torch.randn(3))
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, again.get_parameter(name))
        assert not parameter.requires_grad


@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("architecture", ["Qwen3", "Llama"])
def test_a_folder_is_loaded_as_it_was_saved(
    tmp_path: Path, architecture: str, dtype: torch.dtype, is_tied: bool
) -> None:
    saved = save(tmp_path, architecture, dtype, tie_word_embeddings=is_tied)

    loaded: Any = load_target(folder_preset(tmp_path), NOWHERE)

    assert not loaded.training
    for name, parameter in saved.named_parameters():
        assert not loaded.get_parameter(name).requires_grad
        assert dtype == loaded.get_parameter(name).dtype
        assert torch.equal(parameter, loaded.get_parameter(name))
    embedding, head = loaded.get_input_embeddings().weight, loaded.get_output_embeddings().weight
    assert is_tied == torch.equal(embedding, head)
    assert torch.equal(saved.lm_head.weight, head)


def test_a_config_needs_no_weights(tmp_path: Path) -> None:
    save(tmp_path, "Llama")
    (tmp_path / "model.safetensors").unlink()

    config = load_target_config(folder_preset(tmp_path), NOWHERE)

    assert ("llama", 4) == (config.model_type, config.num_hidden_layers)
    assert 6 == load_target_config(SMALL, NOWHERE).num_hidden_layers


def spoil_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def remove_folder(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def drop_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.2.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


CONFIG_FAULTS = {
    "does not exist": remove_folder,
    "holds no config.json": lambda folder: (folder / "config.json").unlink(),
    "cannot build it": lambda folder: spoil_config(folder, model_type="no_such_model"),
    "not a valid JSON": lambda folder: (folder / "config.json").write_text("{", encoding="utf-8"),
    "expected int, got str": lambda folder: spoil_config(folder, hidden_size="wide"),
    "cannot build it: ": lambda folder: spoil_config(folder, model_type="t5"),
    "GPT2LMHeadModel has no `model.layers`": lambda folder: spoil_config(folder, model_type="gpt2"),
}


@pytest.mark.parametrize(("says", "spoil"), CONFIG_FAULTS.items(), ids=CONFIG_FAULTS)
def test_a_folder_that_cannot_be_a_target_is_refused_before_its_weights_are_read(
    tmp_path: Path, says: str, spoil: Any
) -> None:
    folder = tmp_path / "model"
    save(folder, "Llama")
    spoil(folder)

    for load in (load_target_config, load_target):
        with pytest.raises(UsageError) as refusal:
            load(folder_preset(folder), NOWHERE)

        assert says in refusal.value.what
        assert str(folder) == refusal.value.where
        assert "save_pretrained" in str(refusal.value.allowed)


WEIGHT_FAULTS = {
    "1 of its weights are missing or of another shape, such as model.layers.2.mlp.up_proj.weight": drop_weight,
    "its weights cannot be loaded": cut_weights,
    "weights cannot be loaded": lambda folder: (folder / "model.safetensors").unlink(),
    "12 of its weights are missing or of another shape": lambda folder: spoil_config(folder, intermediate_size=64),
}


@pytest.mark.parametrize(("says", "spoil"), WEIGHT_FAULTS.items(), ids=WEIGHT_FAULTS)
def test_weights_that_are_not_all_there_are_refused_not_made_up(tmp_path: Path, says: str, spoil: Any) -> None:
    folder = tmp_path / "model"
    save(folder, "Llama")
    spoil(folder)

    with pytest.raises(UsageError) as refusal:
        load_target(folder_preset(folder), NOWHERE)

    assert says in refusal.value.what
    assert str(folder) == refusal.value.where


def drop_layers(folder: Path) -> None:
    """Leave no tensor of a layer, so that who reads one fails."""
    for path in folder.glob("*.safetensors"):
        weights = {name: weight for name, weight in load_file(path).items() if ".layers." not in name}
        path.unlink()
        if weights:
            save_file(weights, path, metadata={"format": "pt"})


@pytest.mark.parametrize("max_shard_size", ["1GB", "9KB"])
@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("architecture", ["Qwen3", "Llama"])
def test_embedding_and_head_are_the_models_own_and_no_layer_is_read(
    tmp_path: Path, architecture: str, max_shard_size: str, *, is_tied: bool
) -> None:
    save(tmp_path, architecture, torch.bfloat16, tie_word_embeddings=is_tied, max_shard_size=max_shard_size)
    model: Any = load_target(folder_preset(tmp_path), NOWHERE)
    expected = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    drop_layers(tmp_path)

    config, *tables = load_tables(folder_preset(tmp_path), NOWHERE)

    assert (max_shard_size == "9KB") == (tmp_path / "model.safetensors.index.json").exists()
    assert model.config.to_dict() == config.to_dict()
    for weight, table in zip(expected, tables, strict=True):
        assert torch.equal(weight, table)
        assert weight.dtype == table.dtype
    with pytest.raises(UsageError, match=r"cannot be loaded|are missing"):
        load_target(folder_preset(tmp_path), NOWHERE)


def test_the_tables_of_a_random_target_are_its_own() -> None:
    model: Any = load_target(SMALL, NOWHERE)

    config, embedding_VD, head_VD = load_tables(SMALL, NOWHERE)

    assert 64 == config.vocab_size
    assert torch.equal(model.get_input_embeddings().weight, embedding_VD)
    assert torch.equal(model.get_output_embeddings().weight, head_VD)
    assert not torch.equal(embedding_VD, head_VD)


def rewrite(folder: Path, change: Any) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path, metadata={"format": "pt"})


TIES = {
    "only the head is there": lambda weights: weights.update({HEAD: weights.pop(EMBEDDING)}),
    "both are there": lambda weights: weights.update({HEAD: weights[EMBEDDING] + 1}),
}
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.mark.parametrize("change", TIES.values(), ids=TIES)
def test_tables_are_tied_as_transformers_ties_them(tmp_path: Path, change: Any) -> None:
    save(tmp_path, "Qwen3", tie_word_embeddings=True)
    rewrite(tmp_path, change)
    model: Any = load_target(folder_preset(tmp_path), NOWHERE)

    _, embedding_VD, head_VD = load_tables(folder_preset(tmp_path), NOWHERE)

    assert torch.equal(model.get_input_embeddings().weight, embedding_VD)
    assert torch.equal(model.get_output_embeddings().weight, head_VD)


def test_tables_in_another_form_come_with_the_whole_model(tmp_path: Path) -> None:
    saved = save(tmp_path, "Llama")
    (tmp_path / "model.safetensors").unlink()
    torch.save(saved.state_dict(), tmp_path / "pytorch_model.bin")

    _, embedding_VD, head_VD = load_tables(folder_preset(tmp_path), NOWHERE)

    assert torch.equal(saved.model.embed_tokens.weight, embedding_VD)
    assert torch.equal(saved.lm_head.weight, head_VD)


TABLE_FAULTS = {
    "1 of its weights are missing or of another shape, such as lm_head.weight": lambda folder: rewrite(
        folder, lambda weights: weights.pop(HEAD)
    ),
    "2 of its weights are missing or of another shape": lambda folder: spoil_config(folder, vocab_size=65),
    "its weights cannot be loaded": cut_weights,
    "cannot be used: its weights cannot": lambda folder: (folder / "model.safetensors").unlink(),
    "cannot build it": lambda folder: spoil_config(folder, model_type="no_such_model"),
}


@pytest.mark.parametrize(("says", "spoil"), TABLE_FAULTS.items(), ids=TABLE_FAULTS)
def test_tables_that_are_not_there_or_do_not_fit_are_refused(tmp_path: Path, says: str, spoil: Any) -> None:
    folder = tmp_path / "model"
    save(folder, "Llama")
    spoil(folder)

    with pytest.raises(UsageError) as refusal:
        load_tables(folder_preset(folder), NOWHERE)

    assert says in refusal.value.what
    assert str(folder) == refusal.value.where


def test_taps_of_qwen3_8b_are_those_that_z_lab_published() -> None:
    assert (1, 9, 17, 25, 33) == tap_layers(36, 5)


@pytest.mark.parametrize(
    ("num_layers", "num_taps", "expected"),
    [(6, 2, (1, 3)), (30, 2, (1, 27)), (36, 1, (18,)), (40, 5, (1, 10, 19, 28, 37))],
)
def test_taps_are_spread_evenly_from_the_second_to_the_third_last_layer(
    num_layers: int, num_taps: int, expected: tuple[int, ...]
) -> None:
    assert expected == tap_layers(num_layers, num_taps)


def tapping(*tapped_layers: int) -> Preset:
    return replace(SMALL, drafter=replace(SMALL.drafter, tapped_layers=tapped_layers))


def test_a_drafter_reads_the_layers_of_its_preset_or_else_as_many_as_it_has() -> None:
    config = load_target_config(SMALL, NOWHERE)

    assert (1, 3) == target_layer_ids(SMALL, config)
    assert (0, 2, 4) == target_layer_ids(tapping(0, 2, 4), config)


@pytest.mark.parametrize("layer_ids", [(5,), (1, 6), (-1, 2), (2, 2), (3, 1)])
def test_layers_that_the_target_does_not_have_are_refused(layer_ids: tuple[int, ...]) -> None:
    with pytest.raises(UsageError) as refusal:
        target_layer_ids(tapping(*layer_ids), load_target_config(SMALL, NOWHERE))

    assert ", ".join(map(str, layer_ids)) == refusal.value.offered
    assert "from 0 to 4" in str(refusal.value.allowed)


def test_a_target_that_is_too_shallow_for_as_many_taps_is_refused() -> None:
    deep = replace(SMALL, drafter=replace(SMALL.drafter, layer_types=("full_attention",) * 5))

    with pytest.raises(UsageError, match="the target has 6 layers"):
        target_layer_ids(deep, load_target_config(SMALL, NOWHERE))


def test_the_drafter_is_as_wide_as_its_target() -> None:
    shape = drafter_shape(load_target_config(SMALL, NOWHERE), num_layers=2, num_taps=3)

    assert (32, 2, 1, 16) == (shape.hidden_size, shape.num_heads, shape.num_kv_heads, shape.head_dim)
    assert (2, 3) == (shape.num_layers, shape.num_taps)


@pytest.mark.parametrize(
    ("architecture", "rope", "expected"),
    [
        ("Llama", None, 10_000.0),
        ("Llama", {"rope_type": "default", "rope_theta": 5e5}, 5e5),
        ("Qwen3", {"rope_type": "default", "rope_theta": 1e6}, 1e6),
        (
            "Gemma3Text",
            {
                "full_attention": {"rope_type": "default", "rope_theta": 2e4},
                "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
            },
            2e4,
        ),
    ],
)
def test_the_drafter_turns_as_the_target_does(architecture: str, rope: Any, expected: float) -> None:
    config = make_config(architecture, rope_parameters=rope)

    assert expected == drafter_shape(config, num_layers=1, num_taps=1).rope_theta


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize(
    ("architecture", "rope"),
    [
        ("Llama", {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}),
        ("Llama", {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}),
        ("Qwen3", {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6, "original_max_position_embeddings": 32}),
        ("Phi", {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}),
        ("Gemma3Text", None),
    ],
)
def test_a_rotary_embedding_that_the_drafter_does_not_have_is_refused(architecture: str, rope: Any) -> None:
    config = make_config(architecture, rope_parameters=rope)

    with pytest.raises(UsageError, match="rotary embedding") as refusal:
        drafter_shape(config, num_layers=1, num_taps=1)

    assert "rope_theta" in str(refusal.value.offered)
