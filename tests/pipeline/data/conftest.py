"""Data sets and tokenizers that are built once for all tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.data.samples import Samples, open_samples
from pipeline.data.tokenizer import train_bpe
from pipeline.presets import TINY, Preset

VOCAB_SIZE = 1024
MAX_LENGTH = 512
CHAT_VOCAB_SIZE = 320
"""20 or so more than the tokenizer has: embeddings are often padded."""

TEMPLATES = {
    # As Qwen3's: an answer that is the last one gets an empty thought, a past one loses its thought.
    "thinking": (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' and loop.last and '</think>' not in m.content %}<think>\n\n</think>\n\n{% endif %}"
        "{{ m.content if loop.last else m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    # As Llama 3's: a first token, headers of two tokens, and words without the space around them.
    "headers": (
        "{% for m in messages %}{% if loop.first %}<|start|>{% endif %}"
        "<|start_header|>{{ m.role }}<|end_header|>\n\n{{ m.content | trim }}<|eot|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header|>assistant<|end_header|>\n\n{% endif %}"
    ),
    "marked": (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
        "{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    # As gpt-oss's: the last answer ends otherwise than those that a user follows.
    "two ends": (
        "{% for m in messages %}<|im_start|>{{ m.role }}{{ ':' }}{{ m.content }}"
        "{{ '<|eot|>' if loop.last and m.role == 'assistant' else '<|im_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}"
    ),
    "endless": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
    # Tells how many messages there are: no beginning of it is the beginning of a longer one.
    "unstable": "{{ messages | length }}{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}",
    "refusing": (
        "{% for m in messages %}{{ raise_exception('no system') if m.role == 'system' }}"
        "{{ m.content }}<|im_end|>{% endfor %}"
    ),
}
SPECIAL_TOKENS = ["<|im_start|>", "<|im_end|>", "<|start|>", "<|start_header|>", "<|end_header|>", "<|eot|>"]


@pytest.fixture(scope="session")
def data_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def stdlib_preset() -> Preset:
    return replace(
        TINY,
        target=replace(TINY.target, vocab_size=VOCAB_SIZE),
        data=replace(TINY.data, max_length=MAX_LENGTH, bucket_bounds=(128, 256, MAX_LENGTH)),
    )


@pytest.fixture(scope="session")
def stdlib_samples(data_cache: Path, stdlib_preset: Preset) -> Samples:
    return open_samples(stdlib_preset, cache=data_cache)


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[[str], Any]:
    """A small byte-level tokenizer with one of `TEMPLATES`."""
    from transformers import PreTrainedTokenizerFast

    learnt = train_bpe(["hello assistant, hello user\n"] * 9, 280).to_str()

    def make(template: str) -> Any:
        from tokenizers import AddedToken, Tokenizer

        fast = PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer.from_str(learnt), pad_token="<|pad|>", eos_token="<|eos|>"
        )
        fast.add_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
        fast.add_tokens([AddedToken(token, normalized=False) for token in ("<think>", "</think>")])
        fast.chat_template = TEMPLATES.get(template)
        return fast

    return make


@pytest.fixture(scope="session")
def chat_folder(tmp_path_factory: pytest.TempPathFactory, make_tokenizer: Callable[[str], Any]) -> Path:
    """What `data` needs of a transformers folder: config and tokenizer."""
    folder = tmp_path_factory.mktemp("target")
    make_tokenizer("headers").save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "vocab_size": CHAT_VOCAB_SIZE}))
    return folder


@pytest.fixture
def chat_preset(chat_folder: Path) -> Preset:
    """Conversations in the template `headers`; where they lie is left open."""
    return replace(
        TINY,
        target=replace(TINY.target, source="folder", path=str(chat_folder), mask_token_id=CHAT_VOCAB_SIZE - 1),
        data=replace(TINY.data, source="file", max_length=256),
    )


@pytest.fixture
def token_preset() -> Preset:
    """Pre-tokenised samples for a random target of 1,024 tokens, the last of which is the mask."""
    return replace(
        TINY,
        target=replace(TINY.target, vocab_size=VOCAB_SIZE, mask_token_id=VOCAB_SIZE - 1),
        data=replace(TINY.data, source="file", max_length=256),
    )
