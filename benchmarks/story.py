"""
The story that FlashProf was made for, told on a GPU: `python -m benchmarks.story measure --out DIR`, nine minutes of
one H200.

What the cell `none` costs against `all` (`flashprof compare`, switched in one launch), what each toggle brings alone
and is missed when left out (one more launch, `benchmarks.story_cells`), and what `flashprof bisect --good all --bad
none` names. Two more parts, `--only run_all,run_none`, launch both ends with samplers, for phase tables and a
differential flamegraph; they want a call of their own. Each part is a command with a limit: one that fails is a line
of the report, and the others go on.

    python -m benchmarks.story measure --out "$OUT"                                     the first call
    python -m benchmarks.story measure --out "$OUT" --only run_all,run_none --seconds 300   the second
    python -m benchmarks.story write --from SOURCE [--from SOURCE2]                      results file and docs/story.md
    python -m benchmarks.story measure --tiny --out DIR --seconds 240                    a rehearsal

One call is a screening: at a third of a second a step it holds a block or two of the comparison, half of the first
round of the cells, and the beginning of the search. To decide, give the parts a machine of their own for longer than a
call: `--only compare --seconds 330` (four blocks are the least that decide), `--only bisect --seconds 1000` (16
readings took five minutes), `--only cells --seconds 1000` (a round of 36 visits of 18 steps takes six).

Toggles that only a launch can set stay on in all cells: at 45 s a start, nine minutes hold no pairs of launches.

What comes back: `cells.json`, `parts/` (what each command printed), `story.json`, `story.md`, and
`story-reports.tgz`, all run folders without the copy of the emitter in each: about 0.3 MB a launch.

Foretold for 8,192 tokens and 512 anchors a batch on an H200 (8,192 draft tokens; both models on one card): target 121
TFLOP, 0.17 s at 700 TFLOP/s and 0.25 s as measured by hooks; drafter 81 TFLOP + its optimizer's 30 GB, 0.12 + 0.01 s,
0.2 s as peers do it; so 0.45 s a step, 17K tok/s with `all`. `none` adds two evaluated masks (16K × 8K pairs each, 12
ms), the logits of all slots (4 passes over 1.2 G numbers, 15 ms), document ids (8K objects, 3 ms), 4 synchronisations
(the host cannot run ahead: 10 to 20 ms of launches), the target's last two layers and its head (8 %, 20 ms): 60 to 80
ms, 13 to 15 %, of which the mask and the logits have a half.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from benchmarks.results_file import RESULTS, Goal, Measure, write_results
from benchmarks.story_cells import machine_refuses
from benchmarks.story_facts import collect
from benchmarks.story_page import PAGE, make_page
from benchmarks.story_parts import DEFAULT_PARTS, WEIGHTS, Workload, pack_reports, part_command, run_parts, share_time
from pipeline.toggles import REGISTRY

SECONDS = 520.0
"""A call of the device machine may take 600 s; this leaves room for its start and the archive."""
GPU_TRAIN = "--token-budget 8192 --anchors 512"
"""Short steps: at the preset's 26,624 tokens a step takes 1.3 s, and nine minutes hold too few windows."""


@click.group()
def main() -> None:
    """Measure the story, and write it down."""


