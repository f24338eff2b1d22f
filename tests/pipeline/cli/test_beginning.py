"""Fresh, warm or resumed: what a run begins with, and which options a resumed one refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import pytest
import torch
from checkpoints import some_state
from torch import nn

from flashprof.contracts.errors import UsageError
from flashprof.contracts.toggles import parse_toggles
from pipeline.checkpoint.folder import save_checkpoint
from pipeline.cli.beginning import Beginning, find_beginning
from pipeline.cli.train import train
from pipeline.presets import TINY
from pipeline.toggles import REGISTRY

PRESET = replace(TINY, recipe=replace(TINY.recipe, lr=0.125))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint folder as a run leaves it."""
    model = nn.Linear(2, 2)
    model(torch.ones(2)).sum().backward()
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.step()
    for step in (30, 40):
        state = some_state(step=step, seed=5, preset=PRESET, toggles=parse_toggles("swa,queue=3", REGISTRY))
        save_checkpoint(tmp_path / "run", state, model.state_dict(), optimizer, ["weight", "bias"], keep=3)
    return tmp_path / "run"


def begin(*arguments: str) -> Beginning:
    context = train.make_context("train", list(arguments))
    return find_beginning(context, context.params)


def test_a_fresh_run_takes_preset_and_options() -> None:
    beginning = begin("--preset", "tiny", "--lr", "0.5", "--steps", "7", "--seed", "3", "--toggles", "swa")

    assert (0.5, 7, 3, 0) == (beginning.preset.recipe.lr, beginning.num_steps, beginning.seed, beginning.start_step)
    assert beginning.toggles["swa"]


@pytest.mark.parametrize("name", ["", "step-00000040"])
def test_a_resumed_run_takes_all_from_the_checkpoint(folder: Path, name: str) -> None:
    beginning = begin("--resume", str(folder / name))

    assert folder / "step-00000040" == beginning.resume_from
    assert (PRESET, 5, 90, 40) == (beginning.preset, beginning.seed, beginning.num_steps, beginning.start_step)
    assert ("swa", 3) == ("swa" if beginning.toggles["swa"] else "", beginning.toggles["queue"])


def test_steps_and_toggles_can_be_given_anew(folder: Path) -> None:
    beginning = begin("--resume", str(folder), "--steps", "200", "--toggles", "none")

    assert 200 == beginning.num_steps
    assert not beginning.toggles["swa"]


def test_auto_resumes_the_newest_and_begins_where_there_is_none(folder: Path, tmp_path: Path) -> None:
    old = begin("--resume", "auto", "--checkpoints", str(folder))
    new = begin("--resume", "auto", "--checkpoints", str(tmp_path / "new"))

    assert (40, 0) == (old.start_step, new.start_step)


@pytest.mark.parametrize(
    "option", [("--lr", "1"), ("--preset", "tiny"), ("--seed", "0"), ("--accumulate", "2"), ("--buckets", "64,128")]
)
def test_options_that_contradict_the_checkpoint_are_named(folder: Path, option: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=option[0]):
        begin("--resume", str(folder), *option)


def test_a_job_script_that_is_started_again_resumes(folder: Path) -> None:
    # The fixture's run: the preset with this learning rate, seed 5.
    same = ("--preset", "tiny", "--lr", "0.125", "--seed", "5", "--steps", "90")

    assert 40 == begin(*same, "--checkpoints", str(folder), "--resume", "auto").start_step


def test_a_folder_of_another_run_is_not_written_over(folder: Path) -> None:
    with pytest.raises(UsageError, match="earlier run") as caught:
        begin("--checkpoints", str(folder))

    assert "--resume auto" in str(caught.value.next_command)


def test_an_older_checkpoint_is_not_continued_into_a_folder_with_later_ones(folder: Path, tmp_path: Path) -> None:
    older = str(folder / "step-00000030")

    with pytest.raises(UsageError, match="later steps"):
        begin("--resume", older, "--checkpoints", str(folder))
    assert 30 == begin("--resume", older, "--checkpoints", str(tmp_path / "other")).start_step


def test_auto_without_a_folder_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--checkpoints"):
        begin("--resume", "auto")


def test_no_checkpoint_where_one_is_asked_for_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no checkpoint"):
        begin("--resume", str(tmp_path))


def test_a_warm_start_that_is_no_drafter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException):
        train.make_context("train", ["--warm-start", str(tmp_path / "missing")])
