"""The control channel: every command is read once, in order and whole, by whoever listens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.control import VERSION, Command, CommandName, CommandReader, CommandWriter
from flashprof.contracts.errors import FormatError, ToolError

DETAILS = st.dictionaries(st.sampled_from(["label", "kind", "values"]), st.one_of(st.text(), st.booleans()), max_size=3)
SENDS = st.tuples(st.sampled_from(CommandName), DETAILS)
POLL = None

READER = """
import json, sys, time
from flashprof.contracts.control import CommandReader
reader, seen = CommandReader(sys.argv[1]), []
print("listening", flush=True)
while not seen or seen[-1].name != "stop":
    seen += reader.poll()
print(json.dumps([[c.command_id, c.detail["label"]] for c in seen if c.name != "stop"]))
"""


@given(actions=st.lists(st.one_of(SENDS, st.just(POLL)), max_size=20))
@settings(max_examples=40)
def test_any_order_of_sending_and_polling_reads_each_command_once_and_in_order(
    actions: list[tuple[CommandName, dict[str, str | bool]] | None],
) -> None:
    sent: list[Command] = []
    read: list[Command] = []
    with TemporaryDirectory() as folder:
        writer, reader = CommandWriter(Path(folder)), CommandReader(folder)
        for action in actions:
            if action is POLL:
                read += reader.poll()
                # Nothing that was sent before a poll is still unread after it.
                assert sent == read
            else:
                name, detail = action
                sent.append(writer.send(name, **detail))
        read += reader.poll()

    assert sent == read
    assert list(range(1, len(sent) + 1)) == [command.command_id for command in read]


def test_a_reader_in_another_process_never_sees_half_a_command(tmp_path: Path) -> None:
    num_commands = 300
    writer = CommandWriter(tmp_path)
    label = "x" * 10_000  # longer than a pipe buffer or a page: a torn write would show
    with subprocess.Popen([sys.executable, "-c", READER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        for number in range(num_commands):
            writer.send(CommandName.WINDOW_START, label=f"{number}{label}")
        writer.send(CommandName.STOP)
        seen = json.loads(reader.stdout.readline())

    assert [[number + 1, f"{number}{label}"] for number in range(num_commands)] == seen


def test_no_folder_means_no_commands() -> None:
    assert CommandReader(None).poll() == []


def test_a_folder_that_does_not_exist_yet_means_no_commands(tmp_path: Path) -> None:
    assert CommandReader(tmp_path / "control").poll() == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "\x00",
        '{"version": 1}',
        '{"version": 1, "id": 1, "name": "explode", "detail": {}}',
    ],
)
def test_a_damaged_command_names_the_file_and_the_allowed_commands(tmp_path: Path, text: str) -> None:
    path = tmp_path / "000001.json"
    path.write_text(text)
    with pytest.raises(FormatError) as raised:
        CommandReader(tmp_path).poll()

    assert raised.value.where == str(path)
    assert "window_start" in str(raised.value.allowed)


def test_a_command_of_another_version_names_both_versions(tmp_path: Path) -> None:
    text = json.dumps({"version": VERSION + 8, "id": 1, "name": "stop", "detail": {}})
    (tmp_path / "000001.json").write_text(text)
    with pytest.raises(FormatError) as raised:
        CommandReader(tmp_path).poll()

    assert f"version {VERSION + 8}" in raised.value.what
    assert f"version {VERSION}" == raised.value.allowed


def test_a_command_that_could_not_be_sent_leaves_no_gap(tmp_path: Path) -> None:
    folder = tmp_path / "control"
    writer = CommandWriter(folder)
    with pytest.raises(ToolError, match="cannot send command 'stop'"):
        writer.send(CommandName.STOP)
    folder.mkdir()
    sent = writer.send(CommandName.STOP)

    assert [sent] == CommandReader(folder).poll()