@main.command()
@click.option("--out", required=True, type=click.Path(path_type=Path))
@click.option("--only", default=",".join(DEFAULT_PARTS), show_default=True, help=f"Of {', '.join(WEIGHTS)}.")
@click.option("--seconds", default=SECONDS, show_default=True, type=click.FloatRange(min=40))
@click.option("--preset", default="qwen3-8b-random", show_default=True)
@click.option("--topology", default="shared", show_default=True, help="On two GPUs: 1+1.")
@click.option("--train", default=GPU_TRAIN, show_default=True, metavar="OPTIONS")
@click.option("--set", "settings", multiple=True, metavar="SECTION.FIELD=VALUE")
@click.option("--tiny", is_flag=True, help="The tiny preset, 1+1, on whatever is here: a rehearsal.")
@click.option("--dry-run", is_flag=True, help="Print the commands; start nothing.")
def measure(*, out: Path, only: str, seconds: float, tiny: bool, dry_run: bool, **given: Any) -> None:
    """Run the parts within the time, and write what they found under DIR."""
    names = [name.strip() for name in only.split(",")]
    unknown = [name for name in names if name not in WEIGHTS]
    if unknown:
        raise click.UsageError(f"no such part: {unknown[0]}; parts are {', '.join(WEIGHTS)}")
    if tiny:
        given |= {"preset": "tiny", "topology": "1+1", "train": ""}
    workload = _workload(given)
    if dry_run:
        for name, limit_s in share_time(names, seconds).items():
            click.echo(" ".join(part_command(name, workload, limit_s, out)))
        return
    run_parts(names, workload, seconds, out)
    found = collect([out])
    (out / "story.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    pack_reports(out)
    for measured in to_measures(found):
        click.echo(f"{measured}   {measured.note}")
    (out / "story.md").write_text(make_page(found), encoding="utf-8")
    for name, status in found["status"].items():
        click.echo(f"{name}: status {status['status']} after {status['wall_s']:.0f} s {status['why']}")


@main.command()
@click.option("--from", "sources", multiple=True, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--measured-on", default="", help="The hardware, where it was not this machine: from story.json.")
@click.option("--bisect-note", default="", help="What a reader must know of the search beside its answer.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
@click.option("--page", default=PAGE, show_default=True, type=click.Path(path_type=Path))
def write(*, sources: tuple[Path, ...], measured_on: str, bisect_note: str, results: Path, page: Path) -> None:
    """
    Write the results file and the page, of what calls have left: their folders, or an earlier results file.

    A later source's part wins.
    """
    found = collect(sources)
    found["bisect_note"] = bisect_note or found["bisect_note"]
    measures = to_measures(found)
    if not measures:
        raise click.ClickException("no part found anything: look at parts/*.err")
    path = write_results("story", measures, found, folder=results, measured_on=measured_on or found["hardware"])
    page.write_text(make_page(found), encoding="utf-8")
    click.echo(f"written to {path} and {page}")


def to_measures(found: Mapping[str, Any]) -> list[Measure]:
    """The numbers, each with its interval; goals where the issue names one."""
    measures = []
    effect = (found["compare"] or {}).get("effect")
    if effect:
        measures.append(_share("story_drop", effect, "none against all, hot, one launch"))
    for one in (found["cells"] or {"effects": []})["effects"]:
        if one["members"]:
            kind = "alone" if one["group"] == "none" else "left_out"
            name = f"story_{'_'.join(one['members'])}_{kind}"
            measures.append(_share(name, one["effect"], f"{100 * one['share']:.0f} % of the drop"))
    search = found["bisect"]
    if search:
        causes = ", ".join(" × ".join(members) for members in search["culprits"]) or "nothing"
        named = Measure(
            name="story_bisect_proved",
            value=float(search["verdict"] == "regression"),
            unit="",
            goal=Goal(low=1.0),
            note=f"{search['verdict']}: {causes}; {search['num_readings']} windows, {search['spent_s']:.0f} s",
        )
        measures.append(named)
    for name, run in found["runs"].items():
        if run["sampling_cost"]:
            cost = run["sampling_cost"]
            note = f"95 %: {cost['low']:.2%} to {cost['high']:.2%}"
            measures.append(
                Measure(
                    name=f"story_sampling_cost_{name}",
                    value=cost["estimate"],
                    unit="relative",
                    goal=Goal(high=0.01),
                    note=note,
                )
            )
    return measures


def _share(name: str, effect: Mapping[str, Any], note: str) -> Measure:
    ends = [effect["low"], effect["high"]]
    words = " to ".join("no bound" if end is None else f"{end:+.1%}" for end in ends)
    return Measure(name=name, value=effect["estimate"], unit="relative", note=f"95 %: {words}; {note}")


def _workload(given: Mapping[str, Any]) -> Workload:
    # What the machine refuses is off in both ends: a running subject would refuse to switch it.
    refused = machine_refuses(REGISTRY)
    cold = [toggle.name for toggle in REGISTRY if not toggle.hot and toggle.name not in refused]
    return Workload(
        preset=given["preset"],
        topology=given["topology"],
        train=given["train"],
        settings=given["settings"],
        good=",".join(("all", *(f"-{name}" for name in refused))),
        bad=",".join(("none", *cold)),
    )


if __name__ == "__main__":
    main()
