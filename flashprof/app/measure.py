"""
Measuring one cell once: Experiment → run folder.

    launch → first step → steady state → measure and profile windows in turn → stop → summary

However it ends, the subject's processes are gone, the samplers detached, and what was measured is in the folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashprof.app.log_readings import LogReadings
from flashprof.app.progress import Progress
from flashprof.app.sampling import SamplerSet
from flashprof.app.subject import refusal
from flashprof.app.watch import SubjectEndedError, Watch
from flashprof.contracts.control import CommandName, CommandWriter
from flashprof.contracts.errors import FlashProfError, SubjectError, ToolError, UsageError
from flashprof.contracts.events import Ack
from flashprof.contracts.experiment import Experiment, SubjectKind
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.ports import Clock, Launcher, LaunchSpec, Sampler, SampleTarget, Subject
from flashprof.contracts.results import WindowKind
from flashprof.emit import RUN_DIR_VARIABLE
from flashprof.launch.outcome import classify
from flashprof.stats.steady import find_steady
from flashprof.store.run_folder import RunFolder
from flashprof.store.tail import EventTail

ACK_TIMEOUT_S = 20.0
"""A subject that answers at its next step boundary answers within this, or does not listen."""
POLITE_STOP_S = 3.0
"""After Ctrl-C the subject has this long to obey the command, and as long again to obey SIGINT."""
TAIL_LINES = 40
NO_THROUGHPUT = (
    "no throughput was found in the subject's output: give its form with --tok-per-s 'REGEX' (flashprof run --help), "
    "wait longer for it with --set windows.steady_timeout_s=SECONDS, or call flashprof.emit"
)


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The world outside, as this run sees it."""

    clock: Clock
    launcher: Launcher
    samplers: Sequence[Sampler]
    find_targets: Callable[[Watch, int], Sequence[SampleTarget]]
    """(watch, pid of the subject) → processes to sample."""
    env: Mapping[str, str]
    cwd: Path
    notes: Sequence[str] = ()
    """What could not be had, known before the launch."""


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


def record(experiment: Experiment, folder: RunFolder, ports: Ports, progress: Progress) -> Recording:
    """
    Launch the subject, measure it, end it. However the subject ends is an outcome, not an error.

    Raises:
        UsageError: There is no such command, or our own pipeline refuses what was asked of it.
    """
    launch = _Launch(experiment, folder, ports, progress)
    try:
        outcome, reason = launch.run()
    except KeyboardInterrupt:
        progress.note("interrupted: stopping the subject; what was measured is kept")
        launch.stop_in_haste()
        outcome, reason = Outcome.INTERRUPTED, "stopped by the user"
    except SubjectEndedError:
        outcome, reason = launch.explain_end()
    except SubjectError as error:
        outcome, reason = error.outcome, _with_remedy(error)
    except OSError as error:
        outcome, reason = Outcome.TOOL_FAILED, f"{error.strerror or error}: {error.filename or folder.part}"
    except ToolError as error:
        outcome, reason = Outcome.TOOL_FAILED, _with_remedy(error)
    finally:
        launch.close()
    return launch.recording(outcome, reason)


