"""A foreign trainer as a real process: `python foreign_trainer.py MODE`, where a mode is how its day goes."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from pathlib import Path

from flashprof import emit

STEP_S = 0.01
TOKENS = 100
FATAL_STEP = 60
"""0.6 s after the first step: in a window of the tests' short plan."""


def main(mode: str) -> None:
    """Train as *mode* says."""
    if mode == "crash-loading":
        raise RuntimeError("no such checkpoint")
    if mode == "load-for-ever":
        time.sleep(60)
    if mode == "deaf":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if mode in ("prints", "prints-nothing-useful"):
        _print_only(useful=mode == "prints")
    _train(mode)


def _train(mode: str) -> None:
    trainer = emit.connect("trainer", trains=True)
    step = 0
    while True:
        with trainer.span("forward"):
            time.sleep(STEP_S)
        loss = math.nan if mode == "nan" and step == FATAL_STEP else 4 - step / 1000
        trainer.gauge("loss", step, loss)
        trainer.end_step(step, num_tokens=TOKENS)
        for command in trainer.poll_commands():
            trainer.acknowledge(command, step)
            if command.name == "stop" and mode != "deaf":
                trainer.close()
                return
        step += 1
        if step == FATAL_STEP:
            _meet_fate(mode)


def _meet_fate(mode: str) -> None:
    match mode:
        case "hang":
            time.sleep(60)
        case "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "crash":
            raise ValueError("the batch is empty")
        case "ends":
            sys.exit(0)
        case "fills-the-disk":
            with Path(os.environ["FLASHPROF_RUN_DIR"], "junk").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(2**20))


def _print_only(*, useful: bool) -> None:
    while True:
        time.sleep(STEP_S)
        print(f"loss=2.0 tok/s={TOKENS / STEP_S}" if useful else "still here", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
