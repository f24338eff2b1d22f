"""Waiting for a running subject without ever being fooled by one that is dead, or waiting for one that hangs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

from flashprof.app.log_readings import LogReadings
from flashprof.app.progress import Progress
from flashprof.contracts.errors import SubjectError
from flashprof.contracts.events import Ack, EventLog, Step
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.ports import Clock, Subject
from flashprof.store.tail import EventTail

POLL_S = 0.1
MACHINE_NS = 1_000_000_000
"""Between two readings of the machine's counters; one costs up to 2 ms."""
_Found = TypeVar("_Found")


class SubjectEndedError(Exception):
    """The subject ended while something was still expected of it; the caller says what that means."""


class Watch:
    """The subject as seen from outside: its events, its log, its exit."""

    def __init__(
        self,
        *,
        subject: Subject,
        tail: EventTail,
        log: LogReadings,
        clock: Clock,
        hang_timeout_s: float,
        read_machine: Callable[[Sequence[int]], None] | None = None,
    ) -> None:
        """
        Watch *subject*.

        Args:
            subject: Whose exit ends every wait.
            tail: Its events.
            log: Its output.
            clock: Also moves time on between two looks.
            hang_timeout_s: Without a sign for this long it hangs.
            read_machine: Takes the subject's pids; called about once a second while waiting.
        """
        self._subject = subject
        self._tail = tail
        self._clock = clock
        self._hang_timeout_s = hang_timeout_s
        self._last_sign_ns = clock.monotonic_ns()
        self._read_machine = read_machine
        self._last_machine_ns = self._last_sign_ns - MACHINE_NS
        self.log = log

    @property
    def logs(self) -> list[EventLog]:
        """The events so far, one log a process."""
        return self._tail.logs

    @property
    def unreadable(self) -> list[str]:
        """What was found among the events and left out."""
        return self._tail.unreadable

    @property
    def trainers(self) -> list[EventLog]:
        """The training ranks' events, by rank."""
        return sorted((log for log in self.logs if log.header.trains), key=lambda log: log.header.rank)

    @property
    def lead_steps(self) -> list[Step]:
        """The training steps of the first training rank."""
        return next((log.steps for log in self.trainers), [])

    def lead_tokens_since(self, at_ns: int) -> int:
        """Tokens of the lead rank's steps that ended after *at_ns*."""
        steps = self.lead_steps
        return sum(step.num_tokens for step in steps[bisect_right(steps, at_ns, key=lambda step: step.end_ns) :])

    def lead_tok_per_s(self, since_ns: int | None) -> float:
        """The lead rank's rate from *since_ns*, or from half of its steps, until now; 0 where it cannot be told."""
        steps = self.lead_steps
        first = len(steps) // 2 if since_ns is None else bisect_left(steps, since_ns, key=lambda step: step.end_ns)
        steps = steps[first:]
        length_ns = steps[-1].end_ns - steps[0].end_ns if steps else 0
        return sum(step.num_tokens for step in steps[1:]) / length_ns * 1e9 if length_ns else 0.0

    def find_ack(self, command_id: int) -> Ack | None:
        """The first acknowledgement of a command."""
        acks = (ack for log in self.logs for ack in log.acks if ack.command_id == command_id)
        return min(acks, key=lambda ack: ack.at_ns, default=None)

    def wait(
        self,
        found: Callable[[], _Found | None],
        *,
        timeout_s: float,
        progress: Progress | None = None,
        may_be_silent: bool = False,
    ) -> _Found | None:
        """
        Wait until *found* gives something.

        Args:
            found: Looks at the events; None for "not yet".
            timeout_s: Give up after this and return None.
            progress: Told how long it takes and what was seen last.
            may_be_silent: Loading may be silent for long; training may not.

        Raises:
            SubjectEndedError: It ended first.
            SubjectError: It shows no sign of life.
        """
        start_ns = self._clock.monotonic_ns()
        while True:
            has_ended = self._subject.returncode() is not None
            self.look()
            self._look_at_machine()
            result = found()
            if result is not None:
                return result
            if has_ended:
                raise SubjectEndedError
            waited_s = (self._clock.monotonic_ns() - start_ns) / 1e9
            if waited_s >= timeout_s:
                return None
            if not may_be_silent:
                self._check_alive()
            if progress is not None:
                progress.advance(waited_s, self._seen())
            self._clock.sleep(min(POLL_S, timeout_s - waited_s))

    def look(self) -> None:
        """Read what the subject wrote since the last look."""
        now_ns = self._clock.monotonic_ns()
        events_grew = self._tail.poll()
        log_grew = self.log.poll(now_ns)
        if events_grew or log_grew:
            self._last_sign_ns = now_ns

    def read_machine(self) -> None:
        """Read the machine's counters now: a window can be judged when a reading follows its end."""
        if self._read_machine is not None:
            self._last_machine_ns = self._clock.monotonic_ns()
            self._read_machine(sorted({self._subject.pid, *(log.header.pid for log in self.logs)}))

    def _look_at_machine(self) -> None:
        if self._clock.monotonic_ns() - self._last_machine_ns >= MACHINE_NS:
            self.read_machine()

    def _check_alive(self) -> None:
        silent_s = (self._clock.monotonic_ns() - self._last_sign_ns) / 1e9
        if silent_s > self._hang_timeout_s:
            raise SubjectError(
                f"no event and no output for {silent_s:.0f} s; its last line was: {self.log.last_line or 'none'}",
                outcome=Outcome.HUNG,
                next_command="py-spy dump --pid PID on a run of your own, or --set windows.hang_timeout_s=SECONDS",
            )

    def _seen(self) -> str:
        ready = [log.header for log in self.logs if any(mark.name == "ready" for mark in log.marks)]
        steps = self.lead_steps
        if steps:
            return f"step {steps[-1].step + 1}"
        names = " ".join(f"{header.role}-{header.rank}" for header in ready)
        return f"ready: {names}" if ready else self.log.last_line[:60]
