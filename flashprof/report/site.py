"""
The page of a folder of reports: one HTML file that opens from file:// and needs nothing else.

Each view is a section whose id is its address: `#overview`, `#run/<name>`, `#compare/<name>`, `#bisect/<name>`. Without
JavaScript all sections stand below one another.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from flashprof.contracts.site import Site
from flashprof.report.site_overview import counts, run_rows, verdict_rows
from flashprof.report.site_run import run_page
from flashprof.report.site_template import environment
from flashprof.report.site_text import moment, slugs
from flashprof.report.site_trend import trend_picture
from flashprof.report.site_widgets import Widgets, standard_widgets

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ids:
    """Of the sections, in the order of the site's views."""

    runs: tuple[str, ...]
    compares: tuple[str, ...]
    bisects: tuple[str, ...]


def render_site(site: Site, *, widgets: Widgets | None = None) -> str:
    """
    Draw all that a folder of reports holds.

    Args:
        site: Everything in it may be hostile: it is escaped, and named by slugs of our own.
        widgets: Draw the larger parts; FlashProf's own if not given.

    Returns:
        A complete HTML document that can be written as UTF-8.
    """
    from markupsafe import Markup

    widgets = widgets or standard_widgets()
    templates, ids = environment(), _ids(site)
    sections = [_overview(templates, site, ids, widgets), *_runs(templates, site, ids, widgets)]
    sections += [widgets.compare(view, id_) for view, id_ in zip(site.compares, ids.compares, strict=True)]
    sections += [widgets.bisect(view, id_) for view, id_ in zip(site.bisects, ids.bisects, strict=True)]
    scripts = [_resource(name) for name in ("site.js", *widgets.scripts)]
    document = templates.get_template("page.html").render(
        title=site.title,
        # Only these scripts run, whatever a widget should let through.
        script_hashes=" ".join(map(_csp_hash, scripts)),
        style=Markup("\n".join(map(_resource, ("theme.css", "site.css", *widgets.styles)))),  # noqa: S704  our own
        scripts=[Markup(text) for text in scripts],  # noqa: S704  our own
        sections=[Markup(section) for section in sections],  # noqa: S704  their makers escape
    )
    # A lone surrogate from a file's name cannot be written.
    return document.encode("utf-8", errors="replace").decode("utf-8")


def _ids(site: Site) -> _Ids:
    def made(kind: str, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{kind}/{slug}" for slug in slugs(names))

    return _Ids(
        # A launch is called `cold-3` in every comparison.
        runs=made("run", [f"{view.is_part_of}-{view.summary.run_id}".lstrip("-") for view in site.runs]),
        compares=made("compare", [view.result.study for view in site.compares]),
        bisects=made("bisect", [view.result.search for view in site.bisects]),
    )


def _overview(templates: Environment, site: Site, ids: _Ids, widgets: Widgets) -> str:
    rows = run_rows(site.runs, [f"#{id_}" for id_ in ids.runs])
    # Of runs of one name the newest stays: they come newest first.
    pages = {view.summary.run_id: row.href for view, row in reversed(list(zip(site.runs, rows, strict=True)))}
    verdicts = verdict_rows(
        site, [f"#{id_}" for id_ in ids.compares], [f"#{id_}" for id_ in ids.bisects], widgets.headline
    )
    return templates.get_template("overview.html").render(
        title=site.title,
        counts=counts(site),
        made=moment(site.made),
        version=site.version,
        verdicts=verdicts,
        trends=[picture for trend in site.trends if (picture := trend_picture(trend, pages))],
        runs=rows,
        num_launches=sum(bool(row.part_of) for row in rows),
        broken=site.broken,
        notes=site.notes,
    )


def _runs(templates: Environment, site: Site, ids: _Ids, widgets: Widgets) -> list[str]:
    template = templates.get_template("run.html")
    studies = {view.result.study: f"#{id_}" for view, id_ in zip(site.compares, ids.compares, strict=True)}
    studies |= {view.result.search: f"#{id_}" for view, id_ in zip(site.bisects, ids.bisects, strict=True)}
    return [
        template.render(
            run=run_page(
                view,
                id_,
                part_of_href=studies.get(view.is_part_of, ""),
                flame=widgets.flame,
                timeline=widgets.timeline,
            )
        )
        for view, id_ in zip(site.runs, ids.runs, strict=True)
    ]


def _csp_hash(script: str) -> str:
    """As a Content-Security-Policy names a script that may run."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _resource(name: str) -> str:
    return resources.files("flashprof.report").joinpath(name).read_text(encoding="utf-8")
