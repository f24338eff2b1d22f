"""Windows are judged by the counters as they stand: live as from the files, and never by what comes later."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from launch_files import reading, write_counters

from flashprof.app.judging import MachineJudge, launch_rate, measured_windows
from flashprof.contracts.results import Window, WindowKind
from flashprof.store.counters_file import CountersWriter
from flashprof.windows.switches import undisturbed

S = 10**9


def window(start_s: float, end_s: float, num_tokens: int = 1000, kind: WindowKind = WindowKind.MEASURE) -> Window:
    return Window(
        label="w",
        kind=kind,
        start_ns=round(start_s * S),
        end_ns=round(end_s * S),
        num_steps=1,
        num_tokens=num_tokens,
        num_supervised_tokens=0,
        num_padding_tokens=0,
    )


def test_a_window_beside_another_program_is_disturbed_and_its_neighbours_are_not(tmp_path: Path) -> None:
    write_counters(tmp_path / "counters.jsonl", until_s=40, busy_s=[(23.0, 24.5)])
    judge = MachineJudge(tmp_path / "counters.jsonl")
    found = [judge(start * S, (start + 2) * S) for start in range(20, 30, 2)]

    assert [False, True, True, False, False] == [bool(reasons) for reasons in found]
    assert "other processes used 0.5 cores" in found[1][0]
    # Ten stretches of two seconds before the first window, and five windows.
    assert 15 == len(judge.uses)


def test_live_and_afterwards_the_answers_are_the_same(tmp_path: Path) -> None:
    live_file, whole_file = tmp_path / "live.jsonl", tmp_path / "whole.jsonl"
    busy = [(11.0, 11.8), (15.0, 19.0)]
    write_counters(whole_file, until_s=30, busy_s=busy)
    writer = CountersWriter(live_file)
    live, afterwards = MachineJudge(live_file), MachineJudge(whole_file)
    answers = []
    for half in range(51):
        others_s = sum(max(0.0, min(end, half / 2) - start) for start, end in busy)
        writer.write(reading(half / 2, busy_cpu_s=half / 2 + others_s))
        if half >= 20 and half % 4 == 0:
            answers.append(live((half - 4) * S // 2, half * S // 2))
    writer.close()

    assert any(answers)
    assert answers == [afterwards(at * S, (at + 2) * S) for at in range(8, 24, 2)]
    assert live.uses == afterwards.uses


@pytest.mark.parametrize("content", [None, "no counters\n", '{"format":"flashprof-counters","version":99}\n'])
def test_where_the_machine_was_not_read_nothing_is_disturbed(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "counters.jsonl").write_text(content)
    judge = MachineJudge(tmp_path / "counters.jsonl")

    assert () == judge(0, S)
    assert [] == judge.uses


def test_a_window_that_no_reading_follows_passes(tmp_path: Path) -> None:
    write_counters(tmp_path / "counters.jsonl", until_s=20, busy_s=[(18.0, 20.0)])

    assert () == MachineJudge(tmp_path / "counters.jsonl")(18 * S, 21 * S)


def test_only_measure_windows_with_tokens_are_measured() -> None:
    windows = [
        window(0, 1),
        window(1, 2, 0),
        window(2, 3, kind=WindowKind.BETWEEN),
        window(3, 4, kind=WindowKind.PROFILE),
    ]

    assert windows[:1] == measured_windows(windows)


def test_disturbed_windows_are_left_out_of_a_launch_and_counted() -> None:
    windows = [window(0, 1), window(1, 2), window(2, 12), window(12, 13)]
    rate = launch_rate(windows, lambda start_ns, end_ns: ("noise",) if start_ns == 2 * S else ())

    assert (math.log(1000), 3, 1, ("noise",), True) == (
        pytest.approx(rate.log_tok_per_s),
        rate.num_windows,
        rate.num_left_out,
        rate.disturbances,
        rate.is_calm,
    )


def test_a_launch_with_fewer_than_two_calm_windows_does_not_count() -> None:
    rate = launch_rate([window(0, 1), window(1, 2), window(2, 3)], lambda start_ns, end_ns: ("x",) if start_ns else ())

    assert (False, 3, 0, ("x",)) == (rate.is_calm, rate.num_windows, rate.num_left_out, rate.disturbances)


def test_a_launch_without_a_token_has_no_rate() -> None:
    rate = launch_rate([window(0, 1, 0)], undisturbed)

    assert (0, True) == (rate.num_windows, math.isnan(rate.log_tok_per_s))
