"""
Does FlashProf find what was planted? `python -m benchmarks.regressions`, some minutes a case on two cores.

Every case is asked through `flashprof bisect` in a process of its own. A suite that was stopped goes on where it was:
finished cases are kept in `--out`.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from benchmarks.regressions.case import case_names, load_case
from benchmarks.regressions.suite import Answer, Settings, kept_answer, run_case, save_answer, saved_answer
from benchmarks.regressions.table import header, row, to_measures
from benchmarks.results_file import RESULTS, write_results
from flashprof.cli.option_types import duration_s

OUT = Path("reports") / "regressions"


@click.command()
@click.option("--only", multiple=True, help="Name of a case; several times. Default: all.")
@click.option("--commits", "num_commits", default=64, show_default=True, type=click.IntRange(min=8), help="A history.")
@click.option(
    "--budget", "budget_s", default="12m", show_default=True, callback=duration_s, help="Of measuring, a case."
)
@click.option("--seed", default=0, show_default=True, help="Of histories and searches.")
@click.option("--out", default=OUT, show_default=True, type=click.Path(path_type=Path), help="Reports and answers.")
@click.option("--kept", is_flag=True, help="Run nothing: judge what is in --out, however it was asked.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path), help="Folder of the results file.")
def main(*, only: tuple[str, ...], out: Path, kept: bool, results: Path, **given: Any) -> None:
    """Run, print the table, write the results file."""
    unknown = sorted(set(only) - set(case_names()))
    if unknown:
        raise click.BadParameter(
            f"no case {', '.join(unknown)}; there are {', '.join(case_names())}", param_hint="--only"
        )
    click.echo(header())
    found = []
    for name in only or case_names():
        answered = kept_answer(out / name) if kept else answer_of(name, Settings(**given), out / name)
        if answered is not None:
            found.append(answered)
            click.echo(row(answered[1]))
    answers = [answer for _, answer in found]
    measures = to_measures(answers)
    for measure in measures:
        click.echo(str(measure))
    # Lanes of a large machine, or a day's gaps on a small one, leave cases that were given more time than others.
    data = {"answers": [{**asdict(answer), "settings": asdict(settings)} for settings, answer in found]}
    measured_on = " and ".join(dict.fromkeys(answer.hardware for answer in answers if answer.hardware))
    click.echo(f"written to {write_results('regressions', measures, data, folder=results, measured_on=measured_on)}")


def answer_of(name: str, settings: Settings, folder: Path) -> tuple[Settings, Answer]:
    """The kept answer, or a new one, which is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    answer = saved_answer(settings, folder)
    if answer is None:
        answer = run_case(load_case(name), settings, folder.resolve())
        save_answer(answer, settings, folder)
    return settings, answer


if __name__ == "__main__":
    main()
