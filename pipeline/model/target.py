"""
The frozen target, a causal LM of transformers: its config, its weights, and what it means for a drafter.

Where the model is the user's own folder, everything that can be wrong with it is found from the config, before any
worker has started: `load_target_config` builds the architecture without its weights, in milliseconds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

from flashprof.contracts.errors import UsageError
from pipeline.model.drafter import DrafterShape, tap_layers
from pipeline.presets import Preset

TARGET_SEED = 20261129
"""Every process builds the same random target from this; it is not the run's seed."""

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
"""What transformers calls the tables of a Qwen3."""

ALLOWED = "a folder that `save_pretrained` wrote, of a causal LM whose layers are at `model.layers` (Qwen3, Llama, …)"


def load_target_config(preset: Preset, cache: Path) -> Any:
    """
    The transformers config of the preset's target, without its weights.

    Raises:
        UsageError: The preset's folder holds no model that can be a target.
    """
    if preset.target.is_random:
        return _random_config(preset)
    return _folder_skeleton(_folder(preset, cache))[0]


def load_target(preset: Preset, cache: Path, *, device: torch.device | None = None) -> nn.Module:
    """
    The preset's target, frozen, in eval mode, in the type it was saved in; a random one has the type of its source.

    Args:
        preset: Its `target` says which.
        cache: Where a converted model is kept.
        device: Where it is to be; None: the CPU. A `random-bf16` one is drawn there, and is the same in every process
            on devices of one kind: Qwen3-8B takes seconds on a GPU, minutes and 32 GB as float32 on a CPU.

    Raises:
        UsageError: The preset's folder holds no model that can be a target, or not all of its weights.
    """
    device = device or torch.device("cpu")
    if preset.target.source == "random-bf16":
        model = _drawn_model(_random_config(preset), device)
    elif preset.target.is_random:
        model = _random_model(_random_config(preset))
    else:
        model = _folder_model(_folder(preset, cache))
    return model.to(device).requires_grad_(requires_grad=False).eval()


def load_tables(preset: Preset, cache: Path, *, device: torch.device | None = None) -> tuple[Any, Tensor, Tensor]:
    """
    What a drafter needs of the target: its config, and the embedding and output head that `load_target` would have.

    Of a saved model only these tensors are read: of Qwen3-8B 2.5 GB instead of 16, in every drafter of a host at once.

    Args:
        preset: As for `load_target`.
        cache: As for `load_target`.
        device: Where `load_target` was asked for the model: a `random-bf16` one differs between kinds of devices.

    Returns:
        `config, embedding_VD, head_VD`, a `random-bf16` one's on the device, others on the CPU, in the type they were
        saved in; one tensor twice where they are tied.

    Raises:
        UsageError: As `load_target`.
    """
    if preset.target.source == "random-bf16":
        config = _random_config(preset)
        shape = (config.vocab_size, config.hidden_size)
        embedding_VD, head_VD = (
            _draw(name, shape, config, device or torch.device("cpu")) for name in (EMBEDDING, HEAD)
        )
        return config, embedding_VD, head_VD
    if not preset.target.is_random:
        folder = _folder(preset, cache)
        config, skeleton = _folder_skeleton(folder)
        tables = _read_tables(folder, config, skeleton)
        if tables is not None:
            return config, *tables
    model: Any = load_target(preset, cache)
    return model.config, model.get_input_embeddings().weight, model.get_output_embeddings().weight


def target_layer_ids(preset: Preset, config: Any) -> tuple[int, ...]:
    """
    The target layers that a drafter reads: the preset's, or as many as the drafter has, evenly spaced.

    Raises:
        UsageError: The target has no such layers. Its last layer is not offered: what transformers lists behind it has
            been normalised, and engines do not agree which of the two they hand to a drafter.
    """
    plan, num_layers = preset.drafter, config.get_text_config().num_hidden_layers
    layer_ids = plan.tapped_layers or tap_layers(num_layers, len(plan.layer_types))
    is_ascending = all(earlier < later for earlier, later in pairwise(layer_ids))
    if not is_ascending or layer_ids[0] < 0 or layer_ids[-1] > num_layers - 2:
        raise UsageError(
            f"the target has {num_layers} layers; a drafter cannot read these {len(layer_ids)} of them",
            offered=", ".join(map(str, layer_ids)),
            allowed=f"distinct layers in ascending order, from 0 to {num_layers - 2}",
        )
    return layer_ids


