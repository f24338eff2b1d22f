"""An error that nobody has foreseen: told in full, and never with the status of a verdict."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from flashprof.contracts.errors import FlashProfError, ToolError, UsageError
from flashprof.contracts.failures import failure_of


def system_error(number: int, *place: str) -> OSError:
    return OSError(number, os.strerror(number), *place)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG])
def test_a_path_that_cannot_be_is_a_wrong_use(number: int) -> None:
    failure = failure_of(system_error(number, "reports"))

    assert (2, "reports", "another path") == (failure.exit_code, failure.where, failure.next_command)
    assert "255 bytes" in (failure.allowed or "")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (system_error(errno.ENOSPC), "No space left on device: while writing the output"),
        (system_error(errno.EPIPE), "Broken pipe: while writing the output"),
        (system_error(errno.EACCES, "reports"), "Permission denied: reports"),
        (system_error(errno.EIO), "Input/output error"),
        (system_error(errno.ENOENT), "No such file or directory"),
        (OSError("odd"), "odd"),
    ],
)
def test_another_failure_of_the_system_is_one_of_the_tool(error: OSError, said: str) -> None:
    failure = failure_of(error)

    assert (4, said) == (failure.exit_code, failure.what)


def test_a_link_to_itself_is_a_path_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises((RuntimeError, OSError)) as caught:
        (tmp_path / "loop" / "x").resolve(strict=True)
    failure = failure_of(caught.value)

    assert isinstance(failure, UsageError)
    assert f"{tmp_path}/loop" in (failure.where or "")


@pytest.mark.parametrize("error", [UsageError("no"), ToolError("full")])
def test_an_error_that_was_foreseen_is_told_as_it_is(error: FlashProfError) -> None:
    assert error is failure_of(error)


def bug() -> Exception:
    try:
        raise ZeroDivisionError("by nought")
    except ZeroDivisionError as error:
        return error


def test_a_bug_is_called_one_and_its_traceback_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    failure = failure_of(bug())
    (file,) = tmp_path.iterdir()

    assert (4, "ZeroDivisionError: by nought: this is a bug in FlashProf") == (failure.exit_code, failure.what)
    assert f"the traceback is in {file}" == failure.where
    assert "in bug" in file.read_text()


def test_a_traceback_that_cannot_be_kept_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))

    assert "in bug" in (failure_of(bug()).where or "")
