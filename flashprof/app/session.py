"""
One live launch of a subject, and what can be asked of it while it runs.

    start (launch → first step → steady state) → commands, windows → finish, or close at any time

What is done between start and finish is a schedule's business: `app.measure.plain_windows`, `app.hot.hot_blocks`,
`app.visits.serve_visits`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashprof.app.log_readings import MAX_SHOWN, LogReadings
from flashprof.app.progress import Progress
from flashprof.app.sampling import SamplerSet
from flashprof.app.subject import refusal
from flashprof.app.watch import SubjectEndedError, Watch
from flashprof.contracts.control import Command, CommandName, CommandWriter
from flashprof.contracts.errors import SubjectError, ToolError, UsageError
from flashprof.contracts.events import Ack
from flashprof.contracts.experiment import Experiment, SubjectKind, WindowPlan
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.ports import Clock, Launcher, LaunchSpec, Meter, Sampler, SampleTarget, Subject
from flashprof.contracts.results import WindowKind
from flashprof.emit import RUN_DIR_VARIABLE
from flashprof.launch.outcome import classify
from flashprof.stats.steady import Steady, judge_steady
from flashprof.store.counters_file import CountersWriter
from flashprof.store.run_folder import RunFolder
from flashprof.store.tail import EventTail

ACK_TIMEOUT_S = 20.0
"""A subject that answers at its next step boundary answers within this, or does not listen."""
POLITE_STOP_S = 3.0
"""After Ctrl-C the subject has this long to obey the command, and as long again to obey SIGINT."""
TAIL_LINES = 40
MAX_STRETCH = 3
"""A window whose tokens do not come ends after this many times its planned length."""
HINT_NS = 30_000_000_000
"""Whoever forgot the pattern should not wait ten minutes to learn it; then ten times as long between hints."""
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
    profilers: Sequence[Sampler] = ()
    """Samplers for launches that explain a verdict: those that it is read from have none."""
    meter: Meter | None = None
    """Reads the machine's counters about once a second, in every kind of window."""