def drafter_shape(config: Any, *, num_layers: int, num_taps: int) -> DrafterShape:
    """
    A drafter as wide as the target with this transformers config.

    Raises:
        UsageError: The target's rotary embedding is one that the drafter does not have.
    """
    text = config.get_text_config()
    return DrafterShape(
        hidden_size=text.hidden_size,
        num_heads=text.num_attention_heads,
        num_kv_heads=getattr(text, "num_key_value_heads", None) or text.num_attention_heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
        intermediate_size=text.intermediate_size,
        num_layers=num_layers,
        num_taps=num_taps,
        rms_norm_eps=getattr(text, "rms_norm_eps", DrafterShape.rms_norm_eps),
        rope_theta=_rope_theta(text),
    )


def _rope_theta(config: Any) -> float:
    """The base of plain rotary embedding. An engine takes the target's for the drafter, so it has to be plain there."""
    rope = getattr(config, "rope_parameters", None) or {"rope_theta": getattr(config, "rope_theta", None)}
    # One dict a kind of layer, where they differ (Gemma 3).
    variants = [one for one in rope.values() if isinstance(one, dict)] or [rope]
    thetas = {one.get("rope_theta") for one in variants}
    is_plain = all(
        one.get("rope_type", "default") == "default" and one.get("partial_rotary_factor", 1.0) == 1.0
        for one in variants
    )
    if not is_plain or len(thetas) > 1 or None in thetas:
        raise UsageError(
            f"the target's rotary embedding ({config.model_type}) is one that the drafter does not have",
            offered=str(rope),
            allowed="rope_type `default` with one rope_theta for all layers, on whole heads",
        )
    (theta,) = thetas
    return float(theta)


def _random_config(preset: Preset) -> Any:
    from transformers import Qwen3Config

    plan = preset.target
    return Qwen3Config(
        hidden_size=plan.hidden_size,
        num_hidden_layers=plan.num_layers,
        num_attention_heads=plan.num_heads,
        num_key_value_heads=plan.num_kv_heads,
        head_dim=plan.head_dim,
        intermediate_size=plan.intermediate_size,
        vocab_size=plan.vocab_size,
        max_position_embeddings=preset.data.max_length,
        tie_word_embeddings=False,
        # transformers' 0.02 leaves a narrow random head with logits of 0.2: nothing that a drafter could sharpen.
        initializer_range=plan.hidden_size**-0.5,
    )


def _random_model(config: Any) -> nn.Module:
    from transformers import Qwen3ForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(TARGET_SEED)
        return Qwen3ForCausalLM(config)


def _drawn_model(config: Any, device: torch.device) -> nn.Module:
    from transformers import Qwen3ForCausalLM

    with torch.device("meta"):
        model = Qwen3ForCausalLM(config)
    names = model.state_dict()
    model.load_state_dict({name: _draw(name, names[name].shape, config, device) for name in names}, assign=True)
    # Rotary frequencies are in no state, and on the meta device they have no values.
    with device:
        model.model.rotary_emb = type(model.model.rotary_emb)(config)
    drawn: nn.Module = model
    return drawn


def _draw(name: str, shape: Sequence[int], config: Any, device: torch.device) -> Tensor:
    """A weight of a `random-bf16` target. Its name is part of the seed, so that a drafter draws its tables alone."""
    if len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16, device=device)
    number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest())
    generator = torch.Generator(device).manual_seed(TARGET_SEED + number)
    weight = torch.empty(shape, dtype=torch.bfloat16, device=device)
    return weight.normal_(std=config.initializer_range, generator=generator)


