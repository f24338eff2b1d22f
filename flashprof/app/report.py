"""
`flashprof report` without its command line: a folder of reports → one page, and its twin in Markdown.

    folder → what it holds (store) → bulk for the newest runs, trends → Site → report.html, report.md
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from flashprof import __version__
from flashprof.app.judging import MachineJudge, measured_windows
from flashprof.app.trends import find_trends
from flashprof.contracts.comparison import Arm
from flashprof.contracts.errors import FormatError, ToolError, UsageError
from flashprof.contracts.profiles import ProfiledWindow
from flashprof.contracts.results import WindowKind
from flashprof.contracts.site import BisectView, BrokenFolder, CompareView, RunView, Site
from flashprof.sample.profiles import read_profiles
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE
from flashprof.store.journal import EXPLAINED
from flashprof.store.report_reader import StoredRun, broken, read_reports
from flashprof.store.safe_read import check_tree, printable, read_bytes
from flashprof.store.timeline_file import read_timeline

PAGE = "report.html"
TWIN = "report.md"
FIGURES = "report-figures"
NUM_DETAILED = 20
"""The newest runs have their timeline and flamegraph in the page: about 0.1 MB each."""
MAX_SAMPLES_BYTES = 32 * 2**20
"""Stacks of one run; those of the tiny preset take 0.1 MB."""
STRANGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What values that no run has measured do to code that trusts them: one such folder must not cost the page."""
MAX_NAMED = 3


View = TypeVar("View", CompareView, BisectView)


@dataclass(frozen=True, kw_only=True)
class Drawers:
    """What makes text and pictures of a site."""

    page: Callable[[Site], str]
    twin: Callable[[Site], str]
    figures: Callable[[Path, Site], Sequence[Path]]
    """Writes into a folder that is there; returns the files."""


@dataclass(frozen=True, kw_only=True)
class ReportResult:
    """What was written, and what it was made of."""

    page: Path
    twin: Path
    page_bytes: int
    site: Site
    figures: tuple[Path, ...] = ()


def standard_drawers() -> Drawers:
    """Those of FlashProf."""
    from flashprof.report.localisation_sentences import headline
    from flashprof.report.site import render_site
    from flashprof.report.site_figures import write_figures
    from flashprof.report.site_markdown import render_site_markdown

    return Drawers(
        page=render_site, twin=lambda site: render_site_markdown(site, headline=headline), figures=write_figures
    )


def make_report(
    reports: Path, *, out: Path | None = None, figures: bool = False, drawers: Drawers | None = None
) -> ReportResult:
    """
    Draw all that a folder of reports holds; what cannot be read is named in the page, and does not spoil it.

    Args:
        reports: The folder.
        out: Where the page goes; None for the folder itself.
        figures: Also draw pictures for papers and pull requests.
        drawers: What draws; None for FlashProf's own.

    Raises:
        UsageError: There is no such folder, nothing in it can be drawn, or *out* cannot be written to.
        ToolError: The disk is full.
    """
    target = out or reports
    site = _site(reports, target)
    drawers = drawers or standard_drawers()
    site, page = _drawn(site, drawers.page)
    if not (site.runs or site.compares or site.bisects):
        raise _nothing(reports, site)
    with _writing(target):
        target.mkdir(parents=True, exist_ok=True)
        _write_whole({target / PAGE: page, target / TWIN: drawers.twin(site)})
        drawn = _write_figures(target / FIGURES, lambda folder: drawers.figures(folder, site)) if figures else ()
    return ReportResult(
        page=target / PAGE,
        twin=target / TWIN,
        page_bytes=(target / PAGE).stat().st_size,
        site=site,
        figures=drawn,
    )


def _site(reports: Path, target: Path) -> Site:
    relative = os.path.relpath(reports.resolve(), target.resolve())
    stored = read_reports(reports, link="" if relative == "." else f"{relative}/")
    own = [run for run in stored.runs if not run.view.is_part_of]
    detailed = {run.path for run in own[:NUM_DETAILED]}
    failures: list[BrokenFolder] = []
    runs = [_with_bulk(run, failures, is_detailed=run.path in detailed) for run in stored.runs]
    notes = list(stored.notes)
    if len(own) > NUM_DETAILED:
        notes.append(f"timelines and flamegraphs of the newest {NUM_DETAILED} runs are in this page, no others")
    return Site(
        title=f"FlashProf: {printable(reports.resolve().name)}",
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        runs=tuple(runs),
        compares=(
            *(_with_profiles(view, stored.runs, failures) for view in stored.compares[:NUM_DETAILED]),
            *stored.compares[NUM_DETAILED:],
        ),
        bisects=(
            *(_with_profiles(view, stored.runs, failures) for view in stored.bisects[:NUM_DETAILED]),
            *stored.bisects[NUM_DETAILED:],
        ),
        trends=find_trends(runs),
        broken=(*stored.broken, *failures),
        notes=tuple(notes),
    )


def _with_bulk(run: StoredRun, failures: list[BrokenFolder], *, is_detailed: bool) -> RunView:
    """The run with what its own page draws; a part that cannot be read is named, and the rest is shown."""
    view = run.view
    if view.is_part_of:
        return view
    readers: list[Callable[[], dict[str, Any]]] = [lambda: {"disturbances": _disturbances(run)}]
    if is_detailed:
        readers += [lambda: {"timeline": read_timeline(run.path)}, lambda: {"profiles": _profiles(run)}]
    for read in readers:
        try:
            view = replace(view, **read())
        except (FormatError, OSError, *STRANGE) as error:
            failures.append(_failure(run, error))
    return view


