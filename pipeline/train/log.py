"""Step lines for people, gauges for FlashProf, curves for TensorBoard: the same numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flashprof.emit import Emitter
from pipeline.log_output import say
from pipeline.train.memory import read_memory
from pipeline.train.metrics import Reading
from pipeline.train.tensorboard import NoSink, Sink

CURVES = ("loss", "acc", "grad_norm")


@dataclass(frozen=True, kw_only=True)
class StepFacts:
    """What the host knows of a step without asking the device; of this rank, if nothing else is said."""

    step: int
    num_tokens: int
    """Padding excluded."""
    num_tokens_all: int
    """Over all drafters."""
    num_supervised_tokens: int
    num_padding_tokens: int
    num_waiting: int
    """Steps in the queue that are whole and not taken."""
    wait_hidden_s: float
    """How long the drafter waited for hidden states."""
    wait_room_s: float
    """How long targets waited for room in the queue with what this step trained on."""
    lr: float


@dataclass
class Tally:
    """Sums over the steps since the last line."""

    since_s: float
    num_tokens: int = 0
    num_tokens_all: int = 0
    num_supervised_tokens: int = 0
    num_padding_tokens: int = 0
    wait_hidden_s: float = 0.0
    wait_room_s: float = 0.0

    def add(self, facts: StepFacts) -> None:
        """Count one step."""
        self.num_tokens += facts.num_tokens
        self.num_tokens_all += facts.num_tokens_all
        self.num_supervised_tokens += facts.num_supervised_tokens
        self.num_padding_tokens += facts.num_padding_tokens
        self.wait_hidden_s += facts.wait_hidden_s
        self.wait_room_s += facts.wait_room_s

    def scalars(self, now_s: float) -> dict[str, float]:
        """
        Rates and shares of the time since the last line, by TensorBoard name.

        Supervised tokens over all drafters are taken to be as frequent as this rank's; FlashProf counts each rank's.
        Targets wait side by side, so their share of the time can exceed 1.
        """
        elapsed_s = max(now_s - self.since_s, 1e-9)
        tok_per_s = self.num_tokens_all / elapsed_s
        return {
            "speed/tok_per_s": tok_per_s,
            "speed/supervised_tok_per_s": tok_per_s * self.num_supervised_tokens / max(1, self.num_tokens),
            "speed/padding_share": padding_share(self.num_tokens, self.num_padding_tokens),
            "queue/wait_hidden_share": self.wait_hidden_s / elapsed_s,
            "queue/wait_room_share": self.wait_room_s / elapsed_s,
        }


class StepLog:
    """Prints `step= loss= acc= tok/s= queue=` every few steps and records every reading."""

    def __init__(
        self,
        emitter: Emitter,
        *,
        prints: bool,
        every: int,
        num_steps: int,
        sink: Sink | None = None,
        memory: Callable[[], Mapping[str, float]] = read_memory,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """
        Start the time of the first line.

        Args:
            emitter: Takes the gauges.
            prints: Whether this rank writes lines.
            every: Steps between lines, and between looks at the memory.
            num_steps: Of the whole run, wherever this process began: a line follows the last; 0: no fixed end.
            sink: Takes what a line stands for, and more, as curves; closed by `finish`.
            memory: Gauges of the device's memory.
            clock: Seconds.
        """
        self._emitter = emitter
        self._prints = prints
        self._every = every
        self._num_steps = num_steps
        self._sink = sink or NoSink()
        self._memory = memory
        self._clock = clock
        self._tally = Tally(clock())
        self._last: Reading | None = None
        self._num_tokens = 0

    def record(self, facts: StepFacts, readings: list[Reading]) -> None:
        """Note a step and the *readings* that have come, which may be of earlier steps; print when it is time."""
        self._record_gauges(readings)
        self._emitter.gauge("lr", facts.step, facts.lr)
        share = padding_share(facts.num_tokens, facts.num_padding_tokens)
        self._emitter.gauge("padding_share", facts.step, share)
        self._num_tokens += facts.num_tokens
        self._tally.add(facts)
        num_done = facts.step + 1
        if num_done % self._every == 0 or num_done == self._num_steps:
            self._tell(facts)

    def finish(self, readings: list[Reading], *, num_steps: int) -> None:
        """Record what came late, and the totals; the tokens are this rank's, and FlashProf's count must equal them."""
        self._record_gauges(readings)
        if readings:
            self._sink.record(readings[-1].step + 1, _curves(readings[-1]))
        self._sink.close()
        self._emitter.mark("end", num_tokens=self._num_tokens, num_steps=num_steps)

    def _record_gauges(self, readings: list[Reading]) -> None:
        for reading in readings:
            for name, value in reading.values.items():
                self._emitter.gauge(name, reading.step, value)
            # A rank without a supervised token in a step has no loss to tell.
            if "loss" in reading.values:
                self._last = reading

    def _tell(self, facts: StepFacts) -> None:
        now_s = self._clock()
        scalars = self._tally.scalars(now_s)
        self._tally = Tally(now_s)
        memory = self._memory()
        for name, value in memory.items():
            self._emitter.gauge(name, facts.step, value)
            scalars[name.replace("_", "/", 1)] = value
        scalars |= {"train/lr": facts.lr, "queue/depth": facts.num_waiting}
        self._sink.record(facts.step + 1, scalars)
        if self._last is None:
            return
        self._sink.record(self._last.step + 1, _curves(self._last))
        if self._prints:
            say(
                f"step={facts.step + 1} loss={self._last.values['loss']:.4f} acc={self._last.values['acc']:.4f} "
                f"tok/s={scalars['speed/tok_per_s']:,.0f} queue={facts.num_waiting}"
            )


def padding_share(num_tokens: int, num_padding_tokens: int) -> float:
    """The part of what a target computes on that is padding."""
    return num_padding_tokens / max(1, num_tokens + num_padding_tokens)


def _curves(reading: Reading) -> dict[str, float]:
    return {f"train/{name}": reading.values[name] for name in CURVES if name in reading.values}
