"""`flashprof run` without its command line: one experiment, one published run folder, one summary."""

from __future__ import annotations

from dataclasses import asdict

from flashprof import __version__
from flashprof.app.machine import full_machine, short_machine
from flashprof.app.measure import Ports, record
from flashprof.app.progress import Progress
from flashprof.app.summarise import summarise
from flashprof.contracts.experiment import Experiment
from flashprof.contracts.results import RunSummary
from flashprof.store.run_folder import create_run_folder


def run(experiment: Experiment, ports: Ports, progress: Progress) -> RunSummary:
    """
    Measure one cell and leave its run folder.

    Returns:
        The summary, whatever the outcome: a subject that fails is a result, not an error.

    Raises:
        UsageError: The run folder or the command cannot be used; nothing is left behind.
        ToolError: The disk is full before anything was started.
    """
    folder = create_run_folder(experiment.output.reports, experiment.output.run_id)
    folder.write_manifest({"run_id": experiment.output.run_id, "experiment": asdict(experiment), "outcome": None})
    recording = record(experiment, folder, ports, progress)
    progress.stage("summarising")
    summary = summarise(experiment, folder, recording, short_machine())
    folder.write_manifest(
        {
            "run_id": experiment.output.run_id,
            "flashprof": __version__,
            "experiment": asdict(experiment),
            "cell": summary.cell,
            "machine": full_machine(ports.env),
            "outcome": summary.outcome,
            "reason": summary.reason,
            "notes": summary.notes,
        }
    )
    folder.publish()
    return summary
