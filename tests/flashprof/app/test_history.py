"""Series show what is lost; what a user accepts is reported no more, and is what the next runs are held against."""

from __future__ import annotations

from pathlib import Path

import pytest
from histories import FACTS, RATE, launch, steps, stored

from flashprof.app.history import accept, name_baseline, show
from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.history import Change, ChangeStatus, LaunchKind, Series
from flashprof.contracts.outcome import Outcome
from flashprof.store.history import read_history, record_run, record_runs

NOW = "2026-12-24T12:00:00+00:00"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def only(path: Path, **options: str) -> Series:
    (series,) = show(path, **options).series
    return series


def take(path: Path, run: str) -> tuple[Change, Series]:
    return accept(path, run, why="exact masks", who="ann", at=NOW)


def test_a_level_series_shows_its_level_and_no_change(path: Path) -> None:
    series = only(stored(path, steps((20, 0.0))))

    assert (False, None, ()) == (series.is_lost, series.standing, series.changes)
    assert RATE == pytest.approx(series.level.tok_per_s.estimate, rel=0.01)
    assert series.level == series.baseline


def test_a_loss_is_open_with_its_size_its_first_run_and_the_commits_around_it(path: Path) -> None:
    series = only(stored(path, steps((20, 0.0), (10, -0.06))))
    (change,) = series.changes

    assert (True, ChangeStatus.OPEN, "run-020") == (series.is_lost, change.status, change.run_id)
    assert (launch(19).commit, launch(20).commit) == change.commits
    assert change.effect.low < -0.06 < change.effect.high < 0
    assert change.effect == series.standing
    assert "run-020" < change.seen <= "run-029"


def test_ten_losses_of_1_percent_are_one_loss_against_the_level_before_them(path: Path) -> None:
    levels = [(3, 0.99**number - 1) for number in range(1, 11)]
    series = only(stored(path, steps((30, 0.0), *levels, noise=0.01)))

    assert series.is_lost
    assert "2026-11-01T00:00:00+00:00" == series.baseline.since
    assert series.standing is not None
    assert series.standing.estimate < -0.06


def test_an_accepted_loss_is_reported_no_more_and_its_level_is_the_baseline(path: Path) -> None:
    stored(path, steps((20, 0.0), (12, -0.06)))
    change, after = take(path, "run-025")

    assert ("run-020", ChangeStatus.ACCEPTED) == (change.run_id, change.status)
    assert change.acknowledgement is not None
    assert ("exact masks", "ann", NOW) == (
        change.acknowledgement.why,
        change.acknowledgement.who,
        change.acknowledgement.at,
    )
    assert (False, launch(20).started) == (after.is_lost, after.baseline.since)
    assert after == only(path)


def test_a_loss_after_an_accepted_one_is_told_against_the_accepted_level(path: Path) -> None:
    stored(path, steps((20, 0.0), (20, -0.06)))
    take(path, "run-020")
    record_runs(path, [launch(number, -0.12) for number in range(40, 50)])
    series = only(path)

    assert series.is_lost
    assert series.standing is not None
    assert (1 - 0.12) / (1 - 0.06) - 1 == pytest.approx(series.standing.estimate, abs=0.01)
    assert [ChangeStatus.ACCEPTED, ChangeStatus.OPEN] == [change.status for change in series.changes]


def test_changes_are_accepted_one_by_one_the_last_at_or_before_the_run(path: Path) -> None:
    stored(path, steps((20, 0.0), (15, -0.06), (15, -0.15)))
    first, _ = take(path, "run-034")
    second, after = take(path, "run-049")

    assert ["run-020", "run-035"] == [first.run_id, second.run_id]
    assert not after.is_lost
    with pytest.raises(UsageError, match="no change at or before run-049"):
        take(path, "run-049")


def test_there_is_nothing_to_accept_before_the_change(path: Path) -> None:
    stored(path, steps((20, 0.0), (12, -0.06)))
    with pytest.raises(UsageError) as caught:
        take(path, "run-019")

    assert "run-020" == caught.value.allowed
    assert () == read_history(path).acknowledgements


def test_an_unknown_run_is_named_with_those_that_are_known(path: Path) -> None:
    stored(path, steps((3, 0.0)))
    with pytest.raises(UnknownNameError, match="did you mean 'run-002'"):
        take(path, "run-00x2")


