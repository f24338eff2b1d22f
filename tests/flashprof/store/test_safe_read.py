"""Nothing outside is read, nothing is waited for, and every refusal is a FormatError with a next command."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError
from flashprof.store.safe_read import (
    MAX_DEPTH,
    MAX_ENTRIES,
    check_tree,
    names_in,
    printable,
    read_bytes,
    read_document,
    read_head,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


def read_or_refused(folder: Path, name: str) -> dict[str, object] | str:
    """A document, or what the refusal says."""
    try:
        return read_document(folder, name)
    except FormatError as error:
        return error.what


def test_a_plain_file_is_read_through_folders(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"12345")

    assert b"12345" == read_bytes(tmp_path, "a", "b", "file", max_bytes=5)
    assert b"123" == read_head(tmp_path, "a", "b", "file", num_bytes=3)
    assert ["b"] == names_in(tmp_path, "a")


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path, "a", "file")


def test_a_file_over_the_bound_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"123456")

    with pytest.raises(FormatError, match="file is larger than"):
        read_bytes(tmp_path, "file", max_bytes=5)


@pytest.mark.parametrize("names", [("link",), ("folder", "file"), ("fifo",), ("inner",)])
def test_links_pipes_and_folders_are_no_files(tmp_path: Path, names: tuple[str, ...]) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_text("secret", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "inner" / "file")
    (tmp_path / "folder").symlink_to(tmp_path / "inner")
    os.mkfifo(tmp_path / "fifo")

    with pytest.raises(FormatError) as caught:
        read_bytes(tmp_path, *names)

    assert caught.value.next_command
    assert "secret" not in str(caught.value)
    assert "remove" not in str(caught.value)


def test_a_path_that_is_no_folder_is_told_as_that_and_nobody_is_told_to_remove_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("mine", encoding="utf-8")
    with pytest.raises(FormatError, match=r"train\.py is no folder") as caught:
        read_document(tmp_path / "train.py", "manifest.json")

    assert str(tmp_path / "train.py") == caught.value.where
    assert "remove" not in str(caught.value)


def test_a_linked_folder_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")

    with pytest.raises(FormatError, match="it is a link"):
        names_in(tmp_path, "link")


def test_a_tree_of_plain_files_up_to_the_bound_is_fine(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"123")

    check_tree(tmp_path, max_bytes=3)
    check_tree(tmp_path / "absent", max_bytes=3)
    with pytest.raises(FormatError, match="holds more than"):
        check_tree(tmp_path, max_bytes=2)


def test_a_tree_that_has_no_end_is_refused(tmp_path: Path) -> None:
    tmp_path.joinpath(*["a"] * (MAX_DEPTH + 1)).mkdir(parents=True)

    with pytest.raises(FormatError, match="nested too deep"):
        check_tree(tmp_path, max_bytes=3)


@pytest.mark.parametrize("inner", [[0] * (MAX_ENTRIES + 1), 2**63, -(2**63), float("inf"), float("nan"), "\ud800"])
def test_values_that_no_document_of_ours_holds_are_refused(tmp_path: Path, inner: object) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"a": [inner]}), encoding="utf-8")

    with pytest.raises(FormatError, match=r"x\.json is damaged"):
        read_document(tmp_path, "x.json")


@pytest.mark.parametrize(("depth", "is_fine"), [(MAX_DEPTH - 1, True), (MAX_DEPTH + 1, False), (100_000, False)])
def test_nesting_is_bounded(tmp_path: Path, depth: int, is_fine: bool) -> None:
    (tmp_path / "x.json").write_text('{"a": ' + "[" * depth + "]" * depth + "}", encoding="utf-8")

    if is_fine:
        assert {"a"} == read_document(tmp_path, "x.json").keys()
    else:
        with pytest.raises(FormatError, match="nested too deep"):
            read_document(tmp_path, "x.json")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=VALUES)
def test_a_document_comes_back_as_it_was_or_is_refused(tmp_path: Path, value: object) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"a": value}), encoding="utf-8")

    read = read_or_refused(tmp_path, "x.json")

    assert {"a": value} == read or "x.json is damaged" in str(read)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60))
def test_any_bytes_are_a_document_or_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)

    read = read_or_refused(tmp_path, "x.json")

    assert isinstance(read, dict) or "x.json is damaged" in read


@given(text=st.text(st.characters()))
def test_a_printable_name_is_one_short_line_of_text(text: str) -> None:
    shown = printable(text, most=20)

    assert shown.isprintable()
    assert len(shown) <= 20
    assert shown == shown.encode("utf-8").decode("utf-8")
