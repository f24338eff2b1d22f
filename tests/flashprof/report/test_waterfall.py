"""The waterfall as inline SVG."""

from __future__ import annotations

import localisations
from sites import Outline

from flashprof.report.waterfall import render_waterfall


def test_bars_are_coloured_by_direction_grey_in_noise_and_hatched_for_waits() -> None:
    outline = Outline(str(render_waterfall(localisations.chained(), id="waterfall-compare/x")))
    fills = [it["fill"] for tag, it in outline.elements if tag == "rect"]

    assert fills == [
        "var(--bad)",
        "url(#waterfall-compare-x-slower)",
        "var(--bad)",
        "var(--neutral)",
        "var(--good)",
    ]
    assert {"waterfall-compare-x", "waterfall-compare-x-slower"} <= set(outline.values("id"))
    assert outline.unbalanced == []


def test_a_wait_within_noise_is_grey_and_a_small_bar_is_seen() -> None:
    total = 40_000.0
    parts = (
        localisations.part("mask", 0.995 * total, 10.0, total),
        localisations.part("wait_hidden", 2_600.0, 9_000.0, total, kind="wait"),
        localisations.part("loss", -2_400.0, 10.0, total),
    )
    found = localisations.localisation(localisations.interval(total, 10.0), *parts)
    bars = [it for tag, it in Outline(str(render_waterfall(found, id="w"))).elements if tag == "rect"]

    assert [it["fill"] for it in bars] == ["var(--bad)", "var(--neutral)", "var(--good)"]
    assert bars[1]["stroke"] == "none"


def test_a_bar_next_to_nothing_is_drawn_as_a_line() -> None:
    found = localisations.localisation(
        localisations.interval(100_000.0, 10.0), localisations.part("mask", 99_990.0, 10.0, 100_000.0)
    )
    bars = [it for tag, it in Outline(str(render_waterfall(found, id="w"))).elements if tag == "rect"]

    assert [it["width"] for it in bars] == ["97.99%", "0.3%"]


def test_amounts_and_both_ends_are_written() -> None:
    text = " ".join(Outline(str(render_waterfall(localisations.one_phase(), id="w"))).text)

    assert all(piece in text for piece in ("compile,swa", "200 µs a token", "+39.0 µs  94 %", "242 µs a token"))


def test_bars_lie_where_the_last_one_ended() -> None:
    outline = Outline(str(render_waterfall(localisations.one_phase(), id="w")))
    first, second = (it for tag, it in outline.elements if tag == "rect")
    ends = float(first["x"].rstrip("%")) + float(first["width"].rstrip("%"))

    assert abs(ends - float(second["x"].rstrip("%"))) < 0.05


def test_names_of_a_run_are_text() -> None:
    text = '"><script>alert(1)</script>'
    outline = Outline(str(render_waterfall(localisations.hostile(text), id="w")))

    assert outline.scripts == []
    assert any(text in piece for piece in outline.text)


def test_without_parts_or_numbers_nothing_is_drawn() -> None:
    assert render_waterfall(localisations.bare(), id="w") == ""
    assert render_waterfall(localisations.odd(), id="w") == ""
