"""The worker processes of a run: started together, watched, dismissed, and never left behind."""

from __future__ import annotations

import multiprocessing.connection
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import SubjectError
from flashprof.contracts.outcome import Outcome
from pipeline.config import TrainConfig
from pipeline.log_output import say
from pipeline.roles.dispatcher import LOOK_S
from pipeline.roles.drafter import run_drafter
from pipeline.roles.target import run_target
from pipeline.roles.worker import LEFT_ALONE, Rehearsal, WorkerSeat, run_worker
from pipeline.transport.messages import End
from pipeline.transport.queue import create_queue

END_TIMEOUT_S = 60.0
"""Longest wait for workers to finish what is queued once the run has ended."""

BLAME_S = 1.0
"""How long to look for the cause where a worker says that another one left it alone."""

BODIES = {"target": run_target, "drafter": run_drafter}


class Crew:
    """The worker processes of a run. As a context manager: whatever happens inside, none survives it."""

    def __init__(
        self, config: TrainConfig, context: Any, mask_token_id: int, rehearsals: tuple[Rehearsal, ...]
    ) -> None:
        self._config = config
        self._folder = tempfile.TemporaryDirectory(prefix="pipeline-")
        depth = int(config.toggles["queue"])
        self.queues = tuple(create_queue(context, depth) for _ in range(config.topology.num_drafters))
        self._workers: list[tuple[WorkerSeat, Any, multiprocessing.connection.Connection]] = []
        for role, number in (("target", config.topology.num_targets), ("drafter", config.topology.num_drafters)):
            for rank in range(number):
                ours, theirs = context.Pipe()
                seat = WorkerSeat(
                    role=role,
                    rank=rank,
                    config=config,
                    mask_token_id=mask_token_id,
                    rehearsals=rehearsals,
                    rendezvous=Path(self._folder.name, "drafters"),
                    status=theirs,
                    queues=self.queues,
                )
                process = context.Process(target=run_worker, args=(seat, BODIES[role]), name=seat.name, daemon=True)
                self._workers.append((seat, process, ours))

    def __enter__(self) -> Crew:
        try:
            for seat, process, _ in self._workers:
                process.start()
                # Held here as well, the worker's end would keep the pipe open after the worker's death.
                seat.status.close()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for _, process, _ in self._workers:
            if process.pid is not None:
                process.join()

    def kill(self) -> None:
        """End all workers now, without waiting for them."""
        for _, process, _ in self._workers:
            if process.pid is not None:
                process.kill()
        self._folder.cleanup()

    def wait_ready(self) -> None:
        """
        Wait until every worker has loaded, one line each.

        Raises:
            SubjectError: One ended.
        """
        start_s = time.perf_counter()
        loading = {pipe: seat for seat, _, pipe in self._workers}
        while loading:
            for pipe in multiprocessing.connection.wait(list(loading), LOOK_S):
                seat = loading[pipe]  # type: ignore[index]
                if _says_ready(pipe):
                    del loading[pipe]  # type: ignore[arg-type]
                    say(f"{seat.name} ready on {seat.device} after {time.perf_counter() - start_s:.1f} s")
            self.check()

    def target_pipes(self) -> list[multiprocessing.connection.Connection]:
        """The dispatcher's ends of the pipes over which targets ask for work."""
        return [pipe for seat, _, pipe in self._workers if seat.role == "target"]

    def check(self) -> None:
        """
        Make sure that all workers live.

        Raises:
            SubjectError: One ended; names the one that ended first of itself, and its exit status.
        """
        if self._ended():
            self._raise_death()

    def finish(self, num_steps: int) -> None:
        """
        Let drafters finish the steps before *num_steps*, then dismiss the targets, which own the shared memory.

        Raises:
            SubjectError: A worker died, or did not end in time.
        """
        self.check()
        for queue in self.queues:
            queue.send(End(step=num_steps))
        self._join("drafter")
        for seat, _, pipe in self._workers:
            if seat.role == "target":
                _dismiss(pipe)
        self._join("target")

    def _join(self, role: str) -> None:
        deadline_s = time.perf_counter() + END_TIMEOUT_S
        while waiting := [seat for seat, process, _ in self._workers if seat.role == role and process.is_alive()]:
            if any(exitcode for _, exitcode in self._ended()):
                break
            if time.perf_counter() > deadline_s:
                raise SubjectError(f"{waiting[0].name} did not end within {END_TIMEOUT_S:.0f} s", outcome=Outcome.HUNG)
            time.sleep(0.02)
        if any(exitcode for _, exitcode in self._ended()):
            self._raise_death()

    def _ended(self) -> list[tuple[WorkerSeat, int]]:
        return [(seat, process.exitcode) for seat, process, _ in self._workers if process.exitcode is not None]

    def _raise_death(self) -> None:
        deadline_s = time.perf_counter() + BLAME_S
        while all(exitcode == LEFT_ALONE for _, exitcode in self._ended()) and time.perf_counter() < deadline_s:
            time.sleep(0.02)
        raise _death(*min(self._ended(), key=_rank_of_blame))


def _says_ready(pipe: Any) -> bool:
    try:
        pipe.recv()
    except (EOFError, OSError):
        # The worker ended; `Crew.check` says how once the system has told it.
        time.sleep(0.02)
        return False
    return True


def _dismiss(pipe: Any) -> None:
    try:
        pipe.send(None)
    except OSError:
        # It has ended; joining it tells how.
        return


def _rank_of_blame(ended: tuple[WorkerSeat, int]) -> int:
    """A signal explains other workers' ends, an error the ends of those left alone, a quiet end nothing."""
    exitcode = ended[1]
    if exitcode < 0:
        return 0
    return {0: 2, LEFT_ALONE: 3}.get(exitcode, 1)


def _death(seat: WorkerSeat, exitcode: int) -> SubjectError:
    how = f"was killed by {signal.Signals(-exitcode).name}" if exitcode < 0 else f"ended with status {exitcode}"
    outcome = Outcome.KILLED if exitcode < 0 else Outcome.CRASHED
    return SubjectError(f"{seat.name} {how}", outcome=outcome, where="its own message is above, if it left one")
