"""An export is whole or not there, and replaces nothing by chance."""

from __future__ import annotations

import errno
import gzip
from pathlib import Path

import pytest

from flashprof.contracts.errors import ToolError, UsageError
from flashprof.store.export_output import STDOUT, new_files, text_output


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_text_is_there_when_all_is_written(tmp_path: Path) -> None:
    with text_output(tmp_path / "deep" / "a.txt", force=False) as write:
        write("one ▸ \ud800")
        assert ["deep"] == names(tmp_path)
        assert not (tmp_path / "deep" / "a.txt").exists()

    assert "one ▸ ?" == (tmp_path / "deep" / "a.txt").read_text(encoding="utf-8")
    assert ["a.txt"] == names(tmp_path / "deep")


def test_what_ends_with_gz_is_compressed_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        with text_output(tmp_path / name, force=False) as write:
            write("text" * 1000)

    assert "text" * 1000 == gzip.decompress((tmp_path / "a.gz").read_bytes()).decode()
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_standard_output_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with text_output(STDOUT, force=False) as write:
        write("text")

    assert "text" == capsys.readouterr().out


def test_a_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")

    with pytest.raises(UsageError) as caught, text_output(target, force=False) as write:
        write("new")

    assert "old" == target.read_text()
    assert str(target) in str(caught.value)
    assert "--force" in str(caught.value)

    with text_output(target, force=True) as write:
        write("new")

    assert "new" == target.read_text()


def test_what_is_no_plain_file_is_not_replaced_by_force_either(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")

    for name in ("folder", "link"):
        with pytest.raises(UsageError, match="no plain file"), text_output(tmp_path / name, force=True):
            pass

    assert ["folder", "link"] == names(tmp_path)


def fail(folder: Path) -> None:
    with new_files([folder / "a", folder / "b"], force=True) as parts:
        parts[folder / "a"].write_text("new")
        raise ZeroDivisionError


def test_nothing_is_left_of_what_failed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")

    with pytest.raises(ZeroDivisionError):
        fail(tmp_path)

    assert ["a"] == names(tmp_path)
    assert "old" == (tmp_path / "a").read_text()


def test_a_full_disk_is_the_tools_failure(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="No space") as caught, text_output(tmp_path / "a", force=False):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert 4 == caught.value.exit_code
    assert [] == names(tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match=r"cannot write a.txt"), text_output(tmp_path / "file" / "a.txt", force=False):
        pass


def test_what_fails_while_the_run_is_read_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), text_output(tmp_path / "out" / "a.txt", force=False):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "run" / "events"))
