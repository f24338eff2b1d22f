"""
The run folder: one launch, all that was measured, and what can be rebuilt from it.

Written as `.<run-id>.part` and renamed when it is complete, so that a reader never meets half a run.

Format history
    1  2026-11  manifest.json, summary.json, events/, control/, samples/, windows.parquet, phases.parquet, lanes.parquet
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import FormatError, ToolError, UsageError

FORMAT = "flashprof-run"
VERSION = 1
MIN_FREE_BYTES = 64 * 2**20
"""A 90 s run of the tiny preset takes 3 MB; below this a run would be cut off half-way."""


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run, and its publication."""

    final: Path
    """Where it will be; where a reader looks."""
    part: Path
    """Where it is written."""

    @property
    def events(self) -> Path:
        """One events file a process."""
        return self.part / "events"

    @property
    def control(self) -> Path:
        """Commands to the subject."""
        return self.part / "control"

    @property
    def samples(self) -> Path:
        """A folder a profile window."""
        return self.part / "samples"

    @property
    def log(self) -> Path:
        """What the subject printed."""
        return self.part / "subject.log"

    @property
    def emitter(self) -> Path:
        """Today's emitter, first on the subject's path: an older source tree is measured by the same instrument."""
        return self.part / "emitter"

    @property
    def flamegraph(self) -> Path:
        """Stacks of all profile windows, drawn."""
        return self.part / "flamegraph.html"

    def write_text(self, name: str, text: str) -> None:
        """Write one file whole or not at all."""
        temporary = self.part / f".{name}.tmp"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self.part / name)

    def write_manifest(self, content: Mapping[str, Any]) -> None:
        """Write `manifest.json` with format and version."""
        document = {"format": FORMAT, "version": VERSION, **content}
        self.write_text("manifest.json", json.dumps(document, indent=2, default=str) + "\n")

    def publish(self) -> Path:
        """Give the folder its final name."""
        # Byte code that the subject's interpreter left beside the emitter.
        for cache in self.emitter.rglob("__pycache__"):
            shutil.rmtree(cache, ignore_errors=True)
        self.part.replace(self.final)
        return self.final


def create_run_folder(reports: Path, run_id: str) -> RunFolder:
    """
    Make the folder of a new run.

    Raises:
        UsageError: A run of that name exists, or the reports folder is no folder or not writable.
        ToolError: The disk is full.
    """
    folder = RunFolder(final=reports / run_id, part=reports / f".{run_id}.part")
    _check_name(run_id)
    _check_absent(folder)
    try:
        for path in (folder.events, folder.control, folder.samples):
            path.mkdir(parents=True)
    except FileExistsError as error:
        raise UsageError(
            f"{reports} is not a folder", where=str(reports), next_command="--reports DIRECTORY"
        ) from error
    except OSError as error:
        raise UsageError(
            f"cannot write to the reports folder: {error.strerror}",
            where=str(reports),
            next_command="--reports DIRECTORY",
        ) from error
    free_bytes = shutil.disk_usage(reports).free
    if free_bytes < MIN_FREE_BYTES:
        shutil.rmtree(folder.part)
        raise ToolError(
            "the disk is full",
            where=str(reports),
            offered=f"{free_bytes / 2**20:.0f} MiB free",
            allowed=f"{MIN_FREE_BYTES / 2**20:.0f} MiB or more",
            next_command=f"df -h {reports}",
        )
    _copy_emitter(folder.emitter)
    return folder


def read_manifest(path: Path) -> dict[str, Any]:
    """
    The manifest of a finished run.

    Raises:
        FormatError: No run folder, or one of another version.
    """
    try:
        document: dict[str, Any] = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FormatError(
            f"{path} is no run folder", where=str(path / "manifest.json"), next_command="flashprof run"
        ) from error
    if document.get("format") != FORMAT or document.get("version") != VERSION:
        raise FormatError(
            f"run folder format {document.get('format')} version {document.get('version')} is not known",
            where=str(path),
            allowed=f"{FORMAT} version {VERSION}",
            next_command="read it with the FlashProf that wrote it, or measure again",
        )
    return document


def _check_name(run_id: str) -> None:
    if not run_id or run_id.startswith(".") or Path(run_id).name != run_id or not run_id.isprintable():
        raise UsageError(
            f"{run_id!r} cannot name a run folder",
            offered=run_id,
            allowed="one folder name without slashes, not starting with a dot",
            next_command="--run-id NAME",
        )


def _check_absent(folder: RunFolder) -> None:
    for path, why in ((folder.final, "a run of that name exists"), (folder.part, "a run of that name is under way")):
        if path.exists():
            raise UsageError(
                why,
                where=str(path),
                next_command="choose another --run-id, or leave it out for a name made of the time",
            )


def _copy_emitter(target: Path) -> None:
    """The emitter and the contracts that it imports: floor 0, nothing else."""
    package = target / "flashprof"
    (package / "contracts").mkdir(parents=True)
    source = resources.files("flashprof")
    for name in ("__init__.py", "emit.py"):
        (package / name).write_text(source.joinpath(name).read_text(encoding="utf-8"), encoding="utf-8")
    for file in source.joinpath("contracts").iterdir():
        if file.name.endswith(".py"):
            (package / "contracts" / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
