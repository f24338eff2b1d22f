"""A path that is not there offers its neighbour."""

from __future__ import annotations

from pathlib import Path

from pipeline.data.paths import missing_path


def test_the_nearest_name_is_offered(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").touch()
    error = missing_path(tmp_path / "chat.jsonl", "file", allowed="a file")

    assert error.what == "there is no file 'chat.jsonl' (did you mean 'chats.jsonl'?)"
    assert str(tmp_path / "chat.jsonl") == error.where


def test_without_a_folder_nothing_is_offered(tmp_path: Path) -> None:
    assert missing_path(tmp_path / "x" / "y", "file", allowed="a file").what == "there is no file 'y'"


def test_a_file_in_the_place_of_a_folder_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()

    assert "'notes.txt' is no target folder" == missing_path(tmp_path / "notes.txt", "target folder", allowed="").what
