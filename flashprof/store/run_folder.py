"""
The run folder: one launch, all that was measured, and what can be rebuilt from it.

Written as `.<run-id>.part` and renamed when it is complete, so that a reader never meets half a run.

Format history
    1  2026-11  manifest.json, summary.json, events/, control/, samples/, windows.parquet, phases.parquet, lanes.parquet
                Added since, and absent in older ones: the manifest's cell_facts, cell_hash, cell_known_hash and
                longest_silence_s; timeline.json, samples/phase_lines.json, samples/<window>/gil.json and *.gil.folded
"""

from __future__ import annotations

import contextlib
import json
import platform
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import FormatError, ToolError, UsageError
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE

FORMAT = "flashprof-run"
VERSION = 1
MIN_FREE_BYTES = 64 * 2**20
"""A 90 s run of the tiny preset takes 3 MB; below this a run would be cut off half-way."""
RESERVE_BYTES = 2 * 2**20
"""Tables, summary, report and flamegraph of the tiny preset take 0.5 MB."""
FULL_BYTES = 2**20
INSTRUMENT = ("__init__.py", "control.py", "events.py")
"""Contracts that are the emitter's own: what it writes and what it reads must be of today's form."""
FALLBACK = "fallback"
"""The rest of them, for a subject that has no FlashProf on its path."""
LOOK_FURTHER = """
import os, pkgutil
__path__ = pkgutil.extend_path(__path__, __name__)
"""
"""Ends the copied packages' files: what is not in the copy is looked for along the subject's path."""
ADD_FALLBACK = f'__path__.append(os.path.join(os.path.dirname(__file__), "{FALLBACK}"))\n'
MAX_NAME_BYTES = 200
"""File systems allow 255; `.NAME.part` and a temporary ending must fit."""
MADE_OF_THE_TIME = re.compile(r"[0-9]{8}-[0-9]{6}-")
"""How the names begin that `flashprof run` makes: nobody has asked for just that one."""
MAX_A_SECOND = 100
"""Runs that begin in one second, on all hosts that share the folder."""


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
    def counters(self) -> Path:
        """What the machine did meanwhile, read about once a second."""
        return self.part / COUNTERS_FILE

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

    @property
    def owner(self) -> Path:
        """Which FlashProf writes here; gone when the run is published."""
        return self.part / "owner.json"

    @property
    def reserve(self) -> Path:
        """Room for the results, taken at the start: a subject that fills the disk leaves none."""
        return self.part / ".reserve"

    @property
    def is_disk_full(self) -> bool:
        """Whether there is no room but the reserve."""
        return self.part.exists() and shutil.disk_usage(self.part).free < FULL_BYTES

    def write_text(self, name: str, text: str) -> None:
        """Write one file whole or not at all."""
        temporary = self.part / f".{name}.tmp"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self.part / name)

    def write_manifest(self, content: Mapping[str, Any]) -> None:
        """Write `manifest.json` with format, version and the name that the run has got."""
        document = {"format": FORMAT, "version": VERSION, **content, "run_id": self.final.name}
        self.write_text("manifest.json", json.dumps(document, indent=2, default=str) + "\n")

    def publish(self) -> Path:
        """Give the folder its final name."""
        # Byte code that the subject's interpreter left beside the emitter.
        for cache in self.emitter.rglob("__pycache__"):
            shutil.rmtree(cache, ignore_errors=True)
        self.release_reserve()
        self.owner.unlink(missing_ok=True)
        self.part.replace(self.final)
        return self.final

    def release_reserve(self) -> None:
        """Give the reserved room to the results."""
        self.reserve.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove a run that never began."""
        shutil.rmtree(self.part, ignore_errors=True)


def create_run_folder(reports: Path, run_id: str) -> RunFolder:
    """
    Make the folder of a new run.

    Args:
        reports: The folder of all runs; made where it is not there.
        run_id: Its name. One that begins with the time gets a number where another run began in the same second.

    Raises:
        UsageError: A run of that name exists, or the reports folder is no folder or not writable.
        ToolError: The disk is full.
    """
    _check_name(run_id)
    try:
        reports.mkdir(parents=True, exist_ok=True)
        _check_free(reports)
        folder = _claim(reports, run_id)
    except OSError as error:
        raise unwritable(reports, error) from error
    try:
        _fill(folder)
    except OSError as error:
        folder.discard()
        raise ToolError(
            f"cannot write to the reports folder: {error.strerror}",
            where=str(reports),
            next_command=f"df -h {reports}, or --reports DIRECTORY",
        ) from error
    return folder


def unwritable(reports: Path, error: OSError) -> UsageError:
    """What to tell a user whose reports folder cannot be used."""
    return UsageError(
        f"cannot write to the reports folder: {error.strerror}",
        where=str(reports),
        allowed="a folder that exists or can be made, and is writable",
        next_command="--reports DIRECTORY",
    )


def read_manifest(path: Path) -> dict[str, Any]:
    """
    The manifest of a finished run.

    Raises:
        FormatError: No run folder, or one of another version.
    """
    try:
        document: dict[str, Any] = dict(json.loads((path / "manifest.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
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
    is_name = run_id and not run_id.startswith(".") and Path(run_id).name == run_id and run_id.isprintable()
    if not is_name or len(run_id.encode()) > MAX_NAME_BYTES:
        raise UsageError(
            f"{run_id!r} cannot name a run folder",
            allowed=f"one folder name without slashes, not starting with a dot, at most {MAX_NAME_BYTES} bytes",
            next_command="--run-id NAME",
        )


def _claim(reports: Path, run_id: str) -> RunFolder:
    names = [run_id]
    if MADE_OF_THE_TIME.match(run_id):
        names += [f"{run_id}-{number}" for number in range(2, MAX_A_SECOND + 1)]
    folders = [RunFolder(final=reports / name, part=reports / f".{name}.part") for name in names]
    for folder in folders:
        # Of two FlashProfs that start at once, one makes the folder and gets the name.
        with contextlib.suppress(FileExistsError):
            if not folder.final.exists():
                folder.part.mkdir()
                return folder
    raise _taken(folders[0])


def _taken(folder: RunFolder) -> UsageError:
    other = "another --run-id, or none for a name made of the time"
    if folder.final.exists():
        return UsageError("a run of that name exists", where=str(folder.final), next_command=other)
    if _is_under_way(folder):
        return UsageError("a run of that name is under way", where=str(folder.part), next_command=other)
    return UsageError(
        "a run of that name was cut off: the FlashProf that wrote it is gone",
        where=str(folder.part),
        next_command=f"rm -r {shlex.quote(str(folder.part))}, or {other}",
    )


def _is_under_way(folder: RunFolder) -> bool:
    """Whether the writer still runs; of another host that cannot be known, so it counts as running."""
    import psutil

    try:
        owner = json.loads(folder.owner.read_text(encoding="utf-8"))
        if owner["host"] != platform.node():
            return True
        # A process id is used again; together with its start it is not.
        return bool(psutil.Process(owner["pid"]).create_time() == owner["started_s"])
    except (OSError, ValueError, KeyError, TypeError, psutil.Error):
        return False


def _check_free(reports: Path) -> None:
    free_bytes = shutil.disk_usage(reports).free
    if free_bytes < MIN_FREE_BYTES:
        raise ToolError(
            "the disk is full",
            where=str(reports),
            offered=f"{free_bytes / 2**20:.0f} MiB free",
            allowed=f"{MIN_FREE_BYTES / 2**20:.0f} MiB or more",
            next_command=f"df -h {reports}, or --reports DIRECTORY",
        )


def _fill(folder: RunFolder) -> None:
    import psutil

    process = psutil.Process()
    owner = {"host": platform.node(), "pid": process.pid, "started_s": process.create_time()}
    folder.owner.write_text(json.dumps(owner), encoding="utf-8")
    folder.reserve.write_bytes(bytes(RESERVE_BYTES))
    for path in (folder.events, folder.control, folder.samples):
        path.mkdir()
    _copy_emitter(folder.emitter)


def _copy_emitter(target: Path) -> None:
    """The emitter and the contracts that it imports. All other contracts are those of the subject's own commit."""
    package = target / "flashprof"
    fallback = package / "contracts" / FALLBACK
    fallback.mkdir(parents=True)
    source = resources.files("flashprof")
    for file in source.iterdir():
        if file.name == "__init__.py" or (file.name.startswith("emit") and file.name.endswith(".py")):
            (package / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    for file in source.joinpath("contracts").iterdir():
        if file.name.endswith(".py"):
            folder = package / "contracts" if file.name in INSTRUMENT else fallback
            (folder / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    for init, more in ((package / "__init__.py", ""), (package / "contracts" / "__init__.py", ADD_FALLBACK)):
        with init.open("a", encoding="utf-8") as copy:
            copy.write(LOOK_FURTHER + more)
