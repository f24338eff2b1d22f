"""
The process that workers are forked from: it has imported torch and transformers once, so three start as fast as one.

Light on purpose: it is started before this process imports torch, and both import side by side.
"""

from __future__ import annotations

import multiprocessing.forkserver
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PRELOAD = (
    "pipeline.roles.target",
    "pipeline.roles.drafter",
    # AdamW imports it when it is made, 1.3 s in every drafter.
    "torch._dynamo",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.models.llama.modeling_llama",
)


@contextmanager
def fork_server() -> Iterator[Any]:
    """
    A multiprocessing context whose workers are forked from a process that has imported `PRELOAD`.

    Left, it ends that process at once: by itself it would first import to the end, for seconds after a Ctrl-C.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    # It and its workers inherit this: a terminal's Ctrl-C and a scheduler's SIGTERM reach the whole group, and what
    # they mean is for the main process to decide.
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    try:
        yield context
    finally:
        end_fork_server()


def end_fork_server() -> None:
    """End the server now; safe to call twice."""
    # The library has no public way to end it; these names are the same in CPython 3.4 to 3.14.
    server: Any = multiprocessing.forkserver._forkserver  # noqa: SLF001
    if server._forkserver_pid is not None:  # noqa: SLF001
        os.kill(server._forkserver_pid, signal.SIGKILL)  # noqa: SLF001
        server._stop()  # noqa: SLF001
