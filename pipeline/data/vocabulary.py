"""The target's tokens: its tokenizer, the size of its vocabulary, and the one that stands for "to be drafted"."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashprof.contracts.errors import UnknownNameError, UsageError
from pipeline.data.chat import special_tokens
from pipeline.data.paths import missing_path
from pipeline.data.smollm2 import CONVERTER_VERSION, MASK_TOKEN_ID, VOCAB_SIZE, ensure_smollm2
from pipeline.presets import RANDOM_SOURCES, TargetPlan

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TARGET_SOURCES = (*RANDOM_SOURCES, "smollm2", "folder")
VOCABULARY_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
"""A folder without any of them has no tokenizer, though transformers makes an empty one out of the config."""
TOKENIZER_FILES = (
    *VOCABULARY_FILES,
    "merges.txt",
    "config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)
"""What decides how text becomes ids; those that a folder has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """What the target's ids mean."""

    size: int
    tokenizer: PreTrainedTokenizerBase | None = None
    """None: ids without text, as a random target has them."""
    own_mask_token_id: int | None = None
    """The mask that comes with the target or the text, where somebody chose one."""
    reserved: Mapping[int, str]
    """Ids with a meaning of their own, which would become the mask's too."""
    where: str = ""


def target_identity(target: TargetPlan) -> list[Any]:
    """
    What tells one target's tokens from another's, for the cache's key; loads nothing.

    Raises:
        UsageError: The folder is not there.
        UnknownNameError: There is no such kind of target.
    """
    if target.source not in TARGET_SOURCES:
        raise UnknownNameError("target source", target.source, TARGET_SOURCES)
    if target.is_random:
        return ["random", target.vocab_size, target.mask_token_id]
    if target.source == "smollm2":
        return ["smollm2", CONVERTER_VERSION, target.mask_token_id]
    folder = _checked_folder(target)
    files = [(name, _digest(folder / name)) for name in TOKENIZER_FILES if (folder / name).is_file()]
    return ["folder", files, target.mask_token_id]


def load_vocabulary(target: TargetPlan, cache: Path) -> Vocabulary:
    """
    The target's vocabulary, with its tokenizer if it has one.

    Raises:
        UsageError: The folder or the optional package is not there, or its files cannot be used.
        ToolError: SmolLM2 cannot be converted.
    """
    if target.is_random:
        return Vocabulary(size=target.vocab_size, reserved={})
    if target.source == "smollm2":
        folder = ensure_smollm2(cache)
        return _with_tokenizer(folder, size=VOCAB_SIZE, own_mask_token_id=MASK_TOKEN_ID)
    folder = _checked_folder(target)
    size = _config_vocab_size(folder)
    if not any((folder / name).is_file() for name in VOCABULARY_FILES):
        return Vocabulary(size=size, reserved={}, where=str(folder))
    return _with_tokenizer(folder, size=size, own_mask_token_id=None)


def choose_mask_token(vocabulary: Vocabulary, chosen: int | None) -> int:
    """
    The id that stands for "to be drafted": *chosen*, or the vocabulary's own.

    Never guessed: a pad token taken for it, which is often eos too, trains drafters that are silently worse
    (NeMo#2461, SpecForge#604).

    Raises:
        UsageError: There is none, it is outside the vocabulary, or it is pad, eos or the like.
    """
    mask_token_id = vocabulary.own_mask_token_id if chosen is None else chosen
    advice = {"where": vocabulary.where or None, "next_command": _suggestion(vocabulary)}
    if mask_token_id is None:
        raise UsageError(
            "no mask token is known for this target", allowed="an id that no text contains, not pad or eos", **advice
        )
    if not 0 <= mask_token_id < vocabulary.size:
        raise UsageError(
            "the mask token is not in the vocabulary",
            offered=str(mask_token_id),
            allowed=f"0 to {vocabulary.size - 1:,}",
            **advice,
        )
    if mask_token_id in vocabulary.reserved:
        raise UsageError(
            f"the mask token is the {vocabulary.reserved[mask_token_id]} token, whose embedding means something else",
            offered=str(mask_token_id),
            allowed="an id that no text contains",
            **advice,
        )
    return mask_token_id


def _suggestion(vocabulary: Vocabulary) -> str:
    tokenizer = vocabulary.tokenizer
    if tokenizer is None:
        return f"--mask-token-id {vocabulary.size - 1}   (or another that no sample contains)"
    # Embeddings are often padded to a round number: such a row belongs to no token (Qwen3-8B: 151669 of 151936).
    if len(tokenizer) < vocabulary.size:
        return f"--mask-token-id {len(tokenizer)}"
    template = str(tokenizer.chat_template)
    tokens = [token for token in special_tokens(tokenizer) if token not in template]
    ids: Any = tokenizer.convert_tokens_to_ids(tokens)
    free = [f"{i} ({token})" for token, i in zip(tokens, ids, strict=True) if i not in vocabulary.reserved]
    return f"--mask-token-id ID, such as {', '.join(free[:4])}" if free else "--mask-token-id ID, a token of no use"


def _with_tokenizer(folder: Path, *, size: int, own_mask_token_id: int | None) -> Vocabulary:
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    # Whatever the files hold: tokenizers raises bare `Exception`, transformers OSError, ValueError, KeyError.
    except Exception as error:
        raise UsageError(
            f"cannot load the target's tokenizer: {error}", where=str(folder), allowed="a folder with tokenizer.json"
        ) from error
    named = {name: getattr(tokenizer, f"{name}_token_id") for name in ("pad", "eos", "bos", "unk")}
    return Vocabulary(
        size=size,
        tokenizer=tokenizer,
        own_mask_token_id=own_mask_token_id,
        reserved={token_id: name for name, token_id in named.items() if token_id is not None},
        where=str(folder),
    )


def _config_vocab_size(folder: Path) -> int:
    from transformers import AutoConfig

    try:
        config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
        return int(config.get_text_config().vocab_size)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UsageError(
            f"cannot read the target's vocabulary size: {error}",
            where=str(folder / "config.json"),
            allowed="a transformers config with vocab_size",
        ) from error


def _checked_folder(target: TargetPlan) -> Path:
    folder = Path(target.path)
    if not target.path or not folder.is_dir():
        raise missing_path(
            folder, "target folder", allowed="a transformers folder: config.json, tokenizer.json, weights"
        )
    return folder


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