class _Launch:
    """One start of the subject. The order of its methods is the order of a run."""

    def __init__(self, experiment: Experiment, folder: RunFolder, ports: Ports, progress: Progress) -> None:
        self._experiment = experiment
        self._plan = experiment.windows
        self._folder = folder
        self._ports = ports
        self._progress = progress
        self._commands = CommandWriter(folder.control)
        self._samplers = SamplerSet(ports.samplers)
        self._readings = LogReadings(folder.log, experiment.subject.tok_per_s_pattern)
        self._observed: list[Ack] = []
        self._listens = True
        self._asked_to_stop = False
        self._steady_ns: int | None = None
        self._launched_ns = ports.clock.monotonic_ns()
        self._notes: list[str] = list(ports.notes)
        self._subject: Subject | None = None
        self._watch: Watch | None = None

    def run(self) -> tuple[Outcome, str]:
        """The whole run, when nothing goes wrong."""
        self._launch()
        self._wait_for_start()
        self._wait_for_steady()
        for kind, label, seconds in self._windows():
            self._take_window(kind, label, seconds)
        self.stop(limit_s=self._plan.stop_timeout_s)
        if self._is_foreign and not self._has_ended:
            # A shell script waits for its trainer and hands no SIGINT on. All windows are measured: no failure.
            return Outcome.COMPLETED, ""
        return self.explain_end()

    def stop(self, *, limit_s: float) -> None:
        """Ask the subject to end: by command, then by SIGINT; `close` kills what is left."""
        if self._subject is None or self._watch is None or self._subject.returncode() is not None:
            return
        self._progress.stage("stopping", total_s=limit_s)
        self._asked_to_stop = True
        # After a Ctrl-C in a profile window: a sampler that is still attached would lose its target.
        self._samplers.stop()
        if self._listens and self._watch.lead_steps:
            self._commands.send(CommandName.STOP)
            if self._wait_for_exit(limit_s):
                return
        self._subject.interrupt()
        self._wait_for_exit(limit_s)

    def stop_in_haste(self) -> None:
        """As `stop`, for a user who waits: a second Ctrl-C, or a full disk, leaves the rest to `close`."""
        with contextlib.suppress(KeyboardInterrupt, ToolError):
            self.stop(limit_s=POLITE_STOP_S)

    def close(self) -> None:
        """Leave nothing behind; safe after any failure."""
        try:
            # One more Ctrl-C costs samples, never the end of the processes.
            with contextlib.suppress(KeyboardInterrupt):
                self._samplers.stop()
        finally:
            self._end_processes()
        if self._watch is not None:
            self._watch.look()
            self._notes += self._watch.unreadable

    def explain_end(self) -> tuple[Outcome, str]:
        """
        What the subject's end means.

        Raises:
            UsageError: Our own pipeline ended at once with the status of a usage error.
        """
        assert self._subject is not None
        assert self._watch is not None
        tail = _tail(self._folder.log)
        trained_steps = len(self._watch.lead_steps) or len(self._readings.readings)
        if self._subject.returncode() == UsageError.exit_code and not trained_steps and not self._is_foreign:
            raise refusal(tail)
        if self._is_foreign and not trained_steps and self._subject.returncode() == 0:
            self._notes.append(NO_THROUGHPUT)
        return classify(
            self._subject.returncode(), tail, trained_steps=trained_steps, asked_to_stop=self._asked_to_stop
        )

    def recording(self, outcome: Outcome, reason: str) -> Recording:
        """All that the summary needs and the folder does not hold."""
        if outcome not in (Outcome.COMPLETED, Outcome.INTERRUPTED) and self._folder.is_disk_full:
            # Whoever met it first: a subject that dies of it can print no reason into its log.
            outcome, reason = Outcome.TOOL_FAILED, f"No space left on device: {self._folder.part}; {reason}"
        return Recording(
            outcome=outcome,
            reason=reason,
            observed=tuple(self._observed),
            readings=self._readings,
            steady_ns=self._steady_ns,
            launched_ns=self._launched_ns,
            notes=tuple(dict.fromkeys((*self._notes, *self._samplers.notes))),
        )

    @property
    def _is_foreign(self) -> bool:
        return self._experiment.subject.kind is SubjectKind.FOREIGN

    @property
    def _has_ended(self) -> bool:
        return self._subject is None or self._subject.returncode() is not None

    def _end_processes(self) -> None:
        if self._subject is None:
            return
        had_ended = self._has_ended
        self._subject.kill_tree()
        if self._asked_to_stop and not had_ended:
            self._notes.append("the subject did not end when asked and was killed")

    def _launch(self) -> None:
        env = dict(self._ports.env)
        env[RUN_DIR_VARIABLE] = str(self._folder.part.resolve())
        paths = [str(self._folder.emitter.resolve()), env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = ":".join(path for path in paths if path)
        # Step lines must reach the log as they are printed, or a hang looks like one that printed less.
        env["PYTHONUNBUFFERED"] = "1"
        spec = LaunchSpec(
            command=self._experiment.subject.command, cwd=self._ports.cwd, env=env, log_path=self._folder.log
        )
        self._subject = self._ports.launcher.launch(spec)
        self._watch = Watch(
            subject=self._subject,
            tail=EventTail(self._folder.events),
            log=self._readings,
            clock=self._ports.clock,
            hang_timeout_s=self._plan.hang_timeout_s,
        )

    def _wait_for_start(self) -> None:
        assert self._watch is not None
        watch = self._watch
        # Without a hint that throughput will come, a foreign trainer is soon sampled all the same, without one.
        is_promised = not self._is_foreign or bool(self._experiment.subject.tok_per_s_pattern)
        limit_s = self._plan.start_timeout_s if is_promised else self._plan.steady_timeout_s
        started = self._wait_for_first_sign(limit_s)
        if not started and not is_promised and watch.trainers:
            started = self._wait_for_first_sign(self._plan.start_timeout_s)
        if not started and not self._is_foreign:
            raise SubjectError(
                f"no training step within {limit_s:.0f} s; its last line was: {self._readings.last_line or 'none'}",
                outcome=Outcome.TIMED_OUT,
                next_command="--set windows.start_timeout_s=SECONDS waits longer",
            )
        if not started:
            self._notes.append(NO_THROUGHPUT)
        self._listens = bool(watch.lead_steps)

    def _wait_for_first_sign(self, limit_s: float) -> bool:
        """Whether a training step or a throughput was seen within the limit."""
        assert self._watch is not None
        watch = self._watch
        self._progress.stage("starting the subject", total_s=limit_s)
        started = watch.wait(
            lambda: True if watch.lead_steps or self._readings.readings else None,
            timeout_s=limit_s,
            progress=self._progress,
            may_be_silent=True,
        )
        return started is not None

    def _wait_for_steady(self) -> None:
        assert self._watch is not None
        watch = self._watch
        if not watch.lead_steps:
            self._notes.append("steady state is not looked for: the subject's log has no step times")
            return
        self._progress.stage("waiting for steady state", total_s=self._plan.steady_timeout_s)

        def find() -> int | None:
            steps = watch.lead_steps
            index = find_steady([step.end_ns for step in steps], [step.num_tokens for step in steps])
            return None if index is None else steps[index].end_ns

        self._steady_ns = watch.wait(find, timeout_s=self._plan.steady_timeout_s, progress=self._progress)
        if self._steady_ns is None:
            self._notes.append(
                f"step times had not settled after {self._plan.steady_timeout_s:.0f} s; measured all the same "
                "(--set windows.steady_timeout_s=SECONDS waits longer)"
            )

    def _windows(self) -> list[tuple[WindowKind, str, float]]:
        """Measure and profile windows in turn, so that slow drift falls on both alike."""
        plan = self._plan
        num_profile = 0 if self._samplers.is_empty else plan.num_profile
        planned = []
        for index in range(max(plan.num_measure, num_profile)):
            if index < plan.num_measure:
                planned.append((WindowKind.MEASURE, f"measure-{index + 1}", plan.measure_s))
            if index < num_profile:
                planned.append((WindowKind.PROFILE, f"profile-{index + 1}", plan.profile_s))
        return planned

    def _take_window(self, kind: WindowKind, label: str, seconds: float) -> None:
        assert self._watch is not None
        assert self._subject is not None
        if kind is WindowKind.PROFILE:
            targets = self._ports.find_targets(self._watch, self._subject.pid)
            self._samplers.start(targets, self._folder.samples / label)
            if self._samplers.is_empty:
                return
        self._let_settle()
        self._progress.stage(label.replace("-", " window "), total_s=seconds)
        self._boundary(CommandName.WINDOW_START, label=label, kind=str(kind))
        self._watch.wait(lambda: None, timeout_s=seconds, progress=self._progress)
        self._boundary(CommandName.WINDOW_END, label=label)
        self._samplers.stop()

    def _let_settle(self) -> None:
        """Drop the first steps after a sampler came or went."""
        assert self._watch is not None
        watch = self._watch
        until = len(watch.lead_steps) + self._plan.settle_steps
        if watch.lead_steps:
            watch.wait(lambda: True if len(watch.lead_steps) >= until else None, timeout_s=self._plan.hang_timeout_s)

    def _boundary(self, name: CommandName, **detail: str) -> None:
        """Set a window's start or end: at the subject's step boundary, or by our own clock if it does not listen."""
        assert self._watch is not None
        watch = self._watch
        command = self._commands.send(name, **detail)
        if self._listens:
            ack = watch.wait(lambda: watch.find_ack(command.command_id), timeout_s=ACK_TIMEOUT_S)
            self._listens = ack is not None
            if ack is not None:
                return
            self._notes.append("the subject does not answer control commands: windows are cut by FlashProf's clock")
        at_ns = self._ports.clock.monotonic_ns()
        self._observed.append(Ack(command.command_id, str(name), -1, at_ns, dict(detail)))

    def _wait_for_exit(self, limit_s: float) -> bool:
        assert self._watch is not None
        try:
            self._watch.wait(lambda: None, timeout_s=limit_s, progress=self._progress, may_be_silent=True)
        except SubjectEndedError:
            return True
        return False


def _with_remedy(error: FlashProfError) -> str:
    return f"{error.what}; try: {error.next_command}" if error.next_command else error.what


def _tail(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    except FileNotFoundError:
        return []
