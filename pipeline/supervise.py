"""
One training run on one host: start the workers, dispatch, and leave no process behind, however it ends.

Workers come from a fork server that has imported torch and transformers once: three of them start in the time of one.
"""

from __future__ import annotations

import multiprocessing.connection
import multiprocessing.forkserver
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.multiprocessing

from flashprof.contracts.errors import SubjectError
from flashprof.contracts.outcome import Outcome
from flashprof.emit import Emitter, connect
from pipeline.config import TrainConfig
from pipeline.data.batches import BatchPlan
from pipeline.data.samples import open_samples
from pipeline.data.summary import startup_lines
from pipeline.roles.dispatcher import LOOK_S, Dispatcher, plan_for_epoch
from pipeline.roles.drafter import run_drafter
from pipeline.roles.target import run_target
from pipeline.roles.worker import Rehearsal, WorkerSeat, name_thread, run_worker
from pipeline.transport.messages import End
from pipeline.transport.queue import HiddenStateQueue, create_queue

END_TIMEOUT_S = 60.0
"""Longest wait for workers to finish what is queued once the run has ended."""

BODIES = {"target": run_target, "drafter": run_drafter}


def train(config: TrainConfig) -> None:
    """
    Train until the steps are done, a signal comes, or the control channel says stop.

    Raises:
        SubjectError: A worker died.
    """
    context = torch.multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pipeline.supervise"])
    # Started now, so that its imports run while this process opens the data.
    multiprocessing.forkserver.ensure_running()
    name_thread("dispatcher-0")
    emitter = connect("dispatcher")
    emitter.mark("toggles", values=config.toggles, refused=config.refused)
    data = config.preset.data
    samples = open_samples(
        data.source, cache=config.cache, vocab_size=config.preset.target.vocab_size, max_length=data.max_length
    )
    plans = plan_for_epoch(config, samples.lengths_N, epoch=0)
    say(*startup_lines(samples.info, samples.lengths_N, plans, data.bucket_bounds))
    with Crew(config, context, samples.info.mask_token_id, rehearsals(plans)) as crew, stop_signals() as signals:
        crew.wait_ready(signals)
        emitter.mark("ready")
        dispatcher = Dispatcher(
            config,
            samples,
            emitter,
            target_pipes=crew.target_pipes(),
            queues=crew.queues,
            should_stop=lambda: bool(signals),
            check_workers=crew.check,
        )
        num_steps = 0 if signals else dispatcher.run()
        crew.finish(num_steps)
        emitter.close()
    say(f"{_ending(config, signals, num_steps)} after {num_steps} steps")


def _ending(config: TrainConfig, signals: Sequence[signal.Signals], num_steps: int) -> str:
    if signals:
        return f"stopped by {signals[0].name}"
    return "finished" if num_steps == config.num_steps else "stopped by command"


def rehearsals(plans: Sequence[BatchPlan]) -> tuple[Rehearsal, ...]:
    """The commonest batch shape of each bucket: representative, and at most six."""
    by_bucket: dict[int, Counter[tuple[int, int]]] = {}
    for plan in plans:
        by_bucket.setdefault(plan.bucket, Counter())[len(plan.indices), plan.padded_length] += 1
    shapes = [counts.most_common(1)[0][0] for _, counts in sorted(by_bucket.items())]
    return tuple(Rehearsal(num_samples=samples, padded_length=length) for samples, length in shapes)


@contextmanager
def stop_signals() -> Iterator[list[signal.Signals]]:
    """Collect SIGINT and SIGTERM instead of dying of them; a second one ends the process at once."""
    received: list[signal.Signals] = []

    def note(number: int, frame: Any) -> None:
        del frame
        if received:
            raise KeyboardInterrupt
        received.append(signal.Signals(number))
        say(f"{signal.Signals(number).name}: finishing the steps that are under way")

    previous = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


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
        for seat, process, _ in self._workers:
            process.start()
            # Held here as well, the worker's end would keep the pipe open after the worker's death.
            seat.status.close()
        return self

    def __exit__(self, *_: object) -> None:
        for _, process, _ in self._workers:
            if process.is_alive():
                process.kill()
        for _, process, _ in self._workers:
            process.join()
        self._folder.cleanup()

    def wait_ready(self, signals: list[signal.Signals]) -> None:
        """Wait until every worker has loaded, one line each; returns early on a signal."""
        start_s = time.perf_counter()
        loading = {pipe: seat for seat, _, pipe in self._workers}
        while loading and not signals:
            for pipe in multiprocessing.connection.wait(list(loading), LOOK_S):
                seat = loading.pop(pipe)  # type: ignore[arg-type]
                if _says_ready(pipe):
                    say(f"{seat.name} ready on {seat.device} after {time.perf_counter() - start_s:.1f} s")
            self.check()

    def target_pipes(self) -> list[multiprocessing.connection.Connection]:
        """The dispatcher's ends of the pipes over which targets ask for work."""
        return [pipe for seat, _, pipe in self._workers if seat.role == "target"]

    def check(self) -> None:
        """
        Make sure that all workers live.

        Raises:
            SubjectError: One ended; names it and its exit status.
        """
        for seat, process, _ in self._workers:
            if process.exitcode is not None:
                raise _death(seat, process.exitcode)

    def finish(self, num_steps: int) -> None:
        """Let drafters finish the steps before *num_steps*, then dismiss the targets, which own the shared memory."""
        for queue in self.queues:
            queue.send(End(step=num_steps))
        self._join("drafter")
        for _, process, pipe in self._workers:
            if process.is_alive():
                pipe.send(None)
        self._join("target")

    def _join(self, role: str) -> None:
        deadline_s = time.perf_counter() + END_TIMEOUT_S
        waiting = [(seat, process) for seat, process, _ in self._workers if seat.role == role]
        while waiting:
            for seat, process in list(waiting):
                process.join(0.05)
                if process.exitcode is not None:
                    waiting.remove((seat, process))
                if process.exitcode:
                    raise _death(seat, process.exitcode)
            others = [(seat, process) for seat, process, _ in self._workers if seat.role != role]
            for seat, process in others:
                if process.exitcode:
                    raise _death(seat, process.exitcode)
            if waiting and time.perf_counter() > deadline_s:
                raise SubjectError(
                    f"{waiting[0][0].name} did not end within {END_TIMEOUT_S:.0f} s", outcome=Outcome.HUNG
                )


def _says_ready(pipe: Any) -> bool:
    try:
        pipe.recv()
    except (EOFError, OSError):
        # The worker ended; `Crew.check` says how.
        time.sleep(LOOK_S)
        return False
    return True


def _death(seat: WorkerSeat, exitcode: int) -> SubjectError:
    how = f"was killed by {signal.Signals(-exitcode).name}" if exitcode < 0 else f"ended with status {exitcode}"
    outcome = Outcome.KILLED if exitcode < 0 else Outcome.CRASHED
    return SubjectError(f"{seat.name} {how}", outcome=outcome, where="its own message is above, if it left one")


def say(*lines: str) -> None:
    """Print to the log at once: a log that is read while it grows must not lag."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
