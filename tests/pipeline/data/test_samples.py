"""The Arrow data set holds what was encoded, and opens again without being rebuilt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flashprof.contracts.errors import UnknownNameError, UsageError
from pipeline.data.samples import Samples, open_samples
from pipeline.data.tokenizer import load_tokenizer


def open_again(cache: Path) -> Samples:
    return open_samples("stdlib", cache=cache, vocab_size=1024, max_length=512)


def test_the_info_describes_the_data_set(stdlib_samples: Samples, data_cache: Path) -> None:
    info = stdlib_samples.info
    described = (info.source, info.num_samples, info.vocab_size, info.mask_token_id, info.cache_path.parent)

    assert ("stdlib", stdlib_samples.dataset.num_rows, 1024, 2, data_cache / "samples") == described


def test_every_column_agrees_on_the_length(stdlib_samples: Samples) -> None:
    rows = stdlib_samples.dataset[:200]
    lengths = [len(ids) for ids in rows["input_ids"]]

    assert rows["length"] == lengths
    assert rows["length"] == [len(mask) for mask in rows["loss_mask"]]
    assert rows["length"] == stdlib_samples.lengths_N[:200].tolist()


def test_samples_are_cut_at_max_length(stdlib_samples: Samples) -> None:
    assert stdlib_samples.lengths_N.max() == 512


def test_the_first_quarter_is_unsupervised(stdlib_samples: Samples) -> None:
    for row in stdlib_samples.dataset.select(range(50)):
        num_unsupervised = row["length"] // 4

        assert [0] * num_unsupervised + [1] * (row["length"] - num_unsupervised) == row["loss_mask"]


def test_ids_are_text_of_the_library_and_never_the_mask(stdlib_samples: Samples) -> None:
    tokenizer = load_tokenizer(stdlib_samples.info.cache_path / "tokenizer.json")
    ids = np.concatenate([np.asarray(row) for row in stdlib_samples.dataset[:500]["input_ids"]])

    assert stdlib_samples.info.mask_token_id not in ids
    assert ids.max() < stdlib_samples.info.vocab_size
    assert "import " in tokenizer.decode(ids.tolist())


def test_the_file_is_read_lazily(stdlib_samples: Samples) -> None:
    (file,) = stdlib_samples.dataset.cache_files

    assert str(stdlib_samples.info.cache_path / "samples.arrow") == file["filename"]


def test_it_is_not_built_again(stdlib_samples: Samples, data_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = open_again(data_cache)

    assert stdlib_samples.info == again.info
    assert capsys.readouterr().err == ""


def test_another_length_is_another_folder(stdlib_samples: Samples, tmp_path: Path) -> None:
    other = open_samples("stdlib", cache=tmp_path, vocab_size=300, max_length=32)

    assert stdlib_samples.info.cache_path.name != other.info.cache_path.name
    assert other.lengths_N.max() == 32


def test_an_unknown_source_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError) as caught:
        open_samples("stdlb", cache=tmp_path, vocab_size=1024, max_length=512)

    assert caught.value.what == "unknown data source 'stdlb' (did you mean 'stdlib'?)"
    assert caught.value.allowed == "stdlib, dialogues"


@pytest.mark.parametrize(
    ("source", "vocab_size", "max_length", "allowed"),
    [
        ("stdlib", 1024, 31, "32 or more"),
        ("stdlib", 100, 64, "259 or more"),
        ("dialogues", 4096, 64, "vocab_size=49152"),
    ],
)
def test_a_size_that_does_not_fit_is_refused_and_leaves_no_folder(
    tmp_path: Path, source: str, vocab_size: int, max_length: int, allowed: str
) -> None:
    with pytest.raises(UsageError) as caught:
        open_samples(source, cache=tmp_path, vocab_size=vocab_size, max_length=max_length)

    assert allowed in str(caught.value.allowed)
    assert not [path for path in tmp_path.rglob("*") if path.suffix != ".lock" and path.name != "samples"]
