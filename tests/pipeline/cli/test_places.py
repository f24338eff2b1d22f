"""A place that cannot be written to is told before the work; looking makes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flashprof.contracts.errors import UsageError
from pipeline.cli.places import require_writable


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
