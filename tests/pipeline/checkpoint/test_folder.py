"""Checkpoints: bit for bit back, the newest whole one found, older ones rotated away, damage named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import FlashProfError, FormatError, ToolError, UsageError
from pipeline.checkpoint.folder import (
    find_checkpoint,
    has_checkpoints,
    load_weights,
    read_state,
    restore,
    save_checkpoint,
)

FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
Make = Callable[..., Any]


@pytest.fixture
def save(tmp_path: Path, make_learner: Make, make_state: Make) -> Callable[..., Path]:
    def saved(step: int, *, keep: int = 9, root: Path = tmp_path / "checkpoints") -> Path:
        learner = make_learner(seed=step)
        learner.learn(step)
        return save_checkpoint(
            root, make_state(step=step), learner.drafter.state_dict(), learner.optimizer, learner.names, keep=keep
        )

    return saved


def read_everything(path: Path, learner: Any) -> None:
    read_state(path)
    restore(path, learner.drafter, learner.optimizer)


@pytest.mark.parametrize("fused", [False, True])
def test_a_resumed_run_goes_on_bit_for_bit(
    tmp_path: Path, make_learner: Make, make_state: Make, *, fused: bool
) -> None:
    whole, resumed = make_learner(fused=fused), make_learner(seed=1, fused=fused)
    for step in range(3):
        whole.learn(step)
    state = make_state(step=3)
    path = save_checkpoint(tmp_path, state, whole.drafter.state_dict(), whole.optimizer, whole.names, keep=2)

    restore(path, resumed.drafter, resumed.optimizer)
    for learner in (whole, resumed):
        learner.learn(3)
        learner.learn(4)

    assert state == read_state(path)
    expected, actual = whole.drafter.state_dict(), resumed.drafter.state_dict()
    assert [] == [name for name in expected if not torch.equal(expected[name], actual[name])]


def test_weights_have_z_labs_names_in_float32(save: Make) -> None:
    weights = load_weights(save(5))

    assert {"fc.weight", "norm.weight", "layers.1.self_attn.k_norm.weight"} <= weights.keys()
    assert {torch.float32} == {tensor.dtype for tensor in weights.values()}


def test_the_learning_rate_stays_the_schedules(tmp_path: Path, make_learner: Make, make_state: Make) -> None:
    learner, other = make_learner(), make_learner()
    learner.learn(0)
    path = save_checkpoint(
        tmp_path, make_state(), learner.drafter.state_dict(), learner.optimizer, learner.names, keep=1
    )
    other.optimizer.param_groups[0]["lr"] = 0.125

    restore(path, other.drafter, other.optimizer)

    assert 0.125 == other.optimizer.param_groups[0]["lr"]


def test_a_run_that_has_not_stepped_is_restored_too(tmp_path: Path, make_learner: Make, make_state: Make) -> None:
    learner, other = make_learner(), make_learner(seed=1)
    path = save_checkpoint(
        tmp_path, make_state(step=0), learner.drafter.state_dict(), learner.optimizer, learner.names, keep=1
    )

    restore(path, other.drafter, other.optimizer)

    assert {} == other.optimizer.state_dict()["state"]
    assert torch.equal(learner.drafter.fc.weight, other.drafter.fc.weight)


def test_a_step_that_is_saved_again_is_replaced(
    save: Make, tmp_path: Path, make_learner: Make, make_state: Make
) -> None:
    save(7)
    learner = make_learner(seed=99)
    path = save_checkpoint(
        tmp_path / "checkpoints",
        make_state(step=7),
        learner.drafter.state_dict(),
        learner.optimizer,
        learner.names,
        keep=1,
    )

    assert torch.equal(learner.drafter.fc.weight, load_weights(path)["fc.weight"])
    assert ["step-00000007"] == [entry.name for entry in path.parent.iterdir()]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.integers(0, 12), min_size=1, max_size=8), keep=st.integers(1, 4))
def test_rotation_keeps_the_newest_and_nothing_later_is_lost(make_state: Make, steps: list[int], keep: int) -> None:
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.AdamW([weight])
    with TemporaryDirectory() as folder:
        expected: set[int] = set()
        for step in steps:
            save_checkpoint(Path(folder), make_state(step=step), {"w": weight}, optimizer, ["w"], keep=keep)
            up_to_now = sorted(number for number in expected | {step} if number <= step)
            expected = {number for number in expected if number > step} | set(up_to_now[-keep:])

            assert {f"step-{number:08d}" for number in expected} == {path.name for path in Path(folder).iterdir()}
            assert f"step-{max(expected):08d}" == find_checkpoint(Path(folder)).name


def test_the_newest_is_found_by_number_among_strangers(save: Make, tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    save(99_999_999)
    newest = save(100_000_000)
    (root / "step-200000000").mkdir()
    (root / "step-300000000").write_text("a file")
    (root / "step-0400000000.bak").mkdir()
    shutil.copytree(newest, root / "step-500000000-copy")
    shutil.copytree(newest, root / ".step-600000000.part")
    (root / "notes.txt").write_text("mine")

    assert newest == find_checkpoint(root)
    assert newest == find_checkpoint(newest)
    assert (root / "step-500000000-copy") == find_checkpoint(root / "step-500000000-copy")


def test_what_a_killed_save_left_is_swept(save: Make, tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    old = save(1)
    shutil.copytree(old, root / ".step-00000002.part")
    shutil.copytree(old, root / ".step-00000003.trash")
    (root / ".mine.part").mkdir()

    save(4)

    assert {".mine.part", "step-00000001", "step-00000004"} == {path.name for path in root.iterdir()}


def test_a_checkpoint_that_was_being_replaced_is_found(save: Make, tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    path = save(1)
    path.rename(root / ".step-00000001.replaced")

    found = find_checkpoint(root)

    assert has_checkpoints(root)
    assert 1 == read_state(found).step
    assert "fc.weight" in load_weights(found)


@pytest.mark.parametrize(
    ("make", "offered"),
    [
        (lambda root: None, "no such folder"),
        (lambda root: root.mkdir(), "an empty folder"),
        (lambda root: root.write_text("x"), "a file"),
        (lambda root: [(root / f"run-{i}").mkdir(parents=True) for i in range(10)], "run-7 and 2 more"),
    ],
)
def test_where_no_checkpoint_is_the_error_lists_what_there_is(
    tmp_path: Path, make: Callable[[Path], Any], offered: str
) -> None:
    root = tmp_path / "checkpoints"
    make(root)

    with pytest.raises(UsageError, match="no checkpoint") as caught:
        find_checkpoint(root)

    assert not has_checkpoints(root)
    assert offered in (caught.value.offered or "")
    assert "state.json" in (caught.value.allowed or "")


def test_a_mistyped_step_offers_the_newest_beside_it(save: Make) -> None:
    path = save(200)

    with pytest.raises(UsageError) as caught:
        find_checkpoint(path.with_name("step-200"))

    assert str(path) in (caught.value.next_command or "")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_file_that_was_cut_off_is_named_and_the_older_checkpoint_offered(
    save: Make, make_learner: Make, name: str, share: float
) -> None:
    older, newest = save(1), save(2)
    content = (newest / name).read_bytes()
    (newest / name).write_bytes(content[: int(share * len(content))])

    with pytest.raises(FormatError) as caught:
        read_everything(newest, make_learner())

    assert str(newest / name) == caught.value.where
    assert str(older) in (caught.value.next_command or "")


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_rubbish_is_named(save: Make, make_learner: Make, name: str) -> None:
    path = save(1)
    (path / name).write_bytes(b"\xff\x00 rubbish" * 100)

    with pytest.raises(FormatError) as caught:
        read_everything(path, make_learner())

    assert str(path / name) == caught.value.where
    assert "no older checkpoint" in (caught.value.next_command or "")


@pytest.mark.parametrize("name", FILES[:2])
def test_a_checkpoint_that_lacks_a_file_is_no_checkpoint(save: Make, name: str) -> None:
    older, newest = save(1), save(2)
    (newest / name).unlink()

    assert older == find_checkpoint(newest.parent)
    with pytest.raises(FormatError, match=name) as caught:
        find_checkpoint(newest)
    assert str(older) in (caught.value.next_command or "")


def test_an_optimizer_file_that_lacks_a_parameter_is_named(
    tmp_path: Path, make_learner: Make, make_state: Make
) -> None:
    learner = make_learner()
    learner.learn(0)
    renamed = ["other", *learner.names[1:]]
    path = save_checkpoint(tmp_path, make_state(), learner.drafter.state_dict(), learner.optimizer, renamed, keep=1)

    with pytest.raises(FormatError, match=learner.names[0]):
        restore(path, learner.drafter, learner.optimizer)


def test_a_drafter_of_another_shape_is_refused_untouched(save: Make, make_learner: Make, make_state: Make) -> None:
    wider = make_learner(shape=replace(make_state().shape, intermediate_size=64, num_layers=3))
    before = wider.drafter.fc.weight.clone()

    with pytest.raises(UsageError, match="another drafter") as caught:
        restore(save(1), wider.drafter, wider.optimizer)

    assert "(32, 48) instead of (32, 64)" in (caught.value.offered or "")
    assert "state.json" in (caught.value.next_command or "")
    assert torch.equal(before, wider.drafter.fc.weight)


def test_a_disk_without_room_says_how_much_is_needed_and_nothing_is_lost(
    save: Make, tmp_path: Path, make_learner: Make, make_state: Make
) -> None:
    old = save(1)
    learner = make_learner()
    # 4 PiB that take no memory here.
    huge = {"fc.weight": torch.zeros(1).expand(2**50)}

    with pytest.raises(ToolError, match="step 2") as caught:
        save_checkpoint(old.parent, make_state(step=2), huge, learner.optimizer, learner.names, keep=1)

    assert "4,294,967,297 MiB" in (caught.value.allowed or "")
    assert "intact" in (caught.value.next_command or "")
    assert ["step-00000001"] == [path.name for path in old.parent.iterdir()]


def test_a_root_that_cannot_be_made_is_a_tool_error(save: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(ToolError, match="Not a directory") as caught:
        save(1, root=tmp_path / "file" / "checkpoints")

    assert "df -h" in (caught.value.next_command or "")


def test_every_error_is_one_that_the_command_line_prints(save: Make, make_learner: Make) -> None:
    path = save(1)
    for name in FILES:
        (path / name).unlink()
        with pytest.raises(FlashProfError):
            read_everything(path, make_learner())