class Session:
    """One start of the subject. The order of its methods is the order of a run."""

    def __init__(self, experiment: Experiment, folder: RunFolder, ports: Ports, progress: Progress) -> None:
        self.plan: WindowPlan = experiment.windows
        self.progress = progress
        self.readings = LogReadings(folder.log, experiment.subject.tok_per_s_pattern)
        self.observed: list[Ack] = []
        """Window boundaries that FlashProf set by its own clock, for a subject that does not listen."""
        self.steady_ns: int | None = None
        """Where steady state begins, once it was seen."""
        self.launched_ns = ports.clock.monotonic_ns()
        self.listens = True
        self._experiment = experiment
        self._folder = folder
        self._ports = ports
        self._commands = CommandWriter(folder.control)
        self._samplers = SamplerSet(ports.samplers)
        self._counters: CountersWriter | None = None
        self._has_answered = False
        self._asked_to_stop = False
        self._steady_tok_per_s = 0.0
        self._notes: list[str] = list(ports.notes)
        self._subject: Subject | None = None
        self._watch: Watch | None = None

    @property
    def run_id(self) -> str:
        """Name of the run folder."""
        return self._folder.final.name

    @property
    def watch(self) -> Watch:
        """The subject's events, log and exit; there once it was launched."""
        assert self._watch is not None
        return self._watch

    @property
    def samples(self) -> bool:
        """Whether a profile window would differ from a measure window at all."""
        return not self._samplers.is_empty

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know when reading the numbers, each once."""
        return tuple(dict.fromkeys((*self._notes, *self._samplers.notes)))

    def note(self, text: str) -> None:
        """Add something to the notes."""
        self._notes.append(text)

    def start(self) -> None:
        """
        Launch the subject and wait until it trains steadily, or as long as the plan allows.

        Raises:
            UsageError: There is no such command.
            SubjectError: It trains no step.
            SubjectEndedError: It ended.
        """
        self._launch()
        self._wait_for_start()
        self._wait_for_steady()
        self._steady_tok_per_s = self.watch.lead_tok_per_s(self.steady_ns)

    def command(self, name: CommandName, **detail: Any) -> Ack | None:
        """Send a command and wait for its acknowledgement; None from a subject that does not listen."""
        return self._answer_to(self._commands.send(name, **detail))

    def let_settle(self) -> None:
        """Drop the first steps after a sampler came or went."""
        watch = self.watch
        until = len(watch.lead_steps) + self.plan.settle_steps
        if watch.lead_steps:
            watch.wait(lambda: True if len(watch.lead_steps) >= until else None, timeout_s=self.plan.hang_timeout_s)

    def take_window(self, kind: WindowKind, label: str, seconds: float, **about: Any) -> None:
        """
        One window, cut by tokens: as many as the lead rank trains in *seconds* of its steady state.

        Args:
            kind: Whether samplers are attached.
            label: Unique in the launch.
            seconds: Planned length.
            about: Plain JSON values to find again beside the window's start.
        """
        assert self._subject is not None
        if kind is WindowKind.PROFILE:
            targets = self._ports.find_targets(self.watch, self._subject.pid)
            self._samplers.start(targets, self._folder.samples / label)
            if self._samplers.is_empty:
                return
        self.let_settle()
        self.progress.stage(label.replace("-", " window "), total_s=seconds)
        start_ns = self._boundary(CommandName.WINDOW_START, label=label, kind=str(kind), **about)
        self._wait_for_tokens(start_ns, seconds)
        self._boundary(CommandName.WINDOW_END, label=label)
        self._samplers.stop()

    def finish(self) -> tuple[Outcome, str]:
        """Stop the subject when all windows are measured, and say how it ended."""
        self.stop(limit_s=self.plan.stop_timeout_s)
        if self._is_foreign and not self._has_ended:
            # A shell script waits for its trainer and hands no SIGINT on. All windows are measured: no failure.
            return Outcome.COMPLETED, ""
        return self.explain_end()

    def stop(self, *, limit_s: float) -> None:
        """Ask the subject to end: by command, then by SIGINT; `close` kills what is left."""
        if self._subject is None or self._watch is None or self._subject.returncode() is not None:
            return
        self.progress.stage("stopping", total_s=limit_s)
        self._asked_to_stop = True
        # After a Ctrl-C in a profile window: a sampler that is still attached would lose its target.
        self._samplers.stop()
        if self.listens and self._watch.lead_steps:
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
        if self._counters is not None:
            # On a full disk it still holds the line that could not be written.
            with contextlib.suppress(OSError):
                self._counters.close()

    def explain_end(self) -> tuple[Outcome, str]:
        """
        What the subject's end means.

        Raises:
            UsageError: Our own pipeline ended at once with the status of a usage error.
        """
        assert self._subject is not None
        tail = _tail(self._folder.log)
        trained_steps = len(self.watch.lead_steps) or len(self.readings.readings)
        if self._subject.returncode() == UsageError.exit_code and not trained_steps and not self._is_foreign:
            raise refusal(tail)
        if self._is_foreign and not trained_steps and self._subject.returncode() == 0:
            self.note(NO_THROUGHPUT)
        return classify(
            self._subject.returncode(), tail, trained_steps=trained_steps, asked_to_stop=self._asked_to_stop
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
            self.note("the subject did not end when asked and was killed")

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
        if self._ports.meter is not None:
            self._counters = CountersWriter(self._folder.counters)
        self._subject = self._ports.launcher.launch(spec)
        self._watch = Watch(
            subject=self._subject,
            tail=EventTail(self._folder.events),
            log=self.readings,
            clock=self._ports.clock,
            hang_timeout_s=self.plan.hang_timeout_s,
            read_machine=self._read_machine,
        )

    def _read_machine(self, pids: Sequence[int]) -> None:
        if self._ports.meter is not None and self._counters is not None:
            self._counters.write(self._ports.meter.read(pids))

    def _wait_for_start(self) -> None:
        watch = self.watch
        # Without a hint that throughput will come, a foreign trainer is soon sampled all the same, without one.
        is_promised = not self._is_foreign or bool(self._experiment.subject.tok_per_s_pattern)
        limit_s = self.plan.start_timeout_s if is_promised else self.plan.steady_timeout_s
        started = self._wait_for_first_sign(limit_s)
        if not started and not is_promised and watch.trainers:
            started = self._wait_for_first_sign(self.plan.start_timeout_s)
        if not started and not self._is_foreign:
            raise SubjectError(
                f"no training step within {limit_s:.0f} s; its last line was: {self.readings.last_line or 'none'}",
                outcome=Outcome.TIMED_OUT,
                next_command="--set windows.start_timeout_s=SECONDS waits longer",
            )
        if not started:
            self.note(NO_THROUGHPUT)
        self.listens = bool(watch.lead_steps)

    def _wait_for_first_sign(self, limit_s: float) -> bool:
        """Whether a training step or a throughput was seen within the limit."""
        watch = self.watch
        self.progress.stage("starting the subject", total_s=limit_s)
        hint_ns = self._ports.clock.monotonic_ns() + HINT_NS

        def find() -> bool | None:
            nonlocal hint_ns
            if watch.lead_steps or self.readings.readings:
                return True
            if self._is_foreign and self.readings.last_line and self._ports.clock.monotonic_ns() >= hint_ns:
                hint_ns += 10 * HINT_NS
                line = self.readings.last_line[:MAX_SHOWN]
                self.progress.note(f"no throughput seen yet, last line: {line} (--tok-per-s 'REGEX' gives its form)")
            return None

        started = watch.wait(find, timeout_s=limit_s, progress=self.progress, may_be_silent=True)
        return started is not None

    def _wait_for_steady(self) -> None:
        watch = self.watch
        if not watch.lead_steps:
            self.note("steady state is not looked for: the subject's log has no step times")
            return
        self.progress.stage("waiting for steady state", total_s=self.plan.steady_timeout_s)

        found = watch.wait(
            lambda: judged if (judged := self._judge_steady()).index is not None else None,
            timeout_s=self.plan.steady_timeout_s,
            progress=self.progress,
        )
        if found is None or found.index is None:
            self.note(
                f"step times had not settled after {self.plan.steady_timeout_s:.0f} s: {self._judge_steady().reason}; "
                "measured all the same (--set windows.steady_timeout_s=SECONDS waits longer)"
            )
            return
        self.steady_ns = watch.lead_steps[found.index].end_ns
        if found.reason:
            self.note(f"steady state: {found.reason}")

    def _judge_steady(self) -> Steady:
        steps = self.watch.lead_steps
        return judge_steady([step.end_ns for step in steps], [step.num_tokens for step in steps])

    def _wait_for_tokens(self, start_ns: int, seconds: float) -> None:
        watch = self.watch
        if not (self.listens and self._steady_tok_per_s):
            watch.wait(lambda: None, timeout_s=seconds, progress=self.progress)
            return
        target = seconds * self._steady_tok_per_s
        watch.wait(
            lambda: True if watch.lead_tokens_since(start_ns) >= target else None,
            timeout_s=MAX_STRETCH * seconds,
            progress=self.progress,
        )

    def _boundary(self, name: CommandName, **detail: Any) -> int:
        """Set a window's start or end: at the subject's step boundary, or by our own clock if it does not listen."""
        command = self._commands.send(name, **detail)
        if self.listens:
            ack = self._answer_to(command)
            if ack is not None:
                return ack.at_ns
            self.note("the subject does not answer control commands: windows are cut by FlashProf's clock")
        at_ns = self._ports.clock.monotonic_ns()
        self.observed.append(Ack(command.command_id, str(name), -1, at_ns, dict(detail)))
        return at_ns

    def _answer_to(self, command: Command) -> Ack | None:
        # One that has answered before is in a long step: compiling, or saving a checkpoint.
        limit_s = max(ACK_TIMEOUT_S, self.plan.hang_timeout_s) if self._has_answered else ACK_TIMEOUT_S
        ack = self.watch.wait(lambda: self.watch.find_ack(command.command_id), timeout_s=limit_s)
        self.listens = self._has_answered = ack is not None
        return ack

    def _wait_for_exit(self, limit_s: float) -> bool:
        try:
            self.watch.wait(lambda: None, timeout_s=limit_s, progress=self.progress, may_be_silent=True)
        except SubjectEndedError:
            return True
        return False


def _tail(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    except FileNotFoundError:
        return []
