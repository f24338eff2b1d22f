"""`flashprof doctor` from its command line: what cannot hold reports is refused before anything is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from flashprof.cli.doctor import command
from flashprof.contracts.errors import UsageError


@pytest.mark.parametrize("name", ["file", "device", "nowhere"])
def test_reports_that_are_no_folder_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "device").symlink_to("/dev/null")
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    error = CliRunner().invoke(command, ["--reports", str(tmp_path / name)], standalone_mode=False).exception

    assert isinstance(error, UsageError)
    assert str(tmp_path / name) == error.offered
