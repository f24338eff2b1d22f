"""Sites as a folder of reports would give them, and widgets that only say that they were asked."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from html.parser import HTMLParser

from run_summaries import crashed, healthy
from search_results import one_culprit
from study_results import regression

from flashprof.contracts.localisation import Localisation
from flashprof.contracts.profiles import FrameId, ProfiledWindow
from flashprof.contracts.results import Interval, WindowKind
from flashprof.contracts.site import BisectView, BrokenFolder, CompareView, RunView, Site, Timeline, Trend, TrendPoint
from flashprof.report.site_widgets import Widgets

VOID = frozenset({"meta", "input", "br", "img", "link", "hr"})


def widgets() -> Widgets:
    """Stand-ins that name the id they were given."""

    def section(view: CompareView | BisectView, id_: str) -> str:
        return f'<section class="page" id="{id_}"><h1>{escape(view.folder)}</h1></section>'

    return Widgets(
        compare=section,
        bisect=section,
        flame=lambda view, id_: f'<div data-widget="flame" id="{id_}">{len(view.profiles)} windows</div>',
        timeline=lambda view, id_: f'<div data-widget="timeline" id="{id_}">{len(view.summary.windows)} windows</div>',
        headline=lambda localisation: f"{localisation.candidate} fell",
    )


def localisation(candidate: str = "none") -> Localisation:
    fell = Interval(estimate=40.0, low=30.0, high=50.0, level=0.95, num_samples=8, method="redraws")
    return Localisation(base="swa", candidate=candidate, base_ns_per_token=200.0, difference=fell)


def run_view(run_id: str = "20261130-100000-tiny", text: str = "none", **fields: object) -> RunView:
    """A healthy run of everything; *text* is what a hostile run would choose."""
    summary = healthy()
    label = next(window.label for window in summary.windows if window.kind is WindowKind.MEASURE)
    profile = ProfiledWindow(
        launch=run_id, label="p", role="drafter", num_ranks=1, ns_per_token=9.0, stacks={(FrameId(text, ""),): 3}
    )
    values: dict[str, object] = {
        "folder": f"{run_id}/",
        "summary": replace(summary, run_id=run_id, cell={**summary.cell, "toggles": text}, notes=(text,)),
        "facts": {"source.commit": "9f5d97f0c0ffee", "machine.host": text},
        "started": "2026-11-30T10:00:00+00:00",
        "disturbances": {label: (text,)},
        "timeline": Timeline(start_s=0.0, length_s=1.0, lanes=()),
        "profiles": (profile,),
    }
    return RunView(**(values | fields))


def point(run_id: str, tok_per_s: float, number: int, commit: str = "") -> TrendPoint:
    rate = Interval(
        estimate=tok_per_s, low=0.99 * tok_per_s, high=1.01 * tok_per_s, level=0.95, num_samples=5, method="t"
    )
    return TrendPoint(run_id=run_id, started=f"2026-11-{1 + number:02}T02:00:00+00:00", tok_per_s=rate, commit=commit)


def trend(*rates: float, changes: tuple[int, ...] = (), text: str = "tiny 1+1") -> Trend:
    points = tuple(point(f"run-{number}", rate, number, f"{number:040x}"[::-1]) for number, rate in enumerate(rates))
    return Trend(cell=text, points=points, change_points=changes)


def site(text: str = "none") -> Site:
    """One of everything, with *text* wherever a run or a file's name can put its own."""
    return Site(
        title=text,
        made="2026-11-30T12:00:00+00:00",
        version="0.1.0",
        runs=(
            run_view("run-1", text),
            run_view("run-0", text, summary=replace(crashed(), run_id=text, reason=text)),
            run_view("cold-1", text, is_part_of=text),
        ),
        compares=(
            CompareView(
                folder="compare-1/",
                result=replace(regression(), study=text, base=text),
                localisation=localisation(text),
                started="2026-11-29T12:00:00+00:00",
            ),
        ),
        bisects=(
            BisectView(
                folder="bisect-1/", result=one_culprit(), localisation=None, started="2026-11-30T11:00:00+00:00"
            ),
        ),
        trends=(trend(100.0, 101.0, 90.0, 91.0, changes=(2,), text=text),),
        broken=(BrokenFolder(folder=text, line=text),),
        notes=(text,),
    )


class Outline(HTMLParser):
    """What a browser would make of a document: its elements with their attributes, and its text."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.text.append(data)

    def values(self, name: str) -> list[str]:
        """All values of an attribute, in the order of the document."""
        return [attributes[name] for _, attributes in self.elements if name in attributes]

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """Elements and the names of their attributes, without what is in them."""
        return [(tag, tuple(attributes)) for tag, attributes in self.elements]
