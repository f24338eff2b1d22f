"""Step lines for people, gauges for FlashProf."""

from __future__ import annotations

import time

from flashprof.emit import Emitter
from pipeline.log_output import say
from pipeline.train.metrics import Reading


class StepLog:
    """Prints `step= loss= acc= tok/s= queue=` every few steps and records every reading."""

    def __init__(self, emitter: Emitter, *, prints: bool, every: int, num_steps: int) -> None:
        self._emitter = emitter
        self._prints = prints
        self._every = every
        self._num_steps = num_steps
        self._last: Reading | None = None
        self._since_s = time.perf_counter()
        self._tokens_since = 0
        self.num_tokens = 0
        """Tokens that this rank has trained on: the count that FlashProf's own is checked against."""

    def record(self, step: int, readings: list[Reading], *, num_tokens: int, num_waiting: int) -> None:
        """Note a step's readings, which may be of earlier steps, and print a line when it is time."""
        self._record_gauges(readings)
        self._tokens_since += num_tokens
        is_last = step + 1 == self._num_steps
        if self._prints and self._last is not None and ((step + 1) % self._every == 0 or is_last):
            self._print_line(step, num_waiting)

    def finish(self, readings: list[Reading], *, num_steps: int) -> None:
        """Record what came late, and the totals."""
        self._record_gauges(readings)
        self._emitter.mark("end", num_tokens=self.num_tokens, num_steps=num_steps)

    def _record_gauges(self, readings: list[Reading]) -> None:
        for reading in readings:
            for name, value in reading.values.items():
                self._emitter.gauge(name, reading.step, value)
            self._last = reading

    def _print_line(self, step: int, num_waiting: int) -> None:
        assert self._last is not None
        now_s = time.perf_counter()
        tok_per_s = self._tokens_since / (now_s - self._since_s)
        values = self._last.values
        say(
            f"step={step + 1} loss={values['loss']:.4f} acc={values['acc']:.4f} "
            f"tok/s={tok_per_s:,.0f} queue={num_waiting}"
        )
        self._since_s = now_s
        self._tokens_since = 0
