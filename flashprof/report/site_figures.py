"""The pictures of a folder of reports as files, SVG and PNG: for papers, slides and pull requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flashprof.contracts.site import BisectView, CompareView, Site
from flashprof.report import bisect_sentences, compare_sentences
from flashprof.report.figure_effect import figure_effect
from flashprof.report.figure_posterior import figure_posterior
from flashprof.report.figure_style import save
from flashprof.report.figure_trend import figure_trend
from flashprof.report.figure_waterfall import figure_waterfall
from flashprof.report.site_bisect import proof_effects
from flashprof.report.site_compare import comparison_effects, tolerance_of
from flashprof.report.site_text import slugs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from flashprof.contracts.localisation import Localisation

MAX_VIEWS = 20
"""Of each kind, the newest: a figure takes 0.3 s."""


def write_figures(folder: Path, site: Site) -> tuple[Path, ...]:
    """
    Write every picture that a site has.

    Args:
        folder: There already.
        site: Names in it only choose file names of our own making.

    Returns:
        The files: `compare-<name>-effect.svg`, `-waterfall`, `bisect-<name>-posterior`, `-proof`, `trend-<name>`.
    """
    written: list[Path] = []
    for stem, figure in _figures(site):
        if figure is not None:
            written += save(figure, folder / stem)
    return tuple(written)


def _figures(site: Site) -> Iterator[tuple[str, Figure | None]]:
    compares, bisects, trends = site.compares[:MAX_VIEWS], site.bisects[:MAX_VIEWS], site.trends[:MAX_VIEWS]
    for name, compared in zip(slugs(view.result.study for view in compares), compares, strict=True):
        yield f"compare-{name}-effect", _effect(compared)
        yield f"compare-{name}-waterfall", _waterfall(compared.localisation)
    for name, searched in zip(slugs(view.result.search for view in bisects), bisects, strict=True):
        yield f"bisect-{name}-posterior", figure_posterior(searched.result)
        yield f"bisect-{name}-proof", _proof(searched)
        yield f"bisect-{name}-waterfall", _waterfall(searched.localisation)
    for name, trend in zip(slugs(trend.cell for trend in trends), trends, strict=True):
        yield f"trend-{name}", figure_trend(trend)


def _effect(view: CompareView) -> Figure | None:
    comparisons = view.result.comparisons
    return figure_effect(
        comparison_effects(comparisons),
        tolerance=tolerance_of(comparisons),
        title=compare_sentences.arms(view.result),
    )


def _proof(view: BisectView) -> Figure | None:
    result = view.result
    return figure_effect(
        proof_effects(result),
        tolerance=bisect_sentences.tolerance(result),
        title=" → ".join(bisect_sentences.ends(result)),
    )


def _waterfall(localisation: Localisation | None) -> Figure | None:
    return figure_waterfall(localisation) if localisation is not None else None
