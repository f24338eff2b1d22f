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


def launch(study: Path, name: str, *, from_s: float, busy_s: list[tuple[float, float]]) -> Path:
    path = study / "launches" / name / "counters.jsonl"
    path.parent.mkdir(parents=True)
    writer = CountersWriter(path)
    for half in range(41):
        at_s = from_s + half / 2
        others_s = sum(max(0.0, min(end, at_s) - start) for start, end in busy_s)
        writer.write(reading(at_s, busy_cpu_s=at_s + others_s))
    writer.close()
    return path


def test_a_neighbour_that_works_as_long_as_one_launch_lasts_is_seen_against_the_launches_before(tmp_path: Path) -> None:
    launch(tmp_path, "cold-1", from_s=0, busy_s=[])
    launch(tmp_path, "cold-2", from_s=30, busy_s=[])
    path = launch(tmp_path, ".cold-3.part", from_s=60, busy_s=[(60, 80)])
    alone = launch(tmp_path / "elsewhere", "cold-3", from_s=60, busy_s=[(60, 80)])

    assert "other processes used 1.0 cores (typically 0.0)" in MachineJudge(path)(70 * S, 72 * S)[0]
    assert () == MachineJudge(alone)(70 * S, 72 * S)


def test_runs_that_merely_lie_in_one_folder_are_no_study(tmp_path: Path) -> None:
    launch(tmp_path, "cold-1", from_s=0, busy_s=[])
    path = launch(tmp_path, "cold-2", from_s=60, busy_s=[(60, 80)])
    (tmp_path / "launches").rename(tmp_path / "reports")

    assert () == MachineJudge(tmp_path / "reports" / path.parent.name / path.name)(70 * S, 72 * S)


def test_a_neighbour_that_stays_is_how_the_machine_is(tmp_path: Path) -> None:
    launch(tmp_path, "cold-1", from_s=0, busy_s=[])
    paths = [launch(tmp_path, f"cold-{2 + n}", from_s=30 + 30 * n, busy_s=[(30, 200)]) for n in range(3)]
    found = [MachineJudge(path)(start * S, (start + 2) * S) for path, start in zip(paths, (40, 70, 100), strict=True)]

    assert [False, False] == [bool(reasons) for reasons in found[1:]]


def test_launches_that_came_later_do_not_change_the_answer(tmp_path: Path) -> None:
    paths = [launch(tmp_path, f"cold-{n}", from_s=30 * n, busy_s=[(60, 80)] if n == 2 else []) for n in range(3)]
    judge, again = MachineJudge(paths[2]), MachineJudge(paths[2])
    first = judge(70 * S, 72 * S)
    launch(tmp_path, "cold-3", from_s=90, busy_s=[(90, 110)])

    assert first
    assert first == again(70 * S, 72 * S)
    assert judge.uses == again.uses


def test_a_broken_or_linked_neighbour_is_passed_over(tmp_path: Path) -> None:
    path = launch(tmp_path, "cold-2", from_s=30, busy_s=[(30, 50)])
    elsewhere = launch(tmp_path / "other", "cold-1", from_s=0, busy_s=[])
    (tmp_path / "launches" / "linked").symlink_to(elsewhere.parent)
    for name, text in (
        ("empty", ""),
        ("foreign", "x\ny\nz\n"),
        ("torn", '{"format":"flashprof-counters","version":1}\n{"a'),
    ):
        (tmp_path / "launches" / name).mkdir()
        (tmp_path / "launches" / name / "counters.jsonl").write_text(text)

    assert () == MachineJudge(path)(40 * S, 42 * S)


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
