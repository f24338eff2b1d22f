"""A place that cannot be written to is told before the work; looking makes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from flashprof.contracts.errors import UsageError
from pipeline.cli.places import NamedPath, require_plain_file, require_writable


@pytest.mark.parametrize("name", ["new", "new/deep/file.json", "file"])
def test_what_can_be_made_or_written_is_let_pass_and_not_made(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("kept", encoding="utf-8")
    require_writable(tmp_path / name, "--out")

    assert [tmp_path / "file"] == list(tmp_path.iterdir())
    assert "kept" == (tmp_path / "file").read_text(encoding="utf-8")


def test_an_option_that_is_not_given_is_let_pass() -> None:
    require_writable(None, "--out")


def test_a_path_through_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file is a file") as caught:
        require_writable(tmp_path / "file" / "deep" / "x", "--out")

    assert str(tmp_path / "file") == caught.value.where


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="no permission"):
        require_writable(tmp_path / "x", "--out")


@pytest.mark.parametrize("name", ["new", "file", "folder/new"])
def test_a_plain_file_or_none_is_let_pass(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    require_plain_file(tmp_path / name, "--json")
    require_plain_file(None, "--json")


@pytest.mark.parametrize("name", ["fifo", "link", "dangling", "folder"])
def test_what_is_no_plain_file_is_not_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(UsageError, match=f"--json: .*{name} is no plain file, and is not replaced"):
        require_plain_file(tmp_path / name, "--json")


def test_an_empty_string_is_no_path() -> None:
    with pytest.raises(click.BadParameter, match="an empty string is no path"):
        NamedPath(path_type=Path).convert("", None, None)

    assert Path("x") == NamedPath(path_type=Path).convert("x", None, None)
