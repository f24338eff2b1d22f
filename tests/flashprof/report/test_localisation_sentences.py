"""A localisation in one sentence, and what else is said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import localisations
import pytest

from flashprof.contracts.localisation import Localisation
from flashprof.report import localisation_sentences as sentences

HEADLINES = {
    localisations.one_phase: (
        "tok/s fell 17.2 % (15.4 to 18.9): 94 % of it is drafter mask (+39.0 µs a token), in "
        "`MaskFactory._build_masks`; it ranks first in 99 % of redraws"
    ),
    localisations.chained: (
        "tok/s fell 23.1 % (20.3 to 25.7): 60 % of it is target forward (+36.0 µs a token, through drafter "
        "wait_hidden); 20 % drafter wait_hidden (+12.0 µs a token), a wait that nobody's work explains; 16 % "
        "target gather (main:cuda0) (+9.60 µs a token, through drafter wait_hidden); the other way went drafter "
        "mask (−9.60 µs a token); target forward ranks first in 97 % of redraws; 20 % is unexplained"
    ),
    localisations.faster: (
        "tok/s rose 17.6 % (14.9 to 20.5): 97 % of it is drafter loss (−29.0 µs a token); it ranks first in 100 % "
        "of redraws"
    ),
    localisations.unclear: (
        "tok/s changed by −4.3 % (−9.5 to +1.5 %), which is not clear from these windows alone; parts that are: "
        "drafter mask (+8.00 µs a token)"
    ),
    localisations.blurred: (
        "tok/s fell 9.1 % (7.4 to 10.7): no phase is clear by itself; the largest is drafter mask (+12.0 µs a "
        "token, −3.00 µs to +27.0 µs)"
    ),
    localisations.bare: "tok/s fell 17.2 % (15.4 to 18.9); where is not known, for nothing told phases",
}


@pytest.mark.parametrize("make", HEADLINES)
def test_the_headline_says_what_fell_where_and_how_sure(make: Callable[[], Localisation]) -> None:
    assert sentences.headline(make()) == HEADLINES[make]


def test_numbers_that_are_none_are_said_not_to_be_known() -> None:
    text = sentences.headline(localisations.odd())

    assert text.startswith("the change of tok/s is not known")
    assert "nan" not in text


def test_the_frame_is_one_of_the_phase_that_is_named() -> None:
    found = localisations.one_phase()
    named, other, _ = found.frames
    elsewhere = replace(found, frames=(replace(named, phase="forward"), other))
    anywhere = replace(found, frames=(replace(named, phase=""), other))
    unsure = replace(found, frames=(replace(named, is_clear=False),))
    back = replace(found, frames=(replace(named, own=localisations.interval(-900.0, 10.0)),))

    assert "`" not in sentences.headline(elsewhere)
    assert "`MaskFactory._build_masks`" in sentences.headline(anywhere)
    assert "`" not in sentences.headline(unsure)
    assert "`" not in sentences.headline(back)


def test_a_function_of_another_thread_says_so_and_is_named_where_the_phase_has_none() -> None:
    upload = localisations.frame("_upload", 9_000.0, thread="upload", phase="")
    part = localisations.part("backward", 16_000.0, 2_000.0, 16_000.0)
    found = localisations.localisation(localisations.interval(16_000.0, 2_000.0), part, frames=(upload,))

    assert ("drafter", "drafter, thread upload") == (
        sentences.lane(replace(upload, thread="main")),
        sentences.lane(upload),
    )
    assert upload == sentences.culprit_frame(found, part)


def test_parts_of_less_than_a_tenth_are_left_to_the_table() -> None:
    total = 41_500.0
    small = localisations.part("log", 0.09 * total, 10.0, total)
    found = localisations.one_phase()

    assert [it.phase for it in sentences.named_parts(replace(found, parts=(found.parts[0], small)))] == ["mask"]
    assert [it.phase for it in sentences.named_parts(replace(found, parts=(small,)))] == ["log"]


def test_backquotes_are_the_headlines_own() -> None:
    text = sentences.headline(localisations.hostile("a`b\nc"))

    assert text.count("`") == 2
    assert "\n" not in text


def test_a_change_of_tok_s_is_the_inverse_of_one_of_time() -> None:
    change = sentences.rate_change(localisations.one_phase())
    impossible = replace(localisations.one_phase(), difference=localisations.interval(-150_000.0, 60_000.0))

    assert change.estimate == pytest.approx(200_000 / 241_500 - 1)
    assert change.low < change.estimate < change.high
    assert sentences.rate_change(impossible).high == float("inf")


def test_the_limiting_role_is_told_where_it_is_known() -> None:
    assert sentences.limiting(localisations.one_phase()) == "the drafter limits in both"
    assert sentences.limiting(localisations.chained()) == "the drafter limits before, the target after"
    assert sentences.limiting(localisations.bare()) == ""


def test_what_is_left_is_told() -> None:
    told = "clear parts explain 80 % of the change; +12.0 µs a token is unexplained"

    assert sentences.explained(localisations.chained()) == told
    assert sentences.explained(localisations.bare()) == ""


def test_a_search_says_what_it_looked_at() -> None:
    assert sentences.focus(()) == ""
    assert sentences.focus(("mask",)).startswith("the search looked at the time of mask, which alone differs between")
    assert "of a, b and c, which alone differ between" in sentences.focus(("a", "b", "c"))


def test_suspects_that_are_named_come_first_and_the_unknown_last() -> None:
    ordered = sentences.by_ruling(localisations.suspects())

    assert [it.name for it in ordered] == ["mask building", "stragglers", "logging", "GIL contention"]
    assert sentences.suspect_counts(ordered) == "1 named, 1 part, 1 ruled out, 1 unknown"
