"""
What a span costs the process that it measures: `python -m benchmarks.emitter`, half a minute.

It prints; `benchmarks.overhead` writes the results file, with what the emitter costs a whole pipeline.

Every round times each loop once, in an order of its own, and the empty loop among them, whose time is taken off.
Values are medians over rounds: on a shared machine the mean is somebody else's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter_ns

import click

from benchmarks.results_file import Goal, Measure
from flashprof.emit import Emitter, connect

NUM_STEPS = 100
SPANS_PER_STEP = 12
"""What one step of our drafter has, in a run of the tiny preset."""
ONE_MICROSECOND = Goal(high=1_000)

Loop = Callable[[Emitter], None]


def empty(_: Emitter) -> None:
    """As many turns as the others."""
    for _step in range(NUM_STEPS):
        for _turn in range(SPANS_PER_STEP):
            pass


def spans(fp: Emitter) -> None:
    """Spans one after the other; buffered, not written."""
    for _step in range(NUM_STEPS):
        for _turn in range(SPANS_PER_STEP):
            with fp.span("forward"):
                pass


def nested(fp: Emitter) -> None:
    """The same number of spans, three deep."""
    for _step in range(NUM_STEPS):
        for _turn in range(SPANS_PER_STEP // 3):
            with fp.span("step"), fp.span("forward"), fp.span("attention"):
                pass


def spans_and_steps(fp: Emitter) -> None:
    """Spans, each step encoded and written: all that an emitter does in a training loop."""
    for step in range(NUM_STEPS):
        for _turn in range(SPANS_PER_STEP):
            with fp.span("forward"):
                pass
        fp.end_step(step, num_tokens=1_024)


def steps(fp: Emitter) -> None:
    """Steps that hold nothing: the fixed part of the one before."""
    for step in range(NUM_STEPS):
        for _turn in range(SPANS_PER_STEP):
            pass
        fp.end_step(step, num_tokens=1_024)


LOOPS: Mapping[str, Loop] = {loop.__name__: loop for loop in (empty, spans, nested, spans_and_steps, steps)}


def time_rounds(num_rounds: int, seed: int) -> dict[str, list[float]]:
    """
    Time every loop in every round.

    Returns:
        Nanoseconds a span of each loop, less the empty loop of the same round; `disabled` without a run folder.
    """
    order = random.Random(seed)
    with TemporaryDirectory() as folder:
        recording, silent = connect("bench", run_dir=folder), Emitter(None, None)
        cases = {**{name: (loop, recording) for name, loop in LOOPS.items()}, "disabled": (spans, silent)}
        times: dict[str, list[float]] = {name: [] for name in cases}
        # The first round fills caches and is thrown away.
        for _round in range(num_rounds + 1):
            taken = {name: _time(*cases[name]) for name in order.sample(list(cases), len(cases))}
            for name, span_ns in taken.items():
                times[name].append(span_ns if name == "empty" else span_ns - taken["empty"])
        recording.close()
    return {name: rounds[1:] for name, rounds in times.items()}


def _time(loop: Loop, fp: Emitter) -> float:
    begin_ns = perf_counter_ns()
    loop(fp)
    span_ns = (perf_counter_ns() - begin_ns) / (NUM_STEPS * SPANS_PER_STEP)
    # What a loop left in the buffer is written outside its time.
    fp.end_step(0)
    return span_ns


def to_measures(times: Mapping[str, list[float]]) -> list[Measure]:
    """Medians, in the words of a results file."""
    middle = {name: median(rounds) for name, rounds in times.items()}
    flush = f"{SPANS_PER_STEP} spans a step, each step formatted and written to a file"
    return [
        Measure(
            name="emitter_span",
            value=middle["spans_and_steps"] - middle["steps"],
            unit="ns",
            goal=ONE_MICROSECOND,
            note="in the loop, formatted and written; the step's own record apart",
        ),
        Measure(
            name="emitter_span_all_included",
            value=middle["spans_and_steps"],
            unit="ns",
            goal=ONE_MICROSECOND,
            note=flush,
        ),
        Measure(
            name="emitter_span_inline",
            value=middle["spans"],
            unit="ns",
            goal=ONE_MICROSECOND,
            note="in the loop, not yet written",
        ),
        Measure(
            name="emitter_span_nested",
            value=middle["nested"],
            unit="ns",
            goal=ONE_MICROSECOND,
            note="three deep, not yet written",
        ),
        Measure(
            name="emitter_step", value=middle["steps"] * SPANS_PER_STEP, unit="ns", note="a step without spans, written"
        ),
        Measure(
            name="emitter_span_disabled",
            value=middle["disabled"],
            unit="ns",
            note="where FlashProf did not start the process",
        ),
        Measure(
            name="emitter_empty_loop",
            value=middle["empty"],
            unit="ns",
            note="a turn of the loop; already taken off the others",
        ),
    ]


@click.command()
@click.option("--rounds", default=51, show_default=True, type=click.IntRange(min=5))
@click.option("--seed", default=0, show_default=True, help="Of the order of the loops within a round.")
def main(rounds: int, seed: int) -> None:
    """Measure the emitter and print."""
    for measure in to_measures(time_rounds(rounds, seed)):
        click.echo(measure)


if __name__ == "__main__":
    main()
