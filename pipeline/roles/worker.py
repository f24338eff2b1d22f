"""What every worker process does first and last, whatever its role."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from flashprof.emit import Emitter, connect
from pipeline.config import TrainConfig
from pipeline.transport.queue import HiddenStateQueue, QueueClosedError, post

READY = "ready"
LEFT_ALONE = 3
"""Exit status of a worker that ended because another process did; the other one is to blame."""
PR_SET_NAME = 15


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """A batch shape that the run will meet (toggle `warmup`)."""

    num_samples: int
    padded_length: int


@dataclass(frozen=True, kw_only=True)
class WorkerSeat:
    """A worker's place in the run: who it is and whom it talks to."""

    role: str
    rank: int
    config: TrainConfig
    mask_token_id: int
    rehearsals: tuple[Rehearsal, ...]
    rendezvous: Path
    """File over which drafters find each other."""
    status: Connection
    """To the dispatcher: `READY` once loaded; a target also asks for work here and gets it."""
    queues: tuple[HiddenStateQueue, ...]
    """One a drafter."""

    @property
    def name(self) -> str:
        """As it is called in messages, in the process list and in the events."""
        return f"{self.role}-{self.rank}"

    @property
    def device(self) -> torch.device:
        """Targets take the first GPUs and drafters the next; with fewer GPUs than workers they share."""
        if self.config.device == "cpu":
            return torch.device("cpu")
        place = self.rank + (self.config.topology.num_targets if self.role == "drafter" else 0)
        return torch.device("cuda", place % torch.cuda.device_count())


Body = Callable[[WorkerSeat, Emitter], None]


def run_worker(seat: WorkerSeat, body: Body) -> None:
    """Run *body* as this process's role. A peer's end is not an error here: the dispatcher reports who died."""
    # The terminal sends Ctrl-C to all processes; the dispatcher decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    name_thread(seat.name)
    torch.set_num_threads(seat.config.num_threads)
    if seat.device.type == "cuda":
        torch.cuda.set_device(seat.device)
        torch.cuda.init()
    emitter = connect(seat.role, seat.rank, trains=seat.role == "drafter")
    try:
        body(seat, emitter)
    except QueueClosedError as error:
        if error.args:
            sys.stderr.write(f"{seat.name}: {error}\n")
        sys.exit(LEFT_ALONE)
    finally:
        emitter.close()


def report_ready(seat: WorkerSeat, emitter: Emitter) -> None:
    """Tell the dispatcher, and the trace, that loading is over."""
    emitter.mark("ready", device=str(seat.device))
    post(seat.status, READY)


def name_thread(name: str) -> None:
    """Name the calling thread, so that `top -H` and pidstat show roles; Linux only, 15 characters."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)
