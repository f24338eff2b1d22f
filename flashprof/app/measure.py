"""
Measuring one cell once: Experiment → run folder.

    launch → first step → steady state → what the schedule does, usually windows in turn → stop → summary

However it ends, the subject's processes are gone, the samplers detached, and what was measured is in the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flashprof.app.log_readings import LogReadings
from flashprof.app.progress import Progress
from flashprof.app.session import Ports, Session
from flashprof.app.watch import SubjectEndedError
from flashprof.contracts.errors import FlashProfError, SubjectError, ToolError
from flashprof.contracts.events import Ack
from flashprof.contracts.experiment import Experiment
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import WindowKind
from flashprof.store.run_folder import RunFolder

Schedule = Callable[[Session], None]
"""What is done with a launch between its steady state and its stop; it raises what ends the launch before that."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What a launch left behind, before anything is computed from it."""

    outcome: Outcome
    reason: str
    observed: Sequence[Ack]
    """Window boundaries that FlashProf set by its own clock, for a subject that does not listen."""
    readings: LogReadings
    steady_ns: int | None
    launched_ns: int
    notes: Sequence[str]


def plain_windows(session: Session) -> None:
    """Measure and profile windows in turn, so that slow drift falls on both alike."""
    plan = session.plan
    num_profile = plan.num_profile if session.samples else 0
    for index in range(max(plan.num_measure, num_profile)):
        if index < plan.num_measure:
            session.take_window(WindowKind.MEASURE, f"measure-{index + 1}", plan.measure_s)
        if index < num_profile:
            session.take_window(WindowKind.PROFILE, f"profile-{index + 1}", plan.profile_s)


def record(
    experiment: Experiment,
    folder: RunFolder,
    ports: Ports,
    progress: Progress,
    schedule: Schedule = plain_windows,
) -> Recording:
    """
    Launch the subject, measure it by *schedule*, end it. However the subject ends is an outcome, not an error.

    Raises:
        UsageError: There is no such command, or our own pipeline refuses what was asked of it.
    """
    session = Session(experiment, folder, ports, progress)
    try:
        session.start()
        schedule(session)
        outcome, reason = session.finish()
    except KeyboardInterrupt:
        progress.note("interrupted: stopping the subject; what was measured is kept")
        session.stop_in_haste()
        outcome, reason = Outcome.INTERRUPTED, "stopped by the user"
    except SubjectEndedError:
        outcome, reason = session.explain_end()
    except SubjectError as error:
        outcome, reason = error.outcome, _with_remedy(error)
    except OSError as error:
        outcome, reason = Outcome.TOOL_FAILED, f"{error.strerror or error}: {error.filename or folder.part}"
    except ToolError as error:
        outcome, reason = Outcome.TOOL_FAILED, _with_remedy(error)
    finally:
        session.close()
    if outcome not in (Outcome.COMPLETED, Outcome.INTERRUPTED) and folder.is_disk_full:
        # Whoever met it first: a subject that dies of it can print no reason into its log.
        outcome, reason = Outcome.TOOL_FAILED, f"No space left on device: {folder.part}; {reason}"
    return Recording(
        outcome=outcome,
        reason=reason,
        observed=tuple(session.observed),
        readings=session.readings,
        steady_ns=session.steady_ns,
        launched_ns=session.launched_ns,
        notes=session.notes,
    )


def _with_remedy(error: FlashProfError) -> str:
    return f"{error.what}; try: {error.next_command}" if error.next_command else error.what
