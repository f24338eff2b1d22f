"""
A localisation, printed and as Markdown, against golden files, and on odd input.

Update the files with `FLASHPROF_UPDATE_GOLDEN=1 pytest tests/flashprof/report`, and read the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import localisations
import pytest
from golden import check_golden

from flashprof.contracts.localisation import Localisation
from flashprof.report.localisation_console import ASCII, UNICODE, print_localisation
from flashprof.report.localisation_markdown import localisation_blocks
from flashprof.report.page import make_console, text_of

MAKERS = [
    localisations.one_phase,
    localisations.chained,
    localisations.faster,
    localisations.unclear,
    localisations.blurred,
    localisations.bare,
]
MAX_LINES = 17
Make = Callable[[], Localisation]


def printed(found: Localisation, *, color: bool = False, width: int = 100) -> str:
    console = make_console(color=color, width=width)
    print_localisation(console, found, UNICODE if color else ASCII)
    return text_of(console)


def markdown(found: Localisation) -> str:
    return "\n\n".join(filter(None, localisation_blocks(found))) + "\n"


@pytest.mark.parametrize("make", MAKERS)
def test_the_console_text_is_the_golden_one(make: Make) -> None:
    check_golden(f"localisation-{make.__name__}.txt", printed(make()))


@pytest.mark.parametrize("make", MAKERS)
def test_the_markdown_is_the_golden_one(make: Make) -> None:
    check_golden(f"localisation-{make.__name__}.md.txt", markdown(make()))


@pytest.mark.parametrize("make", MAKERS)
def test_it_leaves_the_screen_to_the_verdict(make: Make) -> None:
    assert len(printed(make()).splitlines()) <= MAX_LINES


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_no_line_is_longer_than_the_width(make: Make, width: int) -> None:
    lines = printed(make(), width=width).splitlines()

    assert [line for line in lines if len(line) > width] == []


@pytest.mark.parametrize("width", [40, 60, 80])
def test_numbers_stay_whole_on_a_narrow_terminal(width: int) -> None:
    words = " ".join(printed(localisations.one_phase(), width=width).split())

    assert [number for number in ("+39.00", "94 %", "+38.2", "+2.50") if number not in words] == []


def test_plain_text_has_neither_ansi_sequences_nor_box_characters() -> None:
    text = printed(localisations.chained())

    assert "\x1b" not in text
    assert not any(0x2500 <= ord(character) <= 0x25FF and character != "◀" for character in text)


def test_numbers_that_are_not_finite_become_dashes() -> None:
    found = localisations.odd()
    text = printed(found) + markdown(found)

    assert "nan" not in text
    assert "inf " not in text


def test_markup_of_the_terminal_is_text() -> None:
    text = printed(localisations.hostile("[red]x[/red]"), color=True, width=200)

    assert "[red]x[/red]" in text


def test_of_a_long_path_the_end_is_kept() -> None:
    found = localisations.one_phase()
    long = replace(found.frames[0], where="/very" * 40 + "/masks.py:41")

    text = printed(replace(found, frames=(long,)))

    assert "y/masks.py:41)" in text
    assert text.count("/very") < 15
