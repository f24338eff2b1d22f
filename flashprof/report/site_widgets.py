"""What the page puts into itself: functions that draw its larger parts, and the styles and scripts that they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flashprof.contracts.localisation import Localisation
from flashprof.contracts.site import BisectView, CompareView, RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class Widgets:
    """Each function returns HTML in which all that comes from a run is escaped."""

    compare: Callable[[CompareView, str], str]
    """A section of the page, with the id that is given."""
    bisect: Callable[[BisectView, str], str]
    flame: Callable[[RunView, str], str]
    """Of a run that has stack samples, with the id of the widget."""
    timeline: Callable[[RunView, str], str]
    """Of a run that has one."""
    headline: Callable[[Localisation], str]
    """One sentence, not escaped: where a change lies."""
    styles: tuple[str, ...] = ()
    """Names of files beside this one, included once each, after the page's own."""
    scripts: tuple[str, ...] = ()


def standard_widgets() -> Widgets:
    """Those of FlashProf. Loaded when a page is made: stack samples need numpy."""
    from flashprof.report.localisation_sentences import headline
    from flashprof.report.site_bisect import render_bisect
    from flashprof.report.site_compare import render_compare

    return Widgets(
        compare=render_compare,
        bisect=render_bisect,
        flame=_flame,
        timeline=_timeline,
        headline=headline,
        styles=("flame.css", "timeline.css"),
        scripts=("flame.js", "timeline.js"),
    )


def _flame(view: RunView, widget_id: str) -> str:
    from flashprof.report.flame import render_flame
    from flashprof.stats.flame_tree import flame_tree

    limiting = next((row.lane.role for row in view.summary.lanes if row.is_limiting), "")
    return render_flame(flame_tree(view.profiles), id=widget_id, focus=limiting)


def _timeline(view: RunView, widget_id: str) -> str:
    from flashprof.report.timeline import render_timeline

    assert view.timeline is not None
    return render_timeline(view.timeline, view.summary.windows, disturbances=view.disturbances, id=widget_id)
