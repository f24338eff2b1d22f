"""Options change the preset, and those that do not fit each other are refused with the one to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flashprof.contracts.errors import UsageError
from pipeline.cli.workload import make_workload
from pipeline.presets import TINY

NOTHING = dict.fromkeys(
    (
        "target", "data", "mask_token_id", "max_length", "buckets", "token_budget", "batches", "anchors",
        "lr", "schedule", "warmup_ratio", "accumulate",
    )
)  # fmt: skip


def make(**given: Any) -> Any:
    return make_workload(NOTHING | {"preset": "tiny"} | given)


def test_without_options_it_is_the_preset() -> None:
    assert TINY == make()


def test_the_recipe_takes_what_is_given() -> None:
    recipe = make(lr=0.5, schedule="wsd", accumulate=4, warmup_ratio=0.0).recipe

    assert (0.5, "wsd", 4, 0.0) == (recipe.lr, recipe.schedule, recipe.accumulate, recipe.warmup_ratio)


def test_own_target_and_data_are_kept_by_their_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    preset = make(target=Path("model"), data=Path("data.jsonl"), mask_token_id=7)

    assert ("folder", str(tmp_path / "model"), 7) == (
        preset.target.source,
        preset.target.path,
        preset.target.mask_token_id,
    )
    assert ("file", str(tmp_path / "data.jsonl")) == (preset.data.source, preset.data.path)


def test_a_shorter_longest_sample_drops_the_buckets_above_it() -> None:
    data = make(max_length=300).data

    assert (128, 256, 300) == data.bucket_bounds
    assert 300 == data.max_length


def test_buckets_set_the_longest_sample() -> None:
    data = make(buckets="64, 512,2048").data

    assert ((64, 512, 2048), 2048) == (data.bucket_bounds, data.max_length)


def test_the_qwen3_8b_recipe_is_the_peers(tmp_path: Path) -> None:
    """SpecForge#463: lr 6e-4, cosine, 4 % warm-up, clip 1.0; block 16, 512 anchors a sample, γ 7, 3,072 tokens."""
    preset = make(preset="qwen3-8b", target=tmp_path, data=tmp_path / "data.jsonl")
    recipe, drafter = preset.recipe, preset.drafter

    assert (6e-4, "cosine", 0.04, 1.0) == (recipe.lr, recipe.schedule, recipe.warmup_ratio, recipe.max_grad_norm)
    assert (16, 7.0, 5) == (drafter.block_size, drafter.loss_decay_gamma, len(drafter.layer_types))
    assert 512 == drafter.num_anchors * preset.data.max_length / preset.data.token_budget
    assert (3072, 151_669) == (preset.data.max_length, preset.target.mask_token_id)


@pytest.mark.parametrize(
    "given",
    [
        {"preset": "qwen3-8b"},
        {"preset": "qwen3-8b", "data": Path("data.jsonl")},
        {"buckets": "512,64"},
        {"buckets": "64,64"},
        {"buckets": "0,64"},
        {"buckets": ""},
        {"buckets": "64,many"},
        {"buckets": "64,512", "max_length": 256},
        {"token_budget": 512},
        {"buckets": "64,4096"},
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_with_a_remedy(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        make(**given)

    assert caught.value.next_command


def test_batches_are_filled_where_that_is_asked_for() -> None:
    assert ("bucketed", "filled") == (make().data.batches, make(batches="filled").data.batches)


def test_the_budget_that_is_advised_holds_the_longest_sample_padded() -> None:
    with pytest.raises(UsageError) as caught:
        make(max_length=1000, token_budget=1000)

    assert "--token-budget 1024" == caught.value.next_command
    assert 1024 == make(max_length=1000, token_budget=1024).data.token_budget
