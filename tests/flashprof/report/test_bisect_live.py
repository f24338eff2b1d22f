"""A search while it goes on."""

from __future__ import annotations

from dataclasses import replace

import search_results

from flashprof.contracts.search import SearchLook
from flashprof.report.bisect_live import is_due, line, panel


def test_the_panel_has_the_leading_three_what_comes_next_and_the_cost() -> None:
    shown = panel(search_results.look(), width=80)

    assert shown == (
        "##############......   71 %  swa",
        "###.................   15 %  compile × swa",
        "##..................  8.0 %  docids",
        "next all,-swa: tells the two leading hypotheses apart",
        "14 readings in 1 launch, 88 s, about 3.2 min to come",
    )


def test_the_panel_is_never_wider_than_the_terminal() -> None:
    long = replace(search_results.look(), why="because " * 30)

    assert max(map(len, panel(long, width=40))) == 40
    assert all(len(text) <= 20 for text in panel(long, width=20))


def test_a_line_holds_the_same() -> None:
    expected = (
        "swa 71 %, compile × swa 15 %, docids 8.0 %; 14 readings in 1 launch, 88 s, about 3.2 min to come; "
        "next all,-swa: tells the two leading hypotheses apart"
    )

    assert expected == line(search_results.look())


def test_a_search_that_has_just_begun_has_no_leader_and_no_estimate() -> None:
    begun = SearchLook(beliefs=(), next_cell="", why="", num_readings=0, num_launches=0, spent_s=0.0, to_come_s=None)

    assert line(begun) == "0 readings in 0 launches, 0 s"


def test_commits_are_shown_short() -> None:
    commit = search_results.commit()
    look = replace(search_results.look(), beliefs=commit.beliefs, next_cell=search_results.BROKEN)

    assert "  3c3c3c3c3c3c" in panel(look, width=80)[0]
    assert "next 4d4d4d4d4d4d: " in line(look)


def test_a_log_is_told_ever_more_seldom() -> None:
    assert [1, 2, 4, 8, 16, 32, 48] == [number for number in range(60) if is_due(number)]
