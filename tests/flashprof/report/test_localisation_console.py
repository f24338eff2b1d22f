"""
A localisation, printed and as Markdown, against golden files, and on odd input.

Update the files with `FLASHPROF_UPDATE_GOLDEN=1 pytest tests/flashprof/report`, and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import localisations
import pytest

from flashprof.contracts.localisation import Localisation
from flashprof.report.localisation_console import render_localisation
from flashprof.report.localisation_markdown import render_localisation_markdown

GOLDEN = Path(__file__).parent / "golden"
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


def check_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("FLASHPROF_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")

    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("make", MAKERS)
def test_the_console_text_is_the_golden_one(make: Make) -> None:
    check_golden(f"localisation-{make.__name__}.txt", render_localisation(make(), color=False, width=100))


@pytest.mark.parametrize("make", MAKERS)
def test_the_markdown_is_the_golden_one(make: Make) -> None:
    check_golden(f"localisation-{make.__name__}.md.txt", render_localisation_markdown(make()))


@pytest.mark.parametrize("make", MAKERS)
def test_it_leaves_the_screen_to_the_verdict(make: Make) -> None:
    assert len(render_localisation(make(), color=False, width=100).splitlines()) <= MAX_LINES


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_no_line_is_longer_than_the_width(make: Make, width: int) -> None:
    lines = render_localisation(make(), color=False, width=width).splitlines()

    assert [line for line in lines if len(line) > width] == []


@pytest.mark.parametrize("width", [40, 60, 80])
def test_numbers_stay_whole_on_a_narrow_terminal(width: int) -> None:
    words = " ".join(render_localisation(localisations.one_phase(), color=False, width=width).split())

    assert [number for number in ("+39.00", "94 %", "+38.2", "+2.50") if number not in words] == []


def test_plain_text_has_neither_ansi_sequences_nor_box_characters() -> None:
    text = render_localisation(localisations.chained(), color=False, width=100)

    assert "\x1b" not in text
    assert not any(0x2500 <= ord(character) <= 0x25FF and character != "◀" for character in text)


def test_numbers_that_are_not_finite_become_dashes() -> None:
    found = localisations.odd()
    text = render_localisation(found, color=False, width=100) + render_localisation_markdown(found)

    assert "nan" not in text
    assert "inf " not in text


def test_markup_of_the_terminal_is_text() -> None:
    text = render_localisation(localisations.hostile("[red]x[/red]"), color=True, width=200)

    assert "[red]x[/red]" in text


def test_of_a_long_path_the_end_is_kept() -> None:
    found = localisations.one_phase()
    long = replace(found.frames[0], where="/very" * 40 + "/masks.py:41")

    text = render_localisation(replace(found, frames=(long,)), color=False, width=100)

    assert "y/masks.py:41)" in text
    assert text.count("/very") < 15
