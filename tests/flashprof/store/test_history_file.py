"""One file for all: writers at once lose nothing, a killed one leaves nothing half, what is broken is set aside."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from filelock import FileLock

from flashprof.contracts.errors import FormatError, ToolError
from flashprof.store.history_file import VERSION, on_network, opened

ROOT = Path(__file__).parents[3]
WRITER = """
import sys
from pathlib import Path
from flashprof.store.history_file import opened
path, name, is_shared, count = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "True", int(sys.argv[4])
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    with opened(path, is_shared=is_shared) as (connection, _):
        for part in ("a", "b"):
            connection.execute("INSERT INTO cells VALUES (?, '{}')", (f"{name}-{number}-{part}",))
            if name == "killed" and number == 3 and part == "a":
                # Enough to be on the disk before the commit.
                connection.execute("PRAGMA cache_size = 1")
                for filler in range(400):
                    connection.execute("INSERT INTO cells VALUES (?, ?)", (f"filler-{filler}", "x" * 4000))
                print("within", flush=True)
                sys.stdin.readline()
    print(f"kept {name}-{number}", flush=True)
"""


def start(path: Path, name: str, *, is_shared: bool, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(is_shared), str(count)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


def names(path: Path, *, is_shared: bool) -> set[str]:
    with opened(path, is_checked=True, is_shared=is_shared) as (connection, said):
        assert said == ""
        return {row[0] for row in connection.execute("SELECT cell FROM cells")}


def rows(name: str, count: int) -> set[str]:
    return {f"{name}-{number}-{part}" for number in range(count) for part in "ab"}


@pytest.mark.slow
@pytest.mark.parametrize("is_shared", [False, True])
def test_two_writers_at_once_and_one_killed_while_it_writes_lose_nothing(tmp_path: Path, *, is_shared: bool) -> None:
    path = tmp_path / "history.sqlite"
    killed = start(path, "killed", is_shared=is_shared, count=9)
    writers = [start(path, name, is_shared=is_shared, count=20) for name in ("one", "two")]
    for process in (killed, *writers):
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
    for process in (killed, *writers):
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert killed.stdout is not None
    told = []
    while (line := killed.stdout.readline()) != "within\n":
        told.append(line)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    for process in writers:
        process.communicate()

    assert [f"kept killed-{number}\n" for number in range(3)] == told
    assert [0, 0] == [process.returncode for process in writers]
    assert rows("killed", 3) | rows("one", 20) | rows("two", 20) == names(path, is_shared=is_shared)


@pytest.mark.slow
def test_of_two_who_find_a_broken_file_the_second_finds_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    with FileLock(path.with_name(".history.sqlite.lock")):
        path.write_bytes(b"nonsense" * 999)
        second = start(path, "second", is_shared=False, count=1)
        assert second.stdin is not None
        second.stdin.write("\n")
        second.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(timeout=1)
        path.unlink()
        put(path.with_name("new.sqlite"), "first")
        path.with_name("new.sqlite").rename(path)
    second.communicate()

    assert {"first"} | rows("second", 1) == names(path, is_shared=False)
    assert [] == list(tmp_path.glob("*.broken-*"))


def put(path: Path, name: str, *, is_shared: bool | None = None) -> str:
    with opened(path, is_shared=is_shared) as (connection, said):
        connection.execute("INSERT INTO cells VALUES (?, '{}')", (name,))
    return said


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_bytes_of_a_path_need_be_no_text_and_no_part_of_an_address(tmp_path: Path, *, is_shared: bool) -> None:
    path = tmp_path / "o\udcff?#%41" / "history.sqlite"
    put(path, "kept", is_shared=is_shared)

    assert path.is_file()
    assert {"kept"} == names(path, is_shared=is_shared)


def test_a_block_that_fails_is_undone(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "history.sqlite"
    put(path, "before")

    def put_half() -> None:
        with opened(path) as (connection, _):
            connection.execute("INSERT INTO cells VALUES ('half', '{}')")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        put_half()

    assert {"before"} == names(path, is_shared=False)


def test_a_file_moves_between_local_and_shared_file_systems(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    put(path, "local", is_shared=False)
    put(path, "shared", is_shared=True)
    put(path, "local again", is_shared=False)

    assert {"local", "shared", "local again"} == names(path, is_shared=True)


def test_a_broken_file_is_set_aside_by_name_and_said(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    for number, content in enumerate((b"no database, but long enough to be one" * 100, b"\x00" * 5000), start=1):
        path.write_bytes(content)
        said = put(path, f"new-{number}")

        assert f"history.sqlite.broken-{number}; a new one begins" in said
        assert content == path.with_name(f"history.sqlite.broken-{number}").read_bytes()
        assert {f"new-{number}"} == names(path, is_shared=False)


def test_a_file_with_a_broken_page_is_found_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    with opened(path) as (connection, _):
        connection.executemany(
            "INSERT INTO cells VALUES (?, ?)", [(f"{number:04}", "x" * 500) for number in range(200)]
        )
    content = bytearray(path.read_bytes())
    for page in range(8, len(content) // 4096):
        content[page * 4096 : page * 4096 + 100] = b"\xff" * 100
    path.write_bytes(content)
    with opened(path, is_checked=True) as (connection, said):
        num_left = connection.execute("SELECT count(*) FROM cells").fetchone()[0]

    assert 0 == num_left
    assert "is kept as" in said
    assert bytes(content) == path.with_name("history.sqlite.broken-1").read_bytes()


def test_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    put(path, "kept")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
        connection.commit()
    with pytest.raises(FormatError) as caught:
        put(path, "lost")

    assert f"history version {VERSION + 1} is not known" == caught.value.what
    assert f"version {VERSION} and older" == caught.value.allowed
    assert ["history.sqlite"] == [found.name for found in tmp_path.iterdir() if not found.name.startswith(".")]


def test_the_database_of_another_program_is_never_written_to(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (address TEXT)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(FormatError, match="another program's database"):
        put(path, "lost")

    assert before == path.read_bytes()


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Path]:
    """A folder that a file system lets nobody write to; what was in `full` is in it."""
    full, archive = tmp_path / "full", tmp_path / "archive"
    full.mkdir()
    archive.mkdir()
    put(full / "history.sqlite", "kept")
    (full / "broken.sqlite").write_bytes(b"no database, but long enough to be one" * 100)
    put(full / "unmerged.sqlite", "merged")
    with closing(sqlite3.connect(full / "unmerged.sqlite")) as connection:
        connection.execute("INSERT INTO cells VALUES ('in the log', '{}')")
        connection.commit()
        for part in ("", "-wal"):
            shutil.copy(full / f"unmerged.sqlite{part}", full / f"behind.sqlite{part}")
    steps = (["--bind", str(full), str(archive)], ["-o", "remount,bind,ro", str(archive)])
    if os.geteuid() != 0 or any(subprocess.run(["mount", *step], check=False).returncode for step in steps):
        pytest.skip("only root can mount a folder read-only, and not everywhere")
    yield archive
    subprocess.run(["umount", "--lazy", str(archive)], check=True)


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_file_that_nobody_may_write_to_is_read_all_the_same(archive: Path, *, is_shared: bool) -> None:
    assert {"kept"} == names(archive / "history.sqlite", is_shared=is_shared)
    with pytest.raises(ToolError):
        put(archive / "history.sqlite", "lost")


def test_what_is_only_in_the_log_of_a_file_that_nobody_may_write_to_is_said(archive: Path) -> None:
    with opened(archive / "behind.sqlite", is_checked=True) as (connection, said):
        found = [row[0] for row in connection.execute("SELECT cell FROM cells")]

    assert ["merged"] == found
    assert "what was written last, behind.sqlite-wal, is not seen" in said


def test_a_broken_file_that_nobody_may_write_to_is_said_and_stays(archive: Path) -> None:
    with (
        pytest.raises(ToolError, match="the history cannot be used"),
        opened(archive / "broken.sqlite", is_checked=True),
    ):
        pass

    assert (archive / "broken.sqlite").exists()


def test_a_text_that_is_not_utf_8_is_an_error_and_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    put(path, "kept")
    with pytest.raises(ToolError, match="not UTF-8"):
        put(path, "\udcff")

    assert {"kept"} == names(path, is_shared=False)


def test_a_folder_that_cannot_be_used_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ToolError) as caught:
        put(tmp_path / "file" / "history.sqlite", "lost")

    assert caught.value.where == str(tmp_path / "file" / "history.sqlite")
    assert "FLASHPROF_HISTORY=OTHER.sqlite" in (caught.value.next_command or "")


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ([("/", "ext4")], False),
        ([("/", "ext4"), ("/data", "nfs4")], True),
        ([("/data", "nfs4"), ("/", "ext4")], True),
        ([("/", "nfs"), ("/data/x", "tmpfs")], False),
        ([("/", "ext4"), ("/data/other", "nfs"), ("/dat", "cifs")], False),
        ([("/data", "tmpfs"), ("/data", "lustre")], True),
        ([], False),
    ],
)
def test_the_file_system_that_holds_the_file_decides(mounts: list[tuple[str, str]], *, expected: bool) -> None:
    assert expected == on_network(Path("/data/x/history.sqlite"), mounts)
