"""Names in the address, links into run folders, moments and signs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.outcome import Outcome
from flashprof.report.site_text import clip, file_link, microseconds, moment, outcome_badge, slugs, verdict_badge


@given(st.lists(st.text(max_size=90) | st.sampled_from(["a", "a-2", "A", "a/2", ""]), max_size=12))
def test_slugs_are_safe_and_each_is_there_once(names: list[str]) -> None:
    made = slugs(names)

    assert len(names) == len(set(made)) == len(made)
    assert all(re.fullmatch(r"[a-z0-9.+-]+", slug) for slug in made)


def test_a_plain_name_stays_as_it_is() -> None:
    assert ("20261130-101819-tiny-1+1-none", "a", "a-2", "a-2-2") == slugs(
        ["20261130-101819-tiny-1+1-none", "a", "a-2", "a/2"]
    )


@pytest.mark.parametrize(
    ("folder", "path", "root", "link"),
    [
        ("run-1/", "/home/x/reports/run-1/subject.log", "/home/x/reports/run-1", "./run-1/subject.log"),
        ("run-1/", "subject.log", "", "./run-1/subject.log"),
        ("run-1/", ".", "", "./run-1"),
        ("run-1/", "/etc/passwd", "/home/x/reports/run-1", ""),
        ("run-1/", "../../etc/passwd", "", ""),
        ("run-1/", "/r/../../etc/passwd", "/r", ""),
        ("/etc", "passwd", "", ""),
        ("../reports/run-1/", "a", "", "./../reports/run-1/a"),
        ("run-1/", "/r", "", ""),
        ("", "a", "", ""),
        ("javascript:alert(1)", ".", "", "./javascript%3Aalert%281%29"),
        ("run 1/", 'a"b#c?d\\e', "", "./run%201/a%22b%23c%3Fd%5Ce"),
        ("run-\ud800/", "a", "", "./run-%3F/a"),
    ],
)
def test_links_stay_within_the_folder_of_reports(folder: str, path: str, root: str, link: str) -> None:
    assert link == file_link(folder, path, root)


def test_moments_sort_by_time_whatever_their_zone() -> None:
    east, utc = moment("2026-11-30T12:00:00+02:00"), moment("2026-11-30T10:30:00")

    assert "2026-11-30 12:00" == east.text
    assert east.order < utc.order
    assert ("yesterday", 0.0) == (moment("yesterday").text, moment("yesterday").order)


def test_long_texts_are_cut() -> None:
    assert "x" * 9 + "…" == clip("x" * 1_000_000, 10)
    assert "x" * 10 == clip("x" * 10, 10)


def test_each_verdict_has_a_sign_of_its_own() -> None:
    badges = [*map(verdict_badge, Verdict), verdict_badge(Verdict.INCONCLUSIVE, is_failed=True)]

    assert 4 == len({badge.sign for badge in badges})
    assert ["bad", "good", "neutral", "bad"] == [badge.tone for badge in badges]


def test_only_a_completed_launch_is_quiet() -> None:
    assert [Outcome.COMPLETED] == [outcome for outcome in Outcome if outcome_badge(outcome).tone == "quiet"]
    assert "neutral" == outcome_badge(Outcome.INTERRUPTED).tone
    assert "bad" == outcome_badge(Outcome.WRONG_NUMBERS).tone


@pytest.mark.parametrize(("ns", "text"), [(12.0, "0.012"), (1_234.0, "1.23"), (45_678.0, "45.7"), (float("nan"), "–")])
def test_times_a_token_have_three_digits(ns: float, text: str) -> None:
    assert text == microseconds(ns)
