"""A run folder is made once, published whole, and never mistaken for another."""

from __future__ import annotations

import json
import platform
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError, UsageError
from flashprof.store.run_folder import RESERVE_BYTES, VERSION, create_run_folder, read_manifest


def test_a_run_appears_under_its_name_only_when_it_is_published(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path / "new" / "reports", "a run")
    folder.write_manifest({"outcome": "completed"})
    before = [path.name for path in folder.final.parent.iterdir()]
    folder.publish()

    assert [".a run.part"] == before
    assert ["a run"] == [path.name for path in folder.final.parent.iterdir()]
    assert "completed" == read_manifest(folder.final)["outcome"]


def test_a_published_run_holds_neither_reserve_nor_owner_nor_byte_code(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, "run")
    reserved = folder.reserve.stat().st_size
    subprocess.run([sys.executable, "-c", "import flashprof.emit"], cwd=folder.emitter, check=True)
    names = {path.name for path in folder.publish().rglob("*")}

    assert RESERVE_BYTES == reserved
    assert not names & {".reserve", "owner.json", "__pycache__"}
    assert {"events", "control", "samples", "emit.py", "events.py"} <= names


def test_the_copied_emitter_works_without_the_rest_of_flashprof(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, "run")
    code = "from flashprof import emit; emit.connect('t').end_step(0, num_tokens=1); print(emit.__file__)"
    env = {"PYTHONPATH": str(folder.emitter), "FLASHPROF_RUN_DIR": str(folder.part), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, check=True)

    assert str(folder.emitter / "flashprof" / "emit.py") == done.stdout.strip()
    assert ["t-0.jsonl"] == [path.name for path in folder.events.iterdir()]


def test_a_name_is_used_once(tmp_path: Path) -> None:
    create_run_folder(tmp_path, "run").publish()
    with pytest.raises(UsageError, match="a run of that name exists"):
        create_run_folder(tmp_path, "run")


def test_runs_of_one_second_are_numbered_where_the_time_is_their_name(tmp_path: Path) -> None:
    name = "20261201-033036-tiny-1+1-none"
    create_run_folder(tmp_path, name).publish()
    folders = [create_run_folder(tmp_path, name) for _ in range(2)]
    folders[0].write_manifest({"run_id": name})

    assert [f"{name}-2", f"{name}-3"] == [folder.final.name for folder in folders]
    assert f"{name}-2" == read_manifest(folders[0].publish())["run_id"]


def test_a_run_under_way_keeps_its_name(tmp_path: Path) -> None:
    create_run_folder(tmp_path, "run")
    with pytest.raises(UsageError, match="under way"):
        create_run_folder(tmp_path, "run")


@pytest.mark.parametrize("change", [{"started_s": 1.0}, {"pid": 2**22 + 1}, None], ids=["pid reused", "gone", "torn"])
def test_a_run_whose_flashprof_was_killed_says_how_to_remove_it(
    tmp_path: Path, change: dict[str, float] | None
) -> None:
    folder = create_run_folder(tmp_path, "my run")
    owner = json.loads(folder.owner.read_text())
    folder.owner.write_text("{" if change is None else json.dumps({**owner, **change}))
    with pytest.raises(UsageError, match="cut off") as caught:
        create_run_folder(tmp_path, "my run")

    assert f"rm -r '{folder.part}'" in (caught.value.next_command or "")


def test_a_run_of_another_host_counts_as_under_way(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, "run")
    folder.owner.write_text(json.dumps({"host": platform.node() + "x", "pid": 1, "started_s": 0}))
    with pytest.raises(UsageError, match="under way"):
        create_run_folder(tmp_path, "run")


def test_a_discarded_run_leaves_its_name_free(tmp_path: Path) -> None:
    create_run_folder(tmp_path, "run").discard()

    assert create_run_folder(tmp_path, "run").part.is_dir()


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/abs", "a/", "a\nb", "a\0b", "x" * 201, "ü" * 101])
def test_bad_names_are_refused_before_anything_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a run folder"):
        create_run_folder(tmp_path / "reports", name)

    assert not (tmp_path / "reports").exists()


@given(st.text(alphabet=string.printable + "äß语\u202e\udcff", max_size=40))
def test_any_name_is_one_folder_inside_reports_or_a_usage_error(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    reports = tmp_path_factory.mktemp("reports")
    try:
        folder = create_run_folder(reports, name)
    except UsageError:
        assert [] == list(reports.iterdir())
        return
    folder.publish()

    assert [name] == [path.name for path in reports.iterdir()]


@pytest.mark.parametrize("reports", ["file", "file/deeper", "link"])
def test_a_reports_folder_that_is_none_is_a_usage_error(tmp_path: Path, reports: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "at all")
    with pytest.raises(UsageError, match="cannot write to the reports folder") as caught:
        create_run_folder(tmp_path / reports, "run")

    assert "--reports DIRECTORY" == caught.value.next_command


def test_a_reports_folder_that_cannot_be_written_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="cannot write to the reports folder"):
        create_run_folder(Path("/proc/flashprof"), "run")


def test_a_manifest_of_another_version_names_both(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": "flashprof-run", "version": 99}))
    with pytest.raises(FormatError) as caught:
        read_manifest(tmp_path)

    assert "version 99" in caught.value.what
    assert f"flashprof-run version {VERSION}" == caught.value.allowed


@pytest.mark.parametrize("text", [None, "", "[]", "{", '"x"', "\xff"])
def test_what_is_no_run_folder_is_a_format_error(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(FormatError):
        read_manifest(tmp_path)
