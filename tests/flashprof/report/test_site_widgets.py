"""FlashProf's own widgets: all that they need lies beside them, and each draws what a run has."""

from __future__ import annotations

from importlib import resources

from sites import Outline, run_view, site

from flashprof.report.site import render_site
from flashprof.report.site_widgets import standard_widgets


def test_styles_and_scripts_lie_beside_the_page() -> None:
    found = standard_widgets()
    folder = resources.files("flashprof.report")

    assert all(folder.joinpath(name).is_file() for name in (*found.styles, *found.scripts))


def test_a_run_gets_its_stacks_and_its_timeline() -> None:
    found = standard_widgets()

    for widget in (found.flame, found.timeline):
        ids = Outline(widget(run_view(), "here")).values("id")

        assert "here" in ids


def test_the_whole_page_is_closed_in_order_and_names_each_id_once() -> None:
    outline = Outline(render_site(site("</script><b>")))
    ids = outline.values("id")

    assert ([], []) == (outline.unbalanced, outline.open)
    assert len(ids) == len(set(ids))
