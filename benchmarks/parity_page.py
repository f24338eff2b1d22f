"""
The page about parity, from its results files: `python -m benchmarks.parity_page` writes `docs/parity.md`.

A page that was written by hand would drift from what was measured; a test holds the two together.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.results_file import RESULTS
from pipeline.toggles import REGISTRY

PAGE = RESULTS.parents[1] / "docs" / "parity.md"
INTRODUCTION = """\
# Parity: do toggles change what is learnt?

Made by `python -m benchmarks.parity_page` from `benchmarks/results/parity_*.json`; do not edit.

Two cells that differ in one toggle, the same seed and data, {num_steps} steps of a real run (`{preset}`, `{topology}`).
The table shows the largest relative difference of a step's loss. `=`: equal bit for bit. *in none*: the toggle switched
on alone; *in all*: switched off where everything else but `swa` is on. *Declared* is the tolerance in
`pipeline/toggles.py`; a study that was measured under a narrower one keeps its verdict, and the row says so.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(make_page(read_studies()), encoding="utf-8")


def read_studies() -> list[dict[str, Any]]:
    """The newest parity study of each hardware."""
    by_hardware = {}
    for path in sorted(RESULTS.glob("parity_*.json"), key=lambda path: path.stem.rsplit("_", 1)[-1]):
        study = json.loads(path.read_text(encoding="utf-8"))
        by_hardware[study["hardware"]] = study
    return [by_hardware[name] for name in sorted(by_hardware)]


def make_page(studies: list[dict[str, Any]]) -> str:
    """Markdown: one table, two columns a study."""
    heads = [f"{study['hardware']}, {where}" for study in studies for where in ("in none", "in all")]
    rows = [_row(toggle.name, _declared(toggle.name), studies) for toggle in REGISTRY]
    table = [_line(["toggle", "declared", *heads]), _line(["---"] * (len(heads) + 2)), *map(_line, rows)]
    versions = [
        f"- {study['hardware']}: {study['date']}, torch {study['versions']['torch']}, "
        f"transformers {study['versions']['transformers']}, commit `{study['versions']['commit']}`"
        for study in studies
    ]
    facts = {name: studies[0]["data"][name] for name in ("num_steps", "preset", "topology")}
    return "\n".join([INTRODUCTION.format(**facts), *table, "", "Measured with", "", *versions, ""])


def _row(name: str, declared: str, studies: list[dict[str, Any]]) -> list[str]:
    cells = [_cell(study, f"{name}_in_{base}") for study in studies for base in ("none", "all")]
    return [f"`{name}`", declared, *cells]


def _cell(study: dict[str, Any], measure_name: str) -> str:
    found = next((measure for measure in study["measures"] if measure["name"] == measure_name), None)
    if found is None:
        is_refused = measure_name.partition("_in_")[0] in study["data"]["skipped"]
        return "not on this device" if is_refused else "not measured yet"
    value = "=" if found["value"] == 0 else f"{found['value']:.1e}"
    return value if found["met"] else f"{value} (goal then: {found['goal']}, not met)"


def _declared(name: str) -> str:
    toggle = next(toggle for toggle in REGISTRY if toggle.name == name)
    if toggle.changes_numbers:
        return "another model"
    return f"{toggle.loss_tolerance:g}" if toggle.loss_tolerance else "="


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
