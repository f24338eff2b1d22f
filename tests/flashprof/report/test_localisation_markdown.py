"""Names of a run in Markdown stay text."""

from __future__ import annotations

import localisations

from flashprof.report.localisation_markdown import localisation_blocks


def test_links_tags_and_pipes_of_a_run_are_text() -> None:
    text = "\n".join(localisation_blocks(localisations.hostile("[a](javascript:b)|<img src=x>`c_d")))
    outside = "".join(text.split("`")[::2])

    assert "[a](" not in outside.replace("\\[", "")
    assert "<img" not in outside
    assert "`c" not in text.replace("'c", "")
    assert all(line.replace("\\|", "").count("|") in (0, 9, 10, 11, 8, 5, 6) for line in outside.splitlines())


def test_a_frame_in_the_headline_is_code_without_escapes() -> None:
    text = "\n".join(localisation_blocks(localisations.one_phase()))

    assert "`MaskFactory._build_masks`" in text
    assert "MaskFactory.\\_build\\_masks" in text


def test_every_table_has_cells_for_all_its_titles() -> None:
    blocks = list(localisation_blocks(localisations.one_phase()))
    tables = [block.splitlines() for block in blocks if block.startswith("|")]

    assert len(tables) == 4
    assert all(len({line.count("|") for line in table}) == 1 for table in tables)
