"""The Arrow data set holds what was encoded, opens again without being rebuilt, and never in another's place."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashprof.contracts.errors import FlashProfError, UnknownNameError, UsageError
from pipeline.data.arrow import NEVER
from pipeline.data.samples import Samples, open_samples
from pipeline.data.tokenizer import load_tokenizer
from pipeline.presets import TINY, Preset


def test_the_info_describes_the_data_set(stdlib_samples: Samples, data_cache: Path) -> None:
    info = stdlib_samples.info
    described = (info.source, info.num_samples, info.vocab_size, info.mask_token_id, info.dropped)

    assert ("stdlib", stdlib_samples.dataset.num_rows, 1024, 2, {}) == described
    assert data_cache / "samples" == info.cache_path.parent


def test_every_column_agrees_on_the_length(stdlib_samples: Samples) -> None:
    rows = stdlib_samples.dataset[:200]
    lengths = [len(ids) for ids in rows["input_ids"]]

    assert rows["length"] == lengths
    assert rows["length"] == [len(mask) for mask in rows["loss_mask"]]
    assert rows["length"] == stdlib_samples.lengths_N[:200].tolist()


def test_samples_are_cut_at_max_length(stdlib_samples: Samples) -> None:
    assert stdlib_samples.lengths_N.max() == 512


def test_the_first_quarter_is_unsupervised(stdlib_samples: Samples) -> None:
    for row, first in zip(stdlib_samples.dataset.select(range(50)), stdlib_samples.first_supervised_N, strict=False):
        num_unsupervised = row["length"] // 4

        assert [0] * num_unsupervised + [1] * (row["length"] - num_unsupervised) == row["loss_mask"]
        assert max(1, num_unsupervised) == first


def test_ids_are_text_of_the_library_and_never_the_mask(stdlib_samples: Samples) -> None:
    tokenizer = load_tokenizer(stdlib_samples.info.cache_path / "tokenizer.json")
    ids = np.concatenate([np.asarray(row) for row in stdlib_samples.dataset[:500]["input_ids"]])

    assert stdlib_samples.info.mask_token_id not in ids
    assert ids.max() < stdlib_samples.info.vocab_size
    assert "import " in tokenizer.decode(ids.tolist())


def test_the_file_is_read_lazily(stdlib_samples: Samples) -> None:
    (file,) = stdlib_samples.dataset.cache_files

    assert str(stdlib_samples.info.cache_path / "samples.arrow") == file["filename"]


def test_it_is_not_built_again(
    stdlib_samples: Samples, stdlib_preset: Preset, data_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = open_samples(stdlib_preset, cache=data_cache)

    assert stdlib_samples.info == again.info
    assert capsys.readouterr().err == ""


def test_an_unknown_source_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError) as caught:
        open_samples(replace(TINY, data=replace(TINY.data, source="stdlb")), cache=tmp_path)

    assert caught.value.what == "unknown data source 'stdlb' (did you mean 'stdlib'?)"
    assert caught.value.allowed == "stdlib, dialogues, synthetic, file"


def left_behind(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.suffix != ".lock" and path.name != "samples"]


@pytest.mark.parametrize(
    ("target", "data", "words"),
    [
        ({}, {"max_length": 31}, "32 or more"),
        ({"vocab_size": 100}, {}, "259 or more"),
        ({"source": "smollm2"}, {}, "stdlib has a vocabulary of its own"),
        ({"source": "foldr"}, {}, "unknown target source 'foldr' (did you mean 'folder'?)"),
        ({}, {"source": "dialogues"}, "conversations need a target with a tokenizer"),
        ({}, {"source": "file"}, "needs a path"),
        ({"mask_token_id": 1, "vocab_size": 300}, {}, "the mask token is the eos token"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_no_folder(
    tmp_path: Path, target: dict[str, Any], data: dict[str, Any], words: str
) -> None:
    preset = replace(TINY, target=replace(TINY.target, **target), data=replace(TINY.data, **data))
    with pytest.raises(UsageError) as caught:
        open_samples(preset, cache=tmp_path)

    assert words in str(caught.value)
    assert left_behind(tmp_path) == []


def write_samples(path: Path, *samples: tuple[list[int], list[int]]) -> None:
    path.write_text("".join(json.dumps({"input_ids": ids, "loss_mask": mask}) + "\n" for ids, mask in samples))


@pytest.fixture
def token_file(tmp_path: Path, token_preset: Preset) -> Preset:
    write_samples(tmp_path / "s.jsonl", ([5, 6, 7], [0, 1, 1]), ([8], [1]), ([9, 9], [0, 0]))
    return replace(token_preset, data=replace(token_preset.data, path=str(tmp_path / "s.jsonl")))


def test_a_file_of_samples_opens(tmp_path: Path, token_file: Preset) -> None:
    samples = open_samples(token_file, cache=tmp_path / "cache")

    assert samples.dataset[:]["input_ids"] == [[5, 6, 7], [8]]
    assert samples.dataset[:]["loss_mask"] == [[0, 1, 1], [1]]
    assert samples.first_supervised_N.tolist() == [1, NEVER]
    assert (samples.info.source, samples.info.vocab_size) == (token_file.data.path, 1024)
    assert samples.info.dropped == {"have nothing supervised within max_length": 1}


def touch(preset: Preset) -> Preset:
    os.utime(preset.data.path, ns=(0, 0))
    return preset


def grow(preset: Preset) -> Preset:
    path = Path(preset.data.path)
    stat = path.stat()
    path.write_text(path.read_text() + "\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return preset


CHANGES: dict[str, Callable[[Preset], Preset]] = {
    "length": lambda p: replace(p, data=replace(p.data, max_length=128)),
    "vocabulary": lambda p: replace(p, target=replace(p.target, vocab_size=2048)),
    "mask": lambda p: replace(p, target=replace(p.target, mask_token_id=1000)),
    "time of change": touch,
    "size": grow,
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_decides_the_samples_gets_a_folder_of_its_own(tmp_path: Path, token_file: Preset, change: str) -> None:
    first = open_samples(token_file, cache=tmp_path / "cache").info.cache_path
    second = open_samples(CHANGES[change](token_file), cache=tmp_path / "cache").info.cache_path

    assert first != second


@pytest.mark.parametrize("file", ["tokenizer.json", "chat_template.jinja", "config.json"])
def test_another_tokenizer_in_the_same_folder_is_another_data_set(
    tmp_path: Path, chat_preset: Preset, file: str
) -> None:
    target = tmp_path / "target"
    shutil.copytree(chat_preset.target.path, target)
    write_samples(tmp_path / "s.jsonl", ([5, 6, 7], [0, 1, 1]))
    preset = replace(
        chat_preset,
        target=replace(chat_preset.target, path=str(target)),
        data=replace(chat_preset.data, path=str(tmp_path / "s.jsonl")),
    )
    first = open_samples(preset, cache=tmp_path / "cache").info.cache_path
    (target / file).write_text((target / file).read_text() + " ")
    second = open_samples(preset, cache=tmp_path / "cache").info.cache_path

    assert first != second


def test_recipe_and_block_size_do_not_build_anew(tmp_path: Path, token_file: Preset) -> None:
    first = open_samples(token_file, cache=tmp_path / "cache").info.cache_path
    other = replace(
        token_file,
        drafter=replace(token_file.drafter, block_size=2),
        data=replace(token_file.data, token_budget=4096, held_out_share=0.5),
    )

    assert first == open_samples(other, cache=tmp_path / "cache").info.cache_path


def test_a_sample_with_the_mask_token_is_named(tmp_path: Path, token_file: Preset) -> None:
    with pytest.raises(UsageError, match="contains the mask token") as caught:
        open_samples(replace(token_file, target=replace(token_file.target, mask_token_id=8)), cache=tmp_path / "cache")

    assert f"{token_file.data.path}:2" == caught.value.where
    assert left_behind(tmp_path / "cache") == []


def test_a_tokenizer_larger_than_the_embedding_is_named(tmp_path: Path, chat_preset: Preset) -> None:
    target = tmp_path / "target"
    shutil.copytree(chat_preset.target.path, target)
    (target / "config.json").write_text(json.dumps({"model_type": "qwen3", "vocab_size": 281}))
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    (tmp_path / "c.jsonl").write_text(json.dumps({"messages": said}))
    preset = replace(
        chat_preset,
        target=replace(chat_preset.target, path=str(target), mask_token_id=2),
        data=replace(chat_preset.data, path=str(tmp_path / "c.jsonl")),
    )
    with pytest.raises(UsageError, match="no embedding") as caught:
        open_samples(preset, cache=tmp_path / "cache")

    assert f"{tmp_path}/c.jsonl:1" == caught.value.where


def test_files_with_nothing_to_learn_say_why(tmp_path: Path, token_file: Preset) -> None:
    write_samples(Path(token_file.data.path), ([5], [0]), ([6], [0]))
    with pytest.raises(FlashProfError) as caught:
        open_samples(token_file, cache=tmp_path / "cache")

    assert caught.value.offered == "2 have nothing supervised within max_length"
    assert left_behind(tmp_path / "cache") == []


def test_samples_split_by_their_own_columns(tmp_path: Path, token_file: Preset) -> None:
    split = open_samples(token_file, cache=tmp_path / "cache").split(block_size=3, held_out_share=0)

    assert (split.train_N.tolist(), split.held_out_N.tolist(), split.num_skipped) == ([0], [], 1)
