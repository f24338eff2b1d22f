"""A run's view: the terminal's words, its tables, its windows and files."""

from __future__ import annotations

from dataclasses import replace

from run_summaries import crashed, healthy
from sites import run_view, widgets

from flashprof.contracts.results import WindowKind
from flashprof.contracts.site import RunView
from flashprof.report import sentences
from flashprof.report.site_run import MAX_OPEN_LANES, RunPage, run_page


def _page(view: RunView, part_of_href: str = "") -> RunPage:
    drawn = widgets()
    return run_page(view, "run/x", part_of_href=part_of_href, flame=drawn.flame, timeline=drawn.timeline)


def test_the_words_are_those_of_the_terminal() -> None:
    view = run_view()
    page = _page(view)

    assert sentences.throughput(view.summary) == page.throughput
    assert sentences.limiting(view.summary) == page.limiting
    assert sentences.token_details(view.summary) == page.details
    assert sentences.warmup(view.summary) in page.said
    assert sentences.warnings(view.summary) == page.warnings


def test_a_disturbed_window_has_its_reason() -> None:
    page = _page(run_view(text="another process kept 1.4 cores busy"))
    measured = [window for window in page.windows if window.kind == WindowKind.MEASURE]

    assert "another process kept 1.4 cores busy" == measured[0].reason
    assert {""} == {window.reason for window in page.windows if window is not measured[0]}


def test_phases_are_counted_in_time_a_token_of_the_run() -> None:
    summary = healthy()
    tokens = sum(window.num_tokens for window in summary.windows if window.kind is WindowKind.MEASURE)
    page = _page(run_view())
    lane = next(lane for lane in page.lanes if lane.is_limiting)
    phase = next(item for item in summary.phases if str(item.lane) == lane.name)

    assert f"{phase.self_ns / tokens / 1e3:.1f}" == f"{float(lane.phases[0].per_token_us):.1f}"
    assert phase.phase == lane.phases[0].name


def test_of_many_lanes_only_the_limiting_one_is_open() -> None:
    summary = healthy()
    limiting = next(row for row in summary.lanes if row.is_limiting)
    others = tuple(
        replace(limiting, lane=replace(limiting.lane, rank=rank), is_limiting=False)
        for rank in range(10, 11 + MAX_OPEN_LANES)
    )
    page = _page(run_view(summary=replace(summary, lanes=(*summary.lanes, *others))))

    assert [True] == [lane.is_limiting for lane in page.lanes if lane.is_open]
    assert all(lane.is_open for lane in _page(run_view()).lanes)


def test_widgets_get_ids_that_hold_the_pages_name() -> None:
    page = _page(run_view())

    assert 'id="flame-run-x"' in page.flame
    assert 'id="timeline-run-x"' in page.timeline


def test_a_run_without_samples_and_timeline_has_no_widgets() -> None:
    page = _page(run_view(profiles=(), timeline=None))

    assert ("", "") == (page.flame, page.timeline)


def test_a_failed_run_says_how_before_all_else() -> None:
    page = _page(run_view(summary=crashed()))

    assert sentences.outcome(crashed()) == page.failed
    assert "bad" == page.badge.tone


def test_files_are_linked_only_within_the_run() -> None:
    paths = {"run": "/r/run-1", "log": "/r/run-1/subject.log", "evil": "/etc/passwd", "up": "../../x"}
    page = _page(run_view(folder="run-1/", summary=replace(healthy(), paths=paths)))

    assert {"run": "./run-1", "log": "./run-1/subject.log", "evil": "", "up": ""} == {
        name: link for name, _, link in page.files
    }


def test_only_busy_threads_are_listed_and_those_that_had_to_wait_are_marked() -> None:
    page = _page(run_view())
    busy = [row for row in healthy().threads if sentences.is_busy(row)]

    assert len(busy) == len(page.threads)
    assert {row.wait_pct >= sentences.CONTENTION_PCT: True for row in busy}.keys() == {it for *_, it in page.threads}


def test_facts_are_grouped_by_their_section() -> None:
    page = _page(run_view(facts={"machine.host": "box", "machine.gpu.0.driver": "570", "source.commit": "9f"}))

    assert (
        ("machine", (("gpu.0.driver", "570"), ("host", "box"))),
        ("source", (("commit", "9f"),)),
    ) == page.facts