def test_a_mended_loss_is_past_and_a_confirmed_gain_moves_the_baseline(path: Path) -> None:
    mended = only(stored(path, steps((25, 0.0), (15, -0.08), (20, 0.0))))
    gained = only(stored(path.with_name("gain.sqlite"), steps((25, 0.0), (20, 0.08))))

    assert [ChangeStatus.PAST, ChangeStatus.MENDS] == [change.status for change in mended.changes]
    assert (False, launch(0).started) == (mended.is_lost, mended.baseline.since)
    assert [ChangeStatus.FOLLOWED] == [change.status for change in gained.changes]
    assert launch(25).started == gained.baseline.since


def test_what_only_shows_in_hindsight_is_marked_as_such_and_is_no_loss(path: Path) -> None:
    """A dip of four runs that came back: too short to be told while it lasted, and seen in the whole series."""
    series = only(stored(path, steps((10, 0.0), (4, -0.05), (40, 0.0))))

    assert [ChangeStatus.HINDSIGHT] * 2 == [change.status for change in series.changes]
    assert [("run-010", ""), ("run-014", "")] == [(change.run_id, change.seen) for change in series.changes]
    assert not series.is_lost


def test_failed_launches_and_heads_of_gates_are_kept_and_are_no_points(path: Path) -> None:
    stored(path, [0.0, 0.01])
    record_run(path, launch(2, outcome=Outcome.CRASHED))
    record_run(path, launch(3, -0.5, kind=LaunchKind.GATE_HEAD))
    record_run(path, launch(4, kind=LaunchKind.GATE_BASE))
    history = show(path)

    assert 5 == history.num_launches
    assert [(LaunchKind.RUN, 2), (LaunchKind.GATE_BASE, 1)] == [
        (series.kind, len(series.launches)) for series in history.series
    ]


def test_what_is_lost_stands_first(path: Path) -> None:
    stored(path, steps((40, 0.0)))
    other = {**FACTS, "toggles.swa": "on"}
    record_runs(
        path, [launch(number, change, facts=other) for number, change in enumerate(steps((20, 0.0), (10, -0.1)))]
    )

    assert [True, False] == [series.is_lost for series in show(path).series]


def test_cells_are_chosen_by_hash_or_title_and_launches_by_branch(path: Path) -> None:
    stored(path, [0.0] * 3)
    record_run(path, launch(3, facts={**FACTS, "toggles.swa": "on"}, title="tiny · SWA", branch="side"))

    assert 3 == len(only(path, cell=launch().cell[:6]).launches)
    assert "tiny · SWA" == only(path, cell="swa").title
    assert ["run-003"] == [item.run_id for item in only(path, branch="side").launches]
    with pytest.raises(UnknownNameError, match="unknown cell 'xyz'"):
        show(path, cell="xyz")
    with pytest.raises(UnknownNameError, match="unknown branch 'sid'"):
        show(path, branch="sid")


def test_earlier_launches_are_not_shown_but_count(path: Path) -> None:
    stored(path, steps((20, 0.0), (10, -0.06)))
    whole, cut = only(path), only(path, since=launch(18).started[:13])
    after = only(path, since=launch(25).started)

    assert (12, 2) == (len(cut.launches), cut.changes[0].index)
    assert "run-020" == cut.launches[cut.changes[0].index].run_id
    assert (whole.standing, whole.baseline) == (cut.standing, cut.baseline) == (after.standing, after.baseline)
    assert () == after.changes


def test_todays_level_gets_a_name_that_a_gate_can_ask_for(path: Path) -> None:
    stored(path, steps((20, 0.0), (12, -0.06)))
    record_runs(path, [launch(number, kind=LaunchKind.GATE_BASE) for number in range(3)])
    (baseline,) = name_baseline(path, "main", who="ann", at=NOW)

    assert [f"run-{number:03}" for number in range(20, 32)] == list(baseline.run_ids)
    assert (baseline,) == next(series for series in show(path).series if series.kind is LaunchKind.RUN).names


def test_without_a_history_there_is_a_next_command_and_no_file(path: Path) -> None:
    with pytest.raises(UsageError, match="there is no history yet") as caught:
        show(path)

    assert "flashprof history add" in (caught.value.next_command or "")
    assert not path.exists()