def _folder(preset: Preset, cache: Path) -> Path:
    if preset.target.source == "folder":
        return Path(preset.target.path)
    from pipeline.data.smollm2 import ensure_smollm2

    return ensure_smollm2(cache)


def _folder_skeleton(folder: Path) -> tuple[Any, Any]:
    """Config and architecture, on the meta device."""
    if not (folder / "config.json").is_file():
        what = "holds no config.json" if folder.is_dir() else "does not exist"
        raise UsageError(f"the target's folder {what}", where=str(folder), allowed=ALLOWED)
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        with torch.device("meta"):
            skeleton: Any = AutoModelForCausalLM.from_config(config)
    # transformers, huggingface_hub and json have a hand in it, and each raises its own.
    except Exception as error:
        raise _unusable(folder, f"transformers cannot build it: {_in_one_line(error)}") from error
    if not isinstance(getattr(getattr(skeleton, "model", None), "layers", None), nn.ModuleList):
        raise _unusable(folder, f"{type(skeleton).__name__} has no `model.layers`")
    return config, skeleton


def _folder_model(folder: Path) -> nn.Module:
    from transformers import AutoModelForCausalLM

    from pipeline.data.progress import quiet_bars

    _folder_skeleton(folder)
    try:
        # Every worker loads it: their bars would be drawn over each other.
        with quiet_bars():
            model, report = AutoModelForCausalLM.from_pretrained(
                folder, dtype="auto", local_files_only=True, output_loading_info=True, ignore_mismatched_sizes=True
            )
    except Exception as error:
        raise _unusable(folder, f"its weights cannot be loaded: {_in_one_line(error)}") from error
    # transformers fills what is missing with random numbers and only warns.
    unfit = sorted({*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])})
    if unfit:
        raise _unusable(folder, f"{len(unfit)} of its weights are missing or of another shape, such as {unfit[0]}")
    loaded: nn.Module = model
    return loaded


def _read_tables(folder: Path, config: Any, skeleton: Any) -> tuple[Tensor, Tensor] | None:
    """
    Embedding and head out of the folder's safetensors, tied as transformers ties them.

    None where they are not under the names of the architecture, or do not fit it: `load_target` may know what to do
    (its conversions, torch's own files), and says what is wrong.
    """
    layers = skeleton.get_input_embeddings(), skeleton.get_output_embeddings()
    name_of = {layer: f"{name}.weight" for name, layer in skeleton.named_modules()}
    names = [name_of[layer] for layer in layers]
    found = _read_tensors(folder, names)
    if layers[0].weight is layers[1].weight and found:
        # The one that is there stands for the other; where both are, each is its own.
        stand_in = next(iter(found.values()))
        found = {name: found.get(name, stand_in) for name in names}
    if any(
        name not in found or found[name].shape != layer.weight.shape for name, layer in zip(names, layers, strict=True)
    ):
        return None
    embedding_VD, head_VD = (found[name].to(config.dtype or found[name].dtype) for name in names)
    return embedding_VD, head_VD


def _read_tensors(folder: Path, names: Collection[str]) -> dict[str, Tensor]:
    """Those of *names* that lie in safetensors, in one file or in several with an index; no other tensor is read."""
    from safetensors import SafetensorError, safe_open
    from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

    index = folder / SAFE_WEIGHTS_INDEX_NAME
    tensors = {}
    try:
        file_of = dict.fromkeys(names, SAFE_WEIGHTS_NAME)
        if index.is_file():
            file_of = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        for name in (name for name in names if name in file_of):
            with safe_open(folder / file_of[name], framework="pt") as file:
                if name in file.keys():  # noqa: SIM118, it is no mapping
                    tensors[name] = file.get_tensor(name)
    except (OSError, ValueError, KeyError, SafetensorError):
        return {}
    return tensors


def _unusable(folder: Path, reason: str) -> UsageError:
    return UsageError(f"the model in the target's folder cannot be used: {reason}", where=str(folder), allowed=ALLOWED)


def _in_one_line(error: Exception) -> str:
    return shorten(str(error) or type(error).__name__, 300, placeholder=" …")