def _failure(run: StoredRun, error: Exception) -> BrokenFolder:
    if isinstance(error, FormatError):
        return broken(run.path.name, error)
    what = f"a part of it is damaged: {type(error).__name__}: {error}"
    return broken(run.path.name, FormatError(what, next_command="measure it again: flashprof run"))


def _disturbances(run: StoredRun) -> Mapping[str, tuple[str, ...]]:
    try:
        # The judge reads it again, and trusts it.
        read_bytes(run.path, COUNTERS_FILE)
    except FileNotFoundError:
        return {}
    judge = MachineJudge(run.path / COUNTERS_FILE)
    judged = ((w.label, judge(w.start_ns, w.end_ns)) for w in measured_windows(run.view.summary.windows))
    return {label: reasons for label, reasons in judged if reasons}


def _profiles(run: StoredRun) -> tuple[ProfiledWindow, ...]:
    samples = run.path / "samples"
    check_tree(samples, max_bytes=MAX_SAMPLES_BYTES)
    windows = [window for window in run.view.summary.windows if window.kind is WindowKind.PROFILE]
    lengths = {window.label: (window.end_ns - window.start_ns, window.num_tokens) for window in windows}
    return read_profiles(samples, launch=run.view.summary.run_id, windows=lengths)


def _with_profiles(view: View, runs: Sequence[StoredRun], failures: list[BrokenFolder]) -> View:
    """With the stacks of the launches that explain it, the newest of each arm: an earlier call may have had others."""
    name = view.folder.rstrip("/").rpartition("/")[2]
    arms: dict[Arm, tuple[ProfiledWindow, ...]] = {}
    for run in runs:
        arm = next((arm for arm in Arm if run.path.name.startswith(f"{arm}-")), None)
        if run.path.parent.name == EXPLAINED and run.view.is_part_of == name and arm is not None and arm not in arms:
            try:
                arms[arm] = _profiles(run)
            except (FormatError, OSError, *STRANGE) as error:
                failures.append(_failure(run, error))
    base, candidate = (arms.get(arm, ()) for arm in Arm)
    return replace(view, base_profiles=base, candidate_profiles=candidate)


def _drawn(site: Site, draw: Callable[[Site], str]) -> tuple[Site, str]:
    """The page; views whose values cannot be drawn are left out and named, each for itself."""
    try:
        return site, draw(site)
    except STRANGE:
        failures: list[BrokenFolder] = []
        nothing = replace(site, runs=(), compares=(), bisects=(), trends=())
        kept: dict[str, Any] = {
            field: tuple(view for view in getattr(site, field) if _is_drawn(nothing, field, view, draw, failures))
            for field in ("runs", "compares", "bisects", "trends")
        }
        rest = replace(site, **kept, broken=(*site.broken, *failures))
        return rest, draw(rest)


def _is_drawn(nothing: Site, field: str, view: Any, draw: Callable[[Site], str], failures: list[BrokenFolder]) -> bool:
    try:
        alone: dict[str, Any] = {field: (view,)}
        draw(replace(nothing, **alone))
    except STRANGE as error:
        what = f"its values cannot be drawn: {type(error).__name__}: {error}"
        name = str(getattr(view, "folder", "") or getattr(view, "cell", ""))
        failures.append(broken(printable(name), FormatError(what, next_command="measure it again")))
        return False
    return True


def _nothing(reports: Path, site: Site) -> UsageError:
    lines = [f"{item.folder}: {item.line}" for item in site.broken[:MAX_NAMED]]
    more = len(site.broken) - len(lines)
    return UsageError(
        "the folder holds no run, comparison or bisect that can be read" if lines else "the folder holds no runs",
        where=str(reports),
        offered="; ".join([*lines, *([f"and {more} more"] if more else []), *site.notes]) or "nothing",
        next_command="flashprof run",
    )


def _write_whole(texts: Mapping[Path, str]) -> None:
    """All files or none: Ctrl-C while they are written leaves those of the last call."""
    parts = {path: path.with_name(f".{path.name}.tmp") for path in texts}
    try:
        for path, text in texts.items():
            # A link of that name in the folder must not lead what is written elsewhere: `x` follows none.
            parts[path].unlink(missing_ok=True)
            with parts[path].open("x", encoding="utf-8", errors="replace") as file:
                file.write(text)
        for path, part in parts.items():
            part.replace(path)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _write_figures(folder: Path, draw: Callable[[Path], Sequence[Path]]) -> tuple[Path, ...]:
    """Draw into a new folder, which then takes the place of the last call's."""
    part = folder.with_name(f".{folder.name}.tmp")
    try:
        _remove(part)
        part.mkdir()
        drawn = draw(part)
        _remove(folder)
        part.replace(folder)
        return tuple(folder / path.relative_to(part) for path in drawn)
    finally:
        _remove(part)


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"cannot write the report: {error.strerror or error}"
        if error.errno == errno.ENOSPC:
            raise ToolError(what, where=str(target), next_command=f"df -h {target}, or --out DIRECTORY") from error
        raise UsageError(what, where=str(target), next_command="--out DIRECTORY") from error
