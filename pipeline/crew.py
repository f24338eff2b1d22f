"""The worker processes of a run on one host: started together, watched, dismissed, and never left behind."""

from __future__ import annotations

import multiprocessing.connection
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import FlashProfError, SubjectError, UsageError
from flashprof.contracts.outcome import Outcome
from pipeline.config import TrainConfig
from pipeline.log_output import say
from pipeline.roles.dispatcher import LOOK_S
from pipeline.roles.drafter import run_drafter
from pipeline.roles.target import run_target
from pipeline.roles.worker import LEFT_ALONE, Rehearsal, WorkerSeat, run_worker
from pipeline.transport.carriers import choose_carrier
from pipeline.transport.queue import create_queue
from pipeline.worker_output import WorkerOutput

END_TIMEOUT_S = 60.0
"""Longest wait for workers to end once the run has ended."""

BLAME_S = 1.0
"""How long to look for the cause where a worker says that another one left it alone."""

BODIES = {"target": run_target, "drafter": run_drafter}


@dataclass(frozen=True)
class Worker:
    """A worker as its parent sees it."""

    seat: WorkerSeat
    process: Any
    pipe: multiprocessing.connection.Connection
    """Our end of its status pipe."""


class Crew:
    """The worker processes of a run. As a context manager: whatever happens inside, none survives it."""

    def __init__(
        self, config: TrainConfig, context: Any, mask_token_id: int, rehearsals: tuple[Rehearsal, ...]
    ) -> None:
        self._config = config
        self._folder = tempfile.TemporaryDirectory(prefix="pipeline-")
        self._output = WorkerOutput()
        depth = int(config.toggles["queue"])
        self.queues = tuple(
            create_queue(context, depth, first_step=config.start_step) for _ in range(config.topology.num_drafters)
        )
        order_reader, self.orders = context.Pipe(duplex=False)
        common = {
            "config": config,
            "mask_token_id": mask_token_id,
            "rehearsals": rehearsals,
            "rendezvous": Path(self._folder.name, "drafters"),
            "carrier_name": choose_carrier(config.topology, config.device),
            "queues": self.queues,
        }
        self._workers = [
            self._make_worker(context, role, local_rank, order_reader, common) for role, local_rank in _seats(config)
        ]

    def _make_worker(self, context: Any, role: str, local_rank: int, orders: Any, common: dict[str, Any]) -> Worker:
        ours, theirs = context.Pipe()
        seat = WorkerSeat(
            role=role,
            local_rank=local_rank,
            status=theirs,
            stderr=self._output.add(f"{role}-{local_rank}", context),
            orders=orders if (role, local_rank) == ("drafter", 0) else None,
            **common,
        )
        process = context.Process(target=run_worker, args=(seat, BODIES[role]), name=seat.name, daemon=True)
        return Worker(seat, process, ours)

    def __enter__(self) -> Crew:
        try:
            for worker in self._workers:
                worker.process.start()
                # Held here as well, the worker's ends would keep the pipes open after the worker's death.
                for theirs in (worker.seat.status, worker.seat.stderr, worker.seat.orders):
                    if theirs is not None:
                        theirs.close()
            self._output.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for worker in self._workers:
            if worker.process.pid is not None:
                worker.process.join()
        self._output.close()

    def kill(self) -> None:
        """End all workers now, without waiting for them."""
        for worker in self._workers:
            if worker.process.pid is not None:
                worker.process.kill()
        self._folder.cleanup()

    def wait_ready(self) -> None:
        """
        Wait until every worker has loaded, one line each.

        Raises:
            SubjectError: One ended.
        """
        start_s = time.perf_counter()
        loading = {worker.pipe: worker.seat for worker in self._workers}
        while loading:
            for pipe in multiprocessing.connection.wait(list(loading), LOOK_S):
                seat = loading[pipe]  # type: ignore[index]
                if _says_ready(pipe):
                    del loading[pipe]  # type: ignore[arg-type]
                    say(f"{seat.name} ready on {seat.device} after {time.perf_counter() - start_s:.1f} s")
            self.check()

    def pipes(self, role: str) -> list[multiprocessing.connection.Connection]:
        """Our ends of the status pipes of all workers of *role*."""
        return [worker.pipe for worker in self._workers if worker.seat.role == role]

    def check(self) -> None:
        """
        Make sure that all workers live.

        Raises:
            SubjectError: One ended; names the one that ended first of itself, its exit status and its last lines.
        """
        if self._ended():
            self._raise_death()

    def finish(self) -> None:
        """
        Once a drafter has ended: wait for the others, then dismiss the targets, which own the shared memory.

        Raises:
            SubjectError: A worker died, or did not end in time.
        """
        self._join("drafter")
        for queue in self.queues:
            queue.close()
        for pipe in self.pipes("target"):
            _dismiss(pipe)
        self._join("target")

    def _join(self, role: str) -> None:
        deadline_s = time.perf_counter() + END_TIMEOUT_S
        while waiting := [w.seat for w in self._workers if w.seat.role == role and w.process.is_alive()]:
            if self._has_failed():
                break
            if time.perf_counter() > deadline_s:
                raise SubjectError(f"{waiting[0].name} did not end within {END_TIMEOUT_S:.0f} s", outcome=Outcome.HUNG)
            if role == "target":
                for queue in self.queues:
                    queue.discard()
            time.sleep(0.02)
        if self._has_failed():
            self._raise_death()

    def _has_failed(self) -> bool:
        # A target whose queue was closed while it waited for room has nothing left to do: it was left alone rightly.
        return any(exitcode not in (0, LEFT_ALONE if seat.role == "target" else 0) for seat, exitcode in self._ended())

    def _ended(self) -> list[tuple[WorkerSeat, int]]:
        return [(w.seat, w.process.exitcode) for w in self._workers if w.process.exitcode is not None]

    def _raise_death(self) -> None:
        deadline_s = time.perf_counter() + BLAME_S
        while all(exitcode == LEFT_ALONE for _, exitcode in self._ended()) and time.perf_counter() < deadline_s:
            time.sleep(0.02)
        seat, exitcode = min(self._ended(), key=_rank_of_blame)
        raise _death(seat, exitcode, self._output.last_lines(f"{seat.role}-{seat.local_rank}"))


def _seats(config: TrainConfig) -> Iterator[tuple[str, int]]:
    for role, number in (("target", config.topology.num_targets), ("drafter", config.topology.num_drafters)):
        for local_rank in range(number):
            yield role, local_rank


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


def _death(seat: WorkerSeat, exitcode: int, last_lines: tuple[str, ...]) -> FlashProfError:
    if exitcode == UsageError.exit_code:
        # It has printed the whole message; the status is what a script looks at.
        what = next((line for line in last_lines if line.startswith("error: ")), "").removeprefix("error: ")
        return UsageError(what or "it was given something wrong", where=f"{seat.name}, whose message is above")
    how = f"was killed by {signal.Signals(-exitcode).name}" if exitcode < 0 else f"ended with status {exitcode}"
    outcome = Outcome.KILLED if exitcode < 0 else Outcome.CRASHED
    said = "".join(f"\n  {line}" for line in last_lines)
    where = f"its last lines:{said}" if said else "it left no message"
    return SubjectError(f"{seat.name} {how}", outcome=outcome, where=where)
