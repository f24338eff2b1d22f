"""
How many windows does it take to name the culprit? `python -m benchmarks.bisect_simulation [--quick]`.

FlashProf's search against other methods, on the same subjects and the same noise: 128 commits, 8 toggles. Then whether
its 95 % are right in 95 of 100, what proofs cost, what hot switching saves, and kills with a resume. Writes
`results/bisect_….json`. Only windows are simulated: `benchmarks/regressions` measures real ones.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.bisect_compared import compared_rows
from benchmarks.bisect_measures import bisect_measures, table_lines
from benchmarks.bisect_trust import belief_trial, proof_trial
from benchmarks.results_file import RESULTS, write_results

NUM_KILLS = 100
NUM_QUICK_KILLS = 6
MOST = 40
"""Windows after which a search counts as inconclusive; the costliest fixed design of the comparison takes 32."""
CHUNK = 10
"""Trials a worker takes at once."""
RECORDED_SHARE = 6
"""Recorded noise gets one trial for so many with drawn noise: more would only draw the same stretches again."""
COMMIT_CASES = (("17", "gauss_2"), ("17", "gauss_5"), ("5", "gauss_2"), ("5", "gauss_5"))
COMMIT_RECORDED = (("17", "vm"), ("17", "steps_cpu"), ("17", "steps_h200"))
TOGGLE_CASES = ("one", "two", "unequal", "pair")
RECORDED = ("vm", "host", "steps_cpu", "steps_h200")
DRAWN = ("gauss_2", "gauss_5")
BELIEVED_TIMES = 5
"""Half of the searches come to a conclusion, and 95 % ± 2 takes 500 of these: of 112, 90 % were right, of 765 94."""
STUDIES = ("commits", "toggles", "beliefs", "proofs")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class Job:
    """Some trials of one case; trial number n is the same world whoever runs it."""

    study: str
    kind: str
    case: str
    noise: str
    first: int
    num: int
    most: int
    """Windows after which FlashProf's search gives up."""
    calibrated: bool


@click.command()
@click.option("--trials", default=300, show_default=True, help="Of each case with drawn noise.")
@click.option("--quick", is_flag=True, help="12 trials and 6 kills, four minutes: whether it all runs.")
@click.option("--only", multiple=True, type=click.Choice(STUDIES), help="Some studies only; may be repeated.")
@click.option("--calibrated", is_flag=True, help="FlashProf knows the sd of a window, as after `flashprof calibrate`.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
def main(*, trials: int, quick: bool, only: tuple[str, ...], calibrated: bool, jobs: int, results: Path) -> None:
    """Simulate all cases, print the tables, and write the results file."""
    num = 12 if quick else trials
    num_kills = NUM_QUICK_KILLS if quick else NUM_KILLS
    plan = list(make_jobs(num, num_kills=num_kills, most=MOST, only=only or STUDIES, calibrated=calibrated))
    cases: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    with click.progressbar(run_jobs(plan, jobs), length=len(plan), label="simulating", item_show_func=_label) as done:
        for job, rows in done:
            cases.setdefault((job.study, job.kind, job.case, job.noise), []).extend(rows)
    for line in table_lines(cases):
        click.echo(line)
    measures = list(bisect_measures(cases))
    for measure in measures:
        click.echo(f"{measure}   {measure.note}")
    data = {
        "trials": num,
        "calibrated": calibrated,
        "cases": {"/".join(key): _columns(rows) for key, rows in cases.items()},
    }
    click.echo(write_results("bisect", measures, data, folder=results))


def make_jobs(trials: int, *, num_kills: int, most: int, only: Sequence[str], calibrated: bool) -> Iterator[Job]:
    """Everything that is simulated, in chunks."""
    few = max(trials // RECORDED_SHARE, 2)
    wanted = [("commits", "commits", case, noise, trials) for case, noise in COMMIT_CASES]
    wanted += [("commits", "commits", case, noise, few) for case, noise in COMMIT_RECORDED]
    wanted += [("toggles", "toggles", case, noise, trials) for case in TOGGLE_CASES for noise in DRAWN]
    wanted += [("toggles", "toggles", case, noise, few) for case in TOGGLE_CASES for noise in RECORDED]
    wanted += [("beliefs", kind, "drawn", "believed", BELIEVED_TIMES * trials) for kind in ("toggles", "commits")]
    wanted += [("beliefs", "toggles", "drawn", noise, trials) for noise in DRAWN]
    wanted += [("beliefs", "toggles", "drawn", noise, few) for noise in RECORDED]
    kills = (("toggles", "one"), ("toggles", "two"), ("toggles", "pair"), ("commits", "17"))
    wanted += [
        ("proofs", kind, case, "gauss_2", num_kills // 4 + (place < num_kills % 4))
        for place, (kind, case) in enumerate(kills)
    ]
    for study, kind, case, noise, num in wanted:
        for first in range(0, num if study in only else 0, CHUNK):
            yield Job(
                study=study,
                kind=kind,
                case=case,
                noise=noise,
                first=first,
                num=min(CHUNK, num - first),
                most=most,
                calibrated=calibrated,
            )


def run_jobs(plan: Sequence[Job], num_processes: int) -> Iterator[tuple[Job, list[dict[str, Any]]]]:
    """All jobs, in their order; each process has one thread."""
    for name in THREADS:
        os.environ[name] = "1"
    # Forked, a child would have the parent's BLAS threads, or rather their locks.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, mp_context=context) as pool:
        yield from zip(plan, pool.map(run_job, plan), strict=True)


def run_job(job: Job) -> list[dict[str, Any]]:
    """One row a trial and method."""
    return [row for seed in range(job.first, job.first + job.num) for row in trial_rows(job, seed)]


def trial_rows(job: Job, seed: int) -> Iterable[dict[str, Any]]:
    """What one trial shows."""
    if job.study == "beliefs":
        return [asdict(belief_trial(job.kind, job.noise, seed, most=job.most))]
    if job.study == "proofs":
        return [asdict(proof_trial(job.kind, job.case, job.noise, seed))]
    return compared_rows(job.kind, job.case, job.noise, seed, most=job.most, calibrated=job.calibrated)


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows turned into columns, a third of the size in a file."""
    rounded = [
        {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()} for row in rows
    ]
    return {name: [row[name] for row in rounded] for name in rounded[0]}


def _label(item: tuple[Job, Any] | None) -> str:
    return "" if item is None else f"{item[0].study} {item[0].case} {item[0].noise}"


if __name__ == "__main__":
    main()
