"""Stack files are found by their names, in the order of their windows, and never outside the folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flashprof.contracts.errors import FormatError
from flashprof.contracts.profiles import StackView
from flashprof.sample.stack_files import (
    LOOKS_FILE,
    MAX_FILE_BYTES,
    find_stack_files,
    read_lines,
    read_looks,
    stack_file_name,
    write_looks,
)


def test_window_role_rank_and_view_are_read_from_the_path(tmp_path: Path) -> None:
    for name in ("profile-10/drafter-0.folded", "profile-2/my-role-11.folded", "profile-2/drafter-0.gil.folded"):
        _write(tmp_path / name)
    found = [(file.window, file.role, file.rank, file.view) for file in find_stack_files(tmp_path)]

    assert [
        ("profile-2", "drafter", 0, StackView.GIL),
        ("profile-2", "my-role", 11, StackView.ALL),
        ("profile-10", "drafter", 0, StackView.ALL),
    ] == found


@pytest.mark.parametrize("view", [StackView.ALL, StackView.GIL])
def test_a_name_that_was_made_is_found(tmp_path: Path, view: StackView) -> None:
    _write(tmp_path / "w" / stack_file_name("drafter-3", view))
    [file] = find_stack_files(tmp_path)

    assert ("drafter", 3, view) == (file.role, file.rank, file.view)


def test_what_is_no_stack_file_of_this_folder_is_left_out(tmp_path: Path) -> None:
    samples, outside = tmp_path / "samples", tmp_path / "outside"
    for path in (samples / "w" / "drafter.folded", samples / "w" / "drafter-x.folded", outside / "target-0.folded"):
        _write(path)
    (samples / "w" / "target-0.folded").symlink_to(outside / "target-0.folded")
    (samples / "linked").symlink_to(outside)
    (samples / "w" / "drafter-4.folded").symlink_to("drafter-4.folded")
    (samples / "w" / "drafter-1.folded").mkdir()
    os.mkfifo(samples / "w" / "drafter-2.folded")
    with (samples / "w" / "drafter-3.folded").open("wb") as huge:
        huge.truncate(MAX_FILE_BYTES + 1)

    assert [] == find_stack_files(samples)


def test_bytes_that_are_no_text_are_no_error(tmp_path: Path) -> None:
    path = tmp_path / "w" / "drafter-0.folded"
    _write(path)
    path.write_bytes(b"\xff\xfe 1\nf (a.py:1) 2\n")
    [file] = find_stack_files(tmp_path)

    assert "f (a.py:1) 2" == read_lines(file)[1]


def test_the_number_of_looks_is_read_back(tmp_path: Path) -> None:
    before = read_looks(tmp_path)
    write_looks(tmp_path, 100)

    assert (0, 100) == (before, read_looks(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", "{}", '{"format": "flashprof-gil", "version": 1}', "[" * 100_000,
        '{"format": "flashprof-gil", "version": 2, "num_looks": 5}',
        '{"format": "flashprof-gil", "version": 1, "num_looks": -1}',
        '{"format": "flashprof-gil", "version": 1, "num_looks": true}',
    ],
)  # fmt: skip
def test_another_gil_view_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    (tmp_path / LOOKS_FILE).write_text(text)

    with pytest.raises(FormatError) as caught:
        read_looks(tmp_path)
    assert str(tmp_path / LOOKS_FILE) == caught.value.where


def _write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("f (a.py:1) 2\n")
