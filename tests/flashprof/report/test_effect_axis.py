"""Changes of tok/s on one axis, and the blocks that they were read from."""

from __future__ import annotations

import math
from dataclasses import replace

import study_results
from sites import Outline

from flashprof.report.effect_axis import Effect, effect_of, render_blocks, render_effects


def _pct(outline: Outline, tag: str, name: str) -> list[float]:
    return [float(it[name].rstrip("%")) for found, it in outline.elements if found == tag and name in it]


def test_each_effect_has_its_intervals_on_the_common_axis() -> None:
    hot, cold = study_results.regression().comparisons
    drawn = render_effects([effect_of("hot", "−17 %", hot), effect_of("cold", "−17 %", cold)], tolerance=0.01)
    outline = Outline(str(drawn))
    thick = [it for tag, it in outline.elements if tag == "line" and it.get("stroke-width") == "7"]

    assert [it["stroke"] for it in thick] == ["var(--bad)", "var(--bad)"]
    assert thick[1]["x1"] < thick[0]["x1"]
    assert "0 %" in outline.text
    assert outline.unbalanced == []


def test_an_interval_without_a_bound_ends_with_the_axis() -> None:
    item = study_results.existing().comparisons[0]
    outline = Outline(str(render_effects([effect_of("existing", "", item)], tolerance=0.01)))

    assert all(0 <= place <= 100 for place in _pct(outline, "line", "x1") + _pct(outline, "line", "x2"))


def test_an_effect_that_is_no_number_is_not_drawn() -> None:
    nan = study_results.interval(math.nan, -math.inf, math.inf)

    assert render_effects([Effect(label="x", text="", found=nan)], tolerance=0.01) == ""
    assert render_effects([], tolerance=0.01) == ""


def test_blocks_are_points_and_those_left_out_crosses_with_their_reason() -> None:
    result = study_results.regression()
    outline = Outline(str(render_blocks(result.blocks[:7], result.comparisons[0])))
    texts = [piece for piece in outline.text if "block 5" in piece]

    assert sum(tag == "circle" for tag, _ in outline.elements) == 6
    assert outline.text.count("×") == 1
    assert texts == ["block 5, ABBA: −14.3 %; left out: other processes used 1.1 cores (typically 0.1)"]


def test_zero_is_on_the_picture_only_where_it_does_not_hide_the_scatter() -> None:
    far, near = study_results.regression(), study_results.inconclusive()
    texts = [Outline(str(render_blocks(it.blocks[:7], it.comparisons[0]))).text for it in (far, near)]

    assert not any(piece.startswith("0") for piece in texts[0])
    assert any(piece.startswith("0") for piece in texts[1])


def test_labels_and_reasons_are_text() -> None:
    text = "<script>alert(1)</script>"
    result = study_results.regression()
    block = replace(result.blocks[0], disturbances=(text,), order=text)
    drawn = str(render_effects([effect_of(text, text, result.comparisons[0])], tolerance=0.01))

    assert "<script" not in drawn + str(render_blocks([block], result.comparisons[0]))


def test_blocks_that_are_no_numbers_are_not_drawn() -> None:
    result = study_results.regression()
    odd = [replace(block, difference=math.nan) for block in result.blocks]

    assert render_blocks(odd, result.comparisons[0]) == ""
