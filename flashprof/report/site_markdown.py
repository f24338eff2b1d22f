"""report.md beside report.html: what a folder of reports holds, for a pull request or a wiki, in the page's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from flashprof.contracts.localisation import Localisation
from flashprof.contracts.site import BisectView, BrokenFolder, CompareView, RunView, Site, Trend
from flashprof.report import bisect_sentences, compare_sentences, figures, sentences
from flashprof.report.pipe_table import escape, pipe_table
from flashprof.report.site_text import clip, moment

Headline = Callable[[Localisation], str]

MAX_RUNS = 200
"""GitHub shows no file of more than 512 KB as Markdown; a row takes about 200 bytes."""


def render_site_markdown(site: Site, *, headline: Headline) -> str:
    """
    The whole folder as GitHub-flavoured Markdown.

    Args:
        site: What there is.
        headline: Says in one sentence where a change lies.
    """
    sections = (
        _top(site),
        _compares(site.compares, headline),
        _bisects(site.bisects, headline),
        _trends(site.trends),
        _runs(site.runs),
        _broken(site.broken),
    )
    return "\n\n".join(block for section in sections for block in section if block) + "\n"


def _top(site: Site) -> Iterator[str]:
    yield f"# {_text(site.title)}"
    yield f"{moment(site.made).text} · FlashProf {_text(site.version)}"
    yield "\n".join(f"- {_text(note)}" for note in site.notes)


def _compares(views: Sequence[CompareView], headline: Headline) -> Iterator[str]:
    if views:
        yield "## Comparisons"
    for view in views:
        result = view.result
        yield f"### {_text(compare_sentences.arms(result))}"
        yield f"**{_text(compare_sentences.answer(result))}**"
        yield _where(view.localisation, headline)
        facts = (result.study, moment(view.started).text, str(result.standing), compare_sentences.cell(result))
        yield _text(" · ".join(fact for fact in facts if fact))


def _bisects(views: Sequence[BisectView], headline: Headline) -> Iterator[str]:
    if views:
        yield "## Bisects"
    for view in views:
        result = view.result
        yield f"### {_text(bisect_sentences.between(result))}"
        yield f"**{_text(bisect_sentences.answer(result))}**"
        yield _where(view.localisation, headline)
        facts = (
            result.search,
            moment(view.started).text,
            bisect_sentences.standing(result),
            bisect_sentences.cost(result),
        )
        yield _text(" · ".join(fact for fact in facts if fact))


def _where(localisation: Localisation | None, headline: Headline) -> str:
    return _text(headline(localisation)) if localisation else ""


def _trends(trends: Sequence[Trend]) -> Iterator[str]:
    if trends:
        yield "## Trends"
    for trend in trends:
        yield f"### {_text(trend.cell)}"
        rows = [
            (
                _text(point.run_id),
                moment(point.started).text,
                _text(point.commit[:12]),
                figures.rate(point.tok_per_s.estimate),
                f"{figures.rate(point.tok_per_s.low)} to {figures.rate(point.tok_per_s.high)}",
                "◀ another level" if index in trend.change_points else "",
            )
            for index, point in enumerate(trend.points)
        ]
        yield pipe_table(("run", "when", "commit", "tok/s", "interval", "level"), rows[-MAX_RUNS:], num_text=3)


def _runs(views: Sequence[RunView]) -> Iterator[str]:
    own = [view for view in views if not view.is_part_of]
    if not own:
        return
    yield "## Runs"
    rows = [
        (
            _text(view.summary.run_id),
            moment(view.started).text,
            _text(sentences.cell(view.summary)),
            _text(str(view.summary.outcome)),
            figures.rate(view.summary.tok_per_s.estimate) if view.summary.tok_per_s else figures.DASH,
        )
        for view in own[:MAX_RUNS]
    ]
    yield pipe_table(("run", "when", "cell", "outcome", "tok/s"), rows, num_text=4)
    if len(own) > MAX_RUNS:
        yield f"{len(own) - MAX_RUNS} older runs are in report.html."


def _broken(folders: Sequence[BrokenFolder]) -> Iterator[str]:
    if folders:
        yield "## Not read"
        yield "\n".join(f"- {_text(item.folder)}: {_text(item.line)}" for item in folders[:MAX_RUNS])


def _text(text: str) -> str:
    """One line that stays text: a backquote would let what follows be markup, and `[x](javascript:…)` be a link."""
    plain = clip(text).replace("\\", "\\\\").replace("`", "'").replace("]", "\\]")
    return escape(" ".join(plain.split()))
