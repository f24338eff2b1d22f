"""Puts the newest study's numbers into `docs/peers.md`, between two marks: `python -m benchmarks.peers.page`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from benchmarks.peers.picture import PICTURE, draw, newest_study
from benchmarks.results_file import RESULTS

PAGE = RESULTS.parents[1] / "docs" / "peers.md"
DRAFTER_PARTS = ("warmup", "fixed", "varying", "both")
"""What `worker.measure_drafter` measures of every system, in its order."""
BEGIN, END = "<!-- numbers: written by benchmarks.peers.page -->", "<!-- end of numbers -->"


def main() -> None:
    """Rewrite the numbers and the picture."""
    study = newest_study()
    PAGE.write_text(with_numbers(PAGE.read_text(encoding="utf-8"), study), encoding="utf-8")
    draw(study, PICTURE)


def with_numbers(page: str, study: Mapping[str, Any]) -> str:
    """
    The page with the study's numbers in it; whatever stands around the marks stays.

    Args:
        page: Holds both marks, each once.
        study: A results file of kind `peers`.
    """
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{numbers(study)}\n{END}{after}"


def numbers(study: Mapping[str, Any]) -> str:
    """Tables in markdown: measures with their goals, and what is not equal."""
    return "\n".join(
        [
            f"{study['hardware']}, {study['date']}, commit `{study['versions']['commit']}`. `{study['command']}`",
            "",
            "| measure | value | goal | note |",
            "|---|---|---|---|",
            *(_row(measure) for measure in study["measures"]),
            "",
            *_differences(study["data"]["systems"], {measure["name"] for measure in study["measures"]}),
        ]
    ).rstrip()


def _row(measure: Mapping[str, Any]) -> str:
    verdict = {None: "", True: f"{measure['goal']}: met", False: f"**{measure['goal']}: not met**"}[measure["met"]]
    value = measure["value"]
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"| `{measure['name']}` | {number} {measure['unit']} | {verdict} | {measure['note']} |"


def _differences(systems: Mapping[str, Any], names: Collection[str]) -> Iterator[str]:
    for system, parts in systems.items():
        lines = parts.get("setup", {}).get("differences", [])
        if lines:
            yield f"What is particular to {system}:"
            yield ""
            yield from (f"- {line}" for line in lines)
            yield ""
        failed = {name: part["error"] for name, part in parts.items() if "error" in part}
        if failed:
            yield from (_failure(system, name, parts, names) for name in failed)
            yield ""


def _failure(system: str, name: str, parts: Mapping[str, Any], names: Collection[str]) -> str:
    """
    A line. One that was killed did run, so which parts it lacks is said in place of the last line of its log.

    Args:
        system: Name.
        name: Of the part that has an error; `lost` for the whole process.
        parts: The system's.
        names: Of the study's measures: `first_run_…` are those of an earlier run.
    """
    ended = parts.get("process", {}).get("ended", "")
    lacks = [part for part in DRAFTER_PARTS if part not in parts]
    if name != "lost" or "setup" not in parts or not ended.startswith("killed") or not lacks:
        return f"- **{system}, {name}, did not run**: {parts[name]['error']}"
    missing = " and ".join(f"`{part}`" for part in lacks)
    earlier = [f"`{found}`" for part in lacks if (found := f"first_run_{part}_{system}") in names]
    told = f"; {', '.join(earlier)} above is of an earlier run" if earlier else ""
    return f"- **{system} was {ended}, before {missing}**{told}"


if __name__ == "__main__":
    main()
