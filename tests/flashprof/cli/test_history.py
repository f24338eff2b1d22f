"""`flashprof history` and what belongs to it, from the command line: output, wrong input, status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from histories import steps, stored
from report_folders import write_run

from flashprof.cli.history import command
from flashprof.contracts.errors import FlashProfError, FormatError, UsageError
from flashprof.store.history import FILE, read_history


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLASHPROF_HISTORY", "GITLAB_USER_LOGIN", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_ACTOR", "ann")


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """With a history that has lost 6 %."""
    stored(tmp_path / FILE, steps((20, 0.0), (12, -0.06)))
    return tmp_path


def history(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


def refused(*arguments: str | Path) -> FlashProfError:
    error = history(*arguments).exception

    assert isinstance(error, FlashProfError), error
    return error


def test_it_shows_what_is_lost_and_what_to_do(reports: Path) -> None:
    result = history("--reports", reports)

    assert 0 == result.return_value
    assert "LOSS −6." in result.output
    assert "try: flashprof bisect --good 0000013" in result.output
    assert "try: flashprof history accept run-020 --why TEXT" in result.output


def test_json_and_markdown_hold_the_same(reports: Path) -> None:
    document = json.loads(history("--reports", reports, "--json").output)
    markdown = history("--reports", reports, "--markdown").output

    assert document["series"][0]["is_lost"]
    assert "## LOSS −6." in markdown
    assert "| open |" in markdown


def test_accept_says_what_it_did_and_the_loss_is_gone(reports: Path) -> None:
    result = history("accept", "run-031", "--why", "exact masks", "--reports", reports)
    (word,) = read_history(reports / FILE).acknowledgements

    assert 0 == result.return_value
    assert "accepted  −6." in result.output
    assert "since run-020" in result.output
    assert "now       no loss seen" in result.output
    assert ("ann", "exact masks") == (word.who, word.why)
    assert "LOSS" not in history("--reports", reports).output


def test_add_keeps_runs_and_tells_what_it_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    (write_run(tmp_path / "half") / "summary.json").unlink()
    results = [history("add", tmp_path, "--reports", tmp_path) for _ in range(2)]

    assert ["added     1, known already 0", "added     0, known already 1"] == [
        result.output.splitlines()[0] for result in results
    ]
    assert f"left out  {tmp_path / 'half'}: its summary cannot be read" in results[0].output


def test_baseline_names_todays_level(reports: Path) -> None:
    result = history("baseline", "main", "--reports", reports)

    assert "12 launches since 2026-11-06" in result.output
    assert "baselines with a name: main" in history("--reports", reports).output


def test_the_environment_says_where_the_store_is(reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHPROF_HISTORY", str(reports / FILE))
    found = history("--reports", reports / "elsewhere").output
    monkeypatch.setenv("FLASHPROF_HISTORY", "off")

    # A long path stands in a line of its own.
    assert f"32 launches in {reports / FILE}" in " ".join(found.split())
    assert "no history is kept" in refused("--reports", reports).what


@pytest.mark.parametrize("since", ["2026-11-05", "2026-11-05T06:00", "2026-11-05T06:00:30"])
def test_a_day_or_a_time_is_shown_from_then_on(reports: Path, since: str) -> None:
    document = json.loads(history("--reports", reports, "--json", "--since", since).output)

    assert all(launch["started"] >= since for launch in document["series"][0]["launches"])


def test_a_broken_store_is_set_aside_and_said(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"nonsense" * 999)
    result = history("--reports", tmp_path)

    assert 0 == result.return_value
    assert f"{FILE}.broken-1" in result.output.replace("\n", "")
    assert (tmp_path / f"{FILE}.broken-1").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--since", "yesterday"), "--since does not take 'yesterday'"),
        (("--since", "2026-13-45"), "--since does not take '2026-13-45'"),
        (("--since", "2026-02-30T10:00"), "--since does not take"),
        (("--since", "2026-11-30T25:00"), "--since does not take"),
        (("--since", "2026-W01-1"), "--since does not take"),
        (("--since", "20261130"), "--since does not take"),
        (("--cell", "nothing"), "unknown cell 'nothing'"),
        (("accept", "run-999", "--why", "x"), "unknown run 'run-999'"),
        (("accept", "run-001", "--why", "x"), "no change at or before run-001"),
        (("accept", "run-025", "--why", " "), "--why says nothing"),
        (("accept", "run-025", "--why", "\udcff"), "--why is no UTF-8 text"),
        (("accept", "run-025", "--why", "x", "--who", "\udcff"), "--who is no UTF-8 text"),
        (("baseline", "main", "--who", "ann \udcff"), "--who is no UTF-8 text"),
        (("baseline", "\udcff"), "no name of a baseline"),
        (("baseline", "a b"), "no name of a baseline"),
        (("add", "absent"), "none of these is a run"),
    ],
)
def test_wrong_input_has_status_2_and_a_message(reports: Path, arguments: tuple[str, ...], message: str) -> None:
    error = refused(*arguments, "--reports", reports)

    assert 2 == error.exit_code
    assert message in error.what
    assert isinstance(error, UsageError)


def test_an_option_before_the_subcommand_is_refused_since_it_would_do_nothing(reports: Path) -> None:
    error = refused("--reports", reports, "baseline", "main")

    assert "--reports belongs behind baseline" in error.what


def test_a_store_of_a_newer_version_is_refused(reports: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(reports / FILE)) as connection:
        connection.execute("PRAGMA user_version = 7")
    error = refused("--reports", reports)

    assert isinstance(error, FormatError)
    assert "history version 7 is not known" == error.what
