"""The command: `python -m benchmarks.peers`."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp

import click

from benchmarks.peers.measures import table, to_measures
from benchmarks.peers.session import LIMITS_S, Plan, run_systems, unpack_wheels
from benchmarks.peers.work import FULL, TINY
from benchmarks.results_file import write_results

TOTAL_S = 530.0
"""A device call ends after 600 s; machine start, transfers and the file come on top."""


@click.command()
@click.option("--device", default="cuda", show_default=True, type=click.Choice(["cuda", "cpu"]))
@click.option("--tiny", is_flag=True, help="Tiny shapes: tries the code, measures nothing.")
@click.option("--only", multiple=True, type=click.Choice(list(LIMITS_S)), help="Systems to run; default: all.")
@click.option("--skip", multiple=True, type=click.Choice(list(LIMITS_S)))
@click.option(
    "--wheels", type=click.Path(exists=True, path_type=Path), help="The peers' wheels; without, they must be installed."
)
@click.option("--limit-s", default=TOTAL_S, show_default=True, type=click.FloatRange(min=10))
@click.option("--out", type=click.Path(path_type=Path), help="Parts and logs; default: $OUT, or a temporary folder.")
@click.option("--results", type=click.Path(path_type=Path), help="Where the results file goes; default: OUT/results.")
def main(
    *,
    device: str,
    tiny: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    wheels: Path | None,
    limit_s: float,
    out: Path | None,
    results: Path | None,
) -> None:
    """Measure our drafter step and target forward beside the peers', print, and write the results file."""
    out = out or Path(os.environ.get("OUT") or mkdtemp(prefix="peers-"))
    # Outside of OUT: what a lent machine sends back should not hold somebody's packages.
    site = Path(mkdtemp(prefix="peers-site-"))
    packages = unpack_wheels(wheels, site) if wheels else []
    systems = tuple(system for system in LIMITS_S if system in (only or LIMITS_S) and system not in skip)
    plan = Plan(systems=systems, device=device, tiny=tiny, site=site, out=out, limit_s=limit_s)
    found = run_systems(plan)
    for folder in (out / "caches", site):
        shutil.rmtree(folder, ignore_errors=True)
    work = TINY if tiny else FULL
    measures = to_measures(found, work)
    if measures:
        data = {"systems": found, "work": asdict(work), "wheels": packages, "tiny": tiny}
        path = write_results("peers", measures, data, folder=results or out / "results")
        click.echo(f"wrote {path}")
    click.echo("\n".join(map(str, measures)))
    click.echo(table(found))


if __name__ == "__main__":
    main()
