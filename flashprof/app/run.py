"""`flashprof run` without its command line: one experiment, one published run folder, one summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from flashprof import __version__
from flashprof.app.cells import known_before_launch, manifest_entries, survey
from flashprof.app.earlier import find_earlier, with_learnt_hang_limit
from flashprof.app.machine import short_machine
from flashprof.app.measure import Schedule, plain_windows, record
from flashprof.app.progress import Progress
from flashprof.app.session import Ports
from flashprof.app.summarise import summarise
from flashprof.contracts.errors import FlashProfError, ToolError, UsageError
from flashprof.contracts.experiment import Experiment
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import RunSummary
from flashprof.store.run_folder import RunFolder, create_run_folder
from flashprof.store.tail import read_event_logs


def run(experiment: Experiment, ports: Ports, progress: Progress, *, schedule: Schedule = plain_windows) -> RunSummary:
    """
    Measure one cell and leave its run folder.

    Args:
        experiment: What to measure.
        ports: The world outside.
        progress: Told what happens.
        schedule: What is done between steady state and stop.

    Returns:
        The summary, whatever the outcome: a subject that fails is a result, not an error.

    Raises:
        UsageError: The run folder or the command cannot be used; nothing is left behind.
        ToolError: The disk is full before anything was started, or too full to publish what was measured.
    """
    machine = survey(experiment, ports.env, ports.cwd)
    if schedule is plain_windows:
        # Another schedule may switch to toggles that no earlier run had, and that compile for long.
        earlier = find_earlier(experiment.output.reports, known_before_launch(experiment, machine))
        experiment = with_learnt_hang_limit(experiment, earlier)
    about = {
        "run_id": experiment.output.run_id,
        "flashprof": __version__,
        "experiment": asdict(experiment),
        "machine": machine,
    }
    folder = create_run_folder(experiment.output.reports, experiment.output.run_id)
    try:
        folder.write_manifest({**about, "outcome": None})
        recording = record(experiment, folder, ports, progress, schedule)
    except UsageError:
        folder.discard()
        raise
    folder.release_reserve()
    try:
        progress.stage("summarising")
        logs = read_event_logs(folder.events)
        summary = summarise(experiment, folder, recording, logs, short_machine())
    except KeyboardInterrupt:
        _publish(folder, {**about, "outcome": Outcome.INTERRUPTED, "reason": "stopped by the user while summarising"})
        raise
    except Exception as error:
        # What was measured must not wait in a hidden folder for a fault of ours to be mended.
        why = f"the run cannot be summarised: {type(error).__name__}: {error}"
        _publish(folder, {**about, "outcome": Outcome.TOOL_FAILED, "reason": why})
        if isinstance(error, FlashProfError):
            raise
        raise ToolError(
            f"{why}; this is a fault of FlashProf",
            where=f"{folder.final}, which keeps what was measured",
            next_command="report it with that folder's events and subject.log",
        ) from error
    end = {"cell": summary.cell, "outcome": summary.outcome, "reason": summary.reason, "notes": summary.notes}
    _publish(folder, {**about, **end, **manifest_entries(experiment, machine, logs)})
    return summary


def _publish(folder: RunFolder, manifest: Mapping[str, Any]) -> None:
    try:
        folder.write_manifest(manifest)
        folder.publish()
    except OSError as error:
        raise ToolError(
            f"the run folder cannot be completed: {error.strerror}",
            where=f"{folder.part}, which keeps what was measured",
            next_command=f"df -h {folder.part.parent}",
        ) from error
