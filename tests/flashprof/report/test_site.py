"""The whole page: one file, every view with its address, nothing from a run that acts."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_summaries import healthy
from sites import Outline, run_view, site, widgets

from flashprof.contracts.results import LaneRow, PhaseRow
from flashprof.contracts.site import Site
from flashprof.report.site import render_site

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "</style><style>*{display:none}",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "<!-- ]]> -->",
    "\u202egnp.exe\u2066",
    "a\x00b\x1bc\r\nd",
    "&lt;&amp;#x3c;",
    "../../etc/passwd",
    "x" * 100_000,
)


def _render(made: Site) -> str:
    return render_site(made, widgets=widgets())


def test_every_view_has_a_section_and_every_link_leads_to_one() -> None:
    outline = Outline(_render(site()))
    ids = outline.values("id")
    within = [href[1:] for href in outline.values("href") if href.startswith("#")]

    assert {"overview", "run/run-1", "compare/none", "run/none-cold-1"} <= set(ids)
    assert sum(name.startswith("bisect/") for name in ids) == 1
    assert len(ids) == len(set(ids))
    assert set(within) <= set(ids)


def test_elements_are_closed_in_order() -> None:
    outline = Outline(_render(site()))

    assert ([], []) == (outline.unbalanced, outline.open)


def test_a_launch_leads_to_its_comparison() -> None:
    made = site()
    study = made.compares[0].result.study
    document = _render(replace(made, runs=(run_view("cold-1", is_part_of=study),)))

    assert "#compare/none" in Outline(document.partition('id="run/')[2]).values("href")


def test_launches_of_one_name_have_an_address_each() -> None:
    made = replace(
        site(), runs=(run_view("cold-1", is_part_of="a"), run_view("cold-1", is_part_of="b"), run_view("cold-1"))
    )
    ids = Outline(_render(made)).values("id")

    assert ["run/a-cold-1", "run/b-cold-1", "run/cold-1"] == [name for name in ids if name.startswith("run/")]


def test_only_the_pages_own_scripts_may_run() -> None:
    document = _render(site())
    outline = Outline(document)
    policy = next(it["content"] for _, it in outline.elements if it.get("http-equiv") == "Content-Security-Policy")
    allowed = policy.partition("script-src ")[2].partition(";")[0].split()

    assert [_csp_hash(script) for script in outline.scripts] == allowed
    assert policy.startswith("default-src 'none';")


def _csp_hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def test_nothing_is_fetched() -> None:
    outline = Outline(_render(site()))
    addresses = [*outline.values("src"), *outline.values("href")]

    assert [] == outline.values("src")
    assert all(address.startswith(("#", "./")) for address in addresses)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_changes_no_element(text: str) -> None:
    calm, hostile = Outline(_render(site("calm"))), Outline(_render(site(text)))

    assert calm.shape == hostile.shape
    assert calm.scripts == hostile.scripts
    assert calm.values("style") == hostile.values("style")


@settings(max_examples=25, deadline=None)
# Backquotes make code of what they hold, and no more than that.
@given(st.text(st.characters(codec="utf-8", exclude_characters="`"), min_size=1, max_size=30))
def test_no_text_changes_an_element(text: str) -> None:
    outline = Outline(_render(site(text)))

    assert Outline(_render(site("calm"))).shape == outline.shape
    assert all(address.startswith(("#", "./")) for address in outline.values("href"))


def test_hostile_names_of_lanes_phases_and_windows_stay_text() -> None:
    text = HOSTILE[0]
    summary = healthy()
    hostile = replace(
        summary,
        lanes=tuple(_renamed(row, text) for row in summary.lanes),
        phases=tuple(replace(_renamed(row, text), phase=text) for row in summary.phases),
        windows=tuple(replace(window, label=text) for window in summary.windows),
        frames=tuple(replace(frame, name=text, where=text, role=text) for frame in summary.frames),
        threads=tuple(replace(row, thread=text, role=text) for row in summary.threads),
        paths={text: text},
    )
    view = run_view(summary=hostile, facts={text: text}, started=text)
    outline = Outline(_render(replace(site(), runs=(view,))))

    assert Outline(_render(site())).scripts == outline.scripts
    assert "alert(1)" not in "".join(outline.scripts)
    assert [] == outline.unbalanced


def _renamed(row: LaneRow | PhaseRow, text: str) -> LaneRow | PhaseRow:
    return replace(row, lane=replace(row.lane, role=text, thread=text))


def test_a_lone_surrogate_can_be_written() -> None:
    assert _render(site("a\ud800b")).encode("utf-8")


def test_broken_folders_stand_at_the_end_of_the_overview() -> None:
    made = site()
    text = " ".join(
        Outline(_render(replace(made, notes=(), broken=(replace(made.broken[0], line="is cut off"),)))).text
    )

    assert text.index("is cut off") > text.index("limited by")


def test_an_empty_folder_gives_a_page_that_says_what_to_do() -> None:
    document = _render(Site(title="reports", made="", version="0.1.0"))

    assert "flashprof run" in " ".join(Outline(document).text)


def test_a_run_is_small() -> None:
    one, eleven = (_render(Site(title="", made="", version="", runs=(run_view(),) * count)) for count in (1, 11))

    assert (len(eleven) - len(one)) / 10 < 40_000


def test_the_same_site_gives_the_same_page() -> None:
    assert _render(site()) == _render(site())
