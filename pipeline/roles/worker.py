"""What every worker process does first and last, whatever its role."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

import torch

from flashprof.contracts.errors import FlashProfError
from flashprof.emit import Emitter, connect
from pipeline.config import TrainConfig
from pipeline.transport.carriers import CARRIERS, Carrier
from pipeline.transport.queue import HiddenStateQueue, QueueClosedError, post

READY = "ready"
LEFT_ALONE = 3
"""Exit status of a worker that ended because another process did; the other one is to blame."""
PR_SET_NAME = 15
STDERR = 2


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """A batch shape that the run will meet (toggle `warmup`)."""

    num_samples: int
    padded_length: int
    is_packed: bool = False
    """Whether it is one packed row, whatever the toggles say."""


@dataclass(frozen=True, kw_only=True)
class WorkerSeat:
    """A worker's place in the run: who it is and whom it talks to."""

    role: str
    local_rank: int
    """Within its role, on this host."""
    config: TrainConfig
    mask_token_id: int
    rehearsals: tuple[Rehearsal, ...]
    rendezvous: Path
    """File over which the drafters of one host find each other."""
    carrier_name: str
    status: Connection
    """To the dispatcher: `READY` once loaded; a target also asks for work here, a drafter says how it ended."""
    stderr: Connection
    """Its standard error: the crew repeats it line by line and keeps the last ones."""
    orders: Connection | None
    """From the dispatcher, past the queue; only the host's first drafter has it."""
    queues: tuple[HiddenStateQueue, ...]
    """One a drafter of this host."""

    @property
    def num_of_role(self) -> int:
        """Workers of this role on one host."""
        topology = self.config.topology
        return topology.num_drafters if self.role == "drafter" else topology.num_targets

    @property
    def rank(self) -> int:
        """Within its role, over all hosts."""
        return self.config.host.rank * self.num_of_role + self.local_rank

    @property
    def name(self) -> str:
        """As it is called in messages, in the process list and in the events."""
        return f"{self.role}-{self.rank}"

    @property
    def device(self) -> torch.device:
        """The device that the topology gives it."""
        if self.config.device == "cpu":
            return torch.device("cpu")
        place = self.config.topology.place(self.role, self.local_rank, torch.cuda.device_count())
        return torch.device("cuda", place)

    @property
    def carrier(self) -> Carrier:
        """A fresh one for this process."""
        return CARRIERS[self.carrier_name]()


Body = Callable[[WorkerSeat, Emitter], None]


def run_worker(seat: WorkerSeat, body: Body) -> None:
    """Run *body* as this process's role. A peer's end is not an error here: the dispatcher reports who died."""
    # A terminal sends Ctrl-C, and torchrun, Slurm and `timeout` SIGTERM, to all processes; the dispatcher decides.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.excepthook = tell_unless_peer_is_gone
    os.dup2(seat.stderr.fileno(), STDERR)
    seat.stderr.close()
    name_thread(seat.name)
    torch.set_num_threads(seat.config.num_threads)
    if seat.device.type == "cuda":
        _open_cuda(seat)
    emitter = connect(seat.role, seat.rank, trains=seat.role == "drafter")
    try:
        body(seat, emitter)
    except QueueClosedError as error:
        if error.args:
            sys.stderr.write(f"{error}\n")
        sys.exit(LEFT_ALONE)
    except FlashProfError as error:
        sys.stderr.write("\n".join(error.lines()) + "\n")
        sys.exit(error.exit_code)
    finally:
        emitter.close()


def tell_unless_peer_is_gone(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """
    `sys.excepthook` of a worker.

    The thread with which multiprocessing hands over shared memory calls it where a peer that was killed breaks off
    (resource_sharer.py, `_serve`): one run in ten with a killed drafter. The dispatcher reports who died.
    """
    is_helper = threading.current_thread() is not threading.main_thread()
    if not (is_helper and isinstance(error, ConnectionError | EOFError)):
        sys.__excepthook__(kind, error, trace)


def _open_cuda(seat: WorkerSeat) -> None:
    # Drafters only: targets share their memory with other processes, and growing segments are harder to share.
    if seat.role == "drafter" and seat.config.toggles["expandable"]:
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")  # noqa: SLF001, nothing public does it
    torch.cuda.set_device(seat.device)
    torch.cuda.init()


def report_ready(seat: WorkerSeat, emitter: Emitter) -> None:
    """Tell the dispatcher, and the trace, that loading is over."""
    names = {"device_name": torch.cuda.get_device_name(seat.device)} if seat.device.type == "cuda" else {}
    emitter.mark("ready", device=str(seat.device), **names)
    post(seat.status, READY)


def name_thread(name: str) -> None:
    """Name the calling thread, so that `top -H` and pidstat show roles; Linux only, 15 characters."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)
