"""What the parts of the story found, as plain JSON: of one call, of several, and of an earlier results file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from benchmarks.results_file import hardware, versions
from benchmarks.story_effects import Cell, CellEffect, CellReading, fit_effects, joint_costs
from benchmarks.story_parts import read_part, read_status

PARTS = ("compare", "cells", "bisect")
RUN_PARTS = ("run_all", "run_none")


def collect(sources: Sequence[Path]) -> dict[str, Any]:
    """
    What was found, as JSON: `compare`, `cells`, `bisect`, `runs`, the `status` of each, and the `sources`: where, with
    which versions.

    Args:
        sources: Folders that calls have left, and results files of the kind `story`; a later one's part wins.

    Raises:
        click.BadParameter: A file that is no results file of the story.
    """
    found: dict[str, Any] = {"hardware": hardware(), "measured_with": versions()}
    found |= dict.fromkeys(PARTS) | {"runs": {}, "status": {}, "sources": {}, "bisect_note": ""}
    for source in sources:
        told = _earlier(source) if source.is_file() else _left(source)
        if told.get("bisect"):
            # A note speaks of the search that it came with.
            told.setdefault("bisect_note", "")
        for name in ("runs", "status", "sources"):
            found[name] |= told.pop(name, {})
        found |= {name: value for name, value in told.items() if value is not None}
    return found


def _left(folder: Path) -> dict[str, Any]:
    """What a call has left in its folder."""
    told: dict[str, Any] = {"status": read_status(folder), "runs": {}}
    machine = folder / "story.json"
    if machine.exists():
        # Of the machine that measured, which is not the one that writes.
        whole = json.loads(machine.read_text(encoding="utf-8"))
        told |= {name: whole[name] for name in ("hardware", "measured_with") if name in whole}
    for name, read in READERS.items():
        document = read_part(name, folder)
        if document is not None:
            told[name] = read(document)
    for name in RUN_PARTS:
        document = read_part(name, folder)
        if document is not None:
            told["runs"][name.removeprefix("run_")] = run_facts(document)
    with_versions = told.get("measured_with", {})
    words = [f"{what} {with_versions[what]}" for what in ("commit", "torch") if what in with_versions]
    where = ", ".join([told.get("hardware", "unknown hardware"), *words])
    return told | {"sources": dict.fromkeys(_parts_in(told), where)}


def _earlier(path: Path) -> dict[str, Any]:
    """What a results file tells."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        is_story = document["kind"] == "story"
    except (OSError, ValueError, KeyError, TypeError):
        is_story = False
    if not is_story:
        allowed = "a folder of `benchmarks.story measure`, or a file benchmarks/results/story_….json"
        raise click.BadParameter(f"{path} is no results file of the story; allowed: {allowed}")
    data: dict[str, Any] = document["data"] | {"hardware": document["hardware"]}
    known = data.get("sources", {})
    return data | {"sources": {part: known.get(part, path.name) for part in _parts_in(data)}}


def _parts_in(told: Mapping[str, Any]) -> list[str]:
    return [*(name for name in PARTS if told.get(name)), *(f"run_{name}" for name in told["runs"])]


def compare_facts(study: Mapping[str, Any]) -> dict[str, Any]:
    """The change from good to bad, and where it lies."""
    last = study["comparisons"][-1] if study["comparisons"] else None
    place = study.get("localisation") or {"parts": [], "suspects": []}
    return {
        "good": study["base"],
        "bad": study["candidate"],
        "verdict": study["verdict"],
        "reason": last["reason"] if last else "nothing was measured",
        "base_tok_per_s": last["base_tok_per_s"] if last else None,
        "effect": last["effect"] if last else None,
        "num_blocks": last["num_blocks"] if last else 0,
        "spent_s": study["spent_s"],
        "parts": place["parts"],
        "suspects": place["suspects"],
        "failures": study["failures"],
    }


def cell_facts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Effects of all cells, and of the pairs."""
    cells = [Cell(**{**cell, "members": tuple(cell["members"])}) for cell in document["cells"]]
    readings = [
        CellReading(cell=one["cell"], round=one["round"], log_tok_per_s=one["log_tok_per_s"])
        for one in document["readings"]
        if one["counts"]
    ]
    effects: list[CellEffect] = fit_effects(cells, readings)
    return {
        "effects": [asdict(effect) for effect in effects],
        "pairs": [list(pair) for pair in joint_costs(effects)],
        "num_windows": len(document["readings"]),
        "num_counted": len(readings),
        "refused": document["refused"],
        "outcome": document.get("outcome", "cut off"),
        "readings": document["readings"],
    }


def bisect_facts(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the search named, and how far it came."""
    names = ("good", "bad", "verdict", "standing", "reason", "drop", "culprits", "beliefs", "proofs", "spent_s")
    more = ("num_readings", "num_launches", "to_resolve_s", "failures", "cells")
    return {name: result[name] for name in (*names, *more)}


def run_facts(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Tok/s, lanes, and phases of an end that was launched with samplers."""
    names = ("outcome", "tok_per_s", "sampling_cost", "lanes", "phases", "startup_s", "warmup", "notes")
    return {name: summary[name] for name in names}


READERS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "compare": compare_facts,
    "cells": cell_facts,
    "bisect": bisect_facts,
}
