"""`flashprof report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashprof.cli.decision_options import json_option
from flashprof.cli.option_types import NamedPath

if TYPE_CHECKING:
    from flashprof.app.report import ReportResult


@click.command("report")
@click.argument("reports", default="reports", type=NamedPath(path_type=Path))
@click.option("--out", type=NamedPath(path_type=Path), help="Folder for report.html; else the folder of reports.")
@click.option("--figures", is_flag=True, help="Also pictures as SVG and PNG, for papers and pull requests.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@json_option("For programs.")
def command(*, reports: Path, out: Path | None, figures: bool, opens: bool, as_json: bool) -> int:
    """
    Draw all that a folder holds: runs, trends, comparisons, bisects, in one page that needs no network.

    REPORTS is the folder that `flashprof run --reports` wrote to, by default `reports`. Folders in it that cannot be
    read are named, and do not spoil the rest.

    Exit status: 0, or 2 where there is no such folder or nothing in it can be read.
    """
    from flashprof.app.report import make_report

    result = make_report(reports, out=out, figures=figures)
    if as_json:
        import json

        click.echo(json.dumps(_document(result), indent=2))
    else:
        click.echo("\n".join(_lines(result)))
    if opens:
        click.launch(result.page.resolve().as_uri())
    return 0


def _lines(result: ReportResult) -> list[str]:
    """What was read, what was left out and why, and where the page is."""
    site = result.site
    broken = [f"  {item.folder}: {item.line}" for item in site.broken]
    heading = [f"left out  {len(broken)}, or a part of it"] if broken else []
    written = [f"page      {result.page}  ({_size(result.page_bytes)})", f"markdown  {result.twin}"]
    if result.figures:
        written.append(f"figures   {result.figures[0].parent}  ({len(result.figures)} files)")
    return [_read(_counts(result)), *(f"note      {note}" for note in site.notes), *heading, *broken, *written]


def _counts(result: ReportResult) -> dict[str, int]:
    site = result.site
    num_launches = sum(bool(view.is_part_of) for view in site.runs)
    return {
        "runs": len(site.runs) - num_launches,
        "launches": num_launches,
        "comparisons": len(site.compares),
        "bisects": len(site.bisects),
        "trends": len(site.trends),
    }


def _read(counts: dict[str, int]) -> str:
    singular = {"launches": "launch"}
    words = [
        f"{count:,} {singular.get(noun, noun.removesuffix('s')) if count == 1 else noun}"
        for noun, count in counts.items()
        if count
    ]
    return f"read      {', '.join(words)}"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f} MiB" if num_bytes >= 2**20 else f"{num_bytes / 2**10:.0f} KiB"


def _document(result: ReportResult) -> dict[str, Any]:
    return {
        **{f"num_{noun}": count for noun, count in _counts(result).items()},
        "page": str(result.page),
        "page_bytes": result.page_bytes,
        "markdown": str(result.twin),
        "figures": [str(path) for path in result.figures],
        "broken": [{"folder": item.folder, "line": item.line} for item in result.site.broken],
        "notes": list(result.site.notes),
    }
