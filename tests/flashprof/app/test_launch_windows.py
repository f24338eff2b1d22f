"""Windows of a launch: from its steps where it reports any, else from what it prints."""

from __future__ import annotations

import pytest

from flashprof.app.launch_windows import launch_windows
from flashprof.app.log_readings import Reading
from flashprof.contracts.events import Ack, EventLog, Header, Step
from flashprof.contracts.results import Window, WindowKind
from flashprof.store.from_json import from_json

S = 1_000_000_000
OBSERVED = [
    Ack(1, "window_start", -1, 10 * S, {"label": "measure-1", "kind": "measure"}),
    Ack(2, "window_end", -1, 14 * S, {"label": "measure-1"}),
    Ack(3, "window_start", -1, 15 * S, {"label": "measure-2", "kind": "measure"}),
]
READINGS = [Reading(at_s * S, tok_per_s) for at_s, tok_per_s in ((10, 9.0), (11, 100.0), (14, 300.0), (15, 9.0))]


def log(num_steps: int) -> EventLog:
    header = Header(role="drafter", rank=0, host="h", pid=1, trains=True, wall_ns=0, monotonic_ns=0)
    return EventLog(header=header, steps=[Step(i, (i + 1) * S, 50, 50, 0) for i in range(num_steps)])


def test_printed_tok_per_s_between_two_boundaries_is_a_window() -> None:
    (window,) = launch_windows([], OBSERVED, READINGS)

    assert ("measure-1", WindowKind.MEASURE, 10 * S, 14 * S, 2, 800) == (
        window.label,
        window.kind,
        window.start_ns,
        window.end_ns,
        window.num_steps,
        window.num_tokens,
    )
    assert launch_windows([log(0)], OBSERVED, READINGS) == (window,)


@pytest.mark.parametrize("tok_per_s", [1.51, 0.4, 0.03, 5.0, 123_456.7])
def test_what_is_printed_is_told_as_it_is_and_not_by_whole_tokens(tok_per_s: float) -> None:
    """By whole tokens of a window of a second, 1.51 and 1.49 would differ by half."""
    (window,) = launch_windows([], OBSERVED, [Reading(11 * S, tok_per_s), Reading(12 * S, tok_per_s)])

    assert tok_per_s == window.tok_per_s == window.row()["tok_per_s"]
    assert tok_per_s == from_json(Window, window.row(), "window").tok_per_s


@pytest.mark.parametrize("absurd", [1e308, 1.7e308])
def test_a_rate_that_no_trainer_has_is_no_reading(absurd: float) -> None:
    (window,) = launch_windows([], OBSERVED, [Reading(11 * S, absurd), Reading(12 * S, 7.0), Reading(13 * S, absurd)])

    assert 7.0 == window.tok_per_s


def test_steps_count_where_there_are_any_whoever_set_the_boundaries() -> None:
    windows = launch_windows([log(14)], OBSERVED[:2], READINGS)

    assert [("warmup", 500), ("measure-1", 200)] == [(window.label, window.num_tokens) for window in windows]
    assert not any("told_tok_per_s" in window.row() for window in windows)


def test_a_launch_without_steps_and_boundaries_has_no_windows() -> None:
    assert () == launch_windows([])
