"""A search's journal as lines for a person. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from flashprof.contracts.search import Reading, Stage
from flashprof.decide.observations import CallBegan
from flashprof.decide.search_observations import Built, LaunchEnded, Measured, SearchObservation, Undone, UserSkipped
from flashprof.report import figures
from flashprof.report.bisect_sentences import shorten_ids
from flashprof.report.compare_sentences import minutes, plural


def log_lines(observations: Sequence[SearchObservation]) -> Iterator[str]:
    """
    One line an observation.

    Args:
        observations: Oldest first, as the journal has them.

    Yields:
        A number that only readings and cells left out have, for these can be undone; then what was learnt. What was
        undone later is said to be.
    """
    undone = _undone(observations)
    number = 0
    for place, observation in enumerate(observations):
        counts = isinstance(observation, Measured | UserSkipped)
        number += counts
        mark = "   (undone)" if place in undone else ""
        yield f"{number if counts else '':>5}  {_told(observation)}{mark}"


def _told(observation: SearchObservation) -> str:
    match observation:
        case CallBegan():
            return "a call began"
        case Measured(reading=reading):
            return _reading(reading)
        case LaunchEnded():
            end = f"{observation.run_id} ended after {minutes(observation.length_s)}: {observation.outcome}"
            where = f" in {shorten_ids(observation.cell)}" if observation.cell else ""
            return f"{end}{where}{_why(observation.reason)}"
        case Built():
            done = f"build of {shorten_ids(observation.group)}, {minutes(observation.length_s)}"
            return f"{done}: {observation.outcome}{_why(observation.reason)}"
        case UserSkipped():
            return f"{shorten_ids(observation.cell)} skipped by the user"
        case Undone():
            return f"the user takes back {plural(observation.num, 'entry').replace('entrys', 'entries')}"


def _reading(reading: Reading) -> str:
    place = "" if reading.stage is Stage.SEARCH else f", {reading.stage} {reading.proof} block {reading.block}"
    rate = figures.rate(math.exp(reading.log_tok_per_s))
    left_out = f"; left out: {'; '.join(reading.disturbances)}" if reading.disturbances else ""
    return f"{shorten_ids(reading.cell)}  {rate} tok/s in {reading.launch}{place}{left_out}"


def _why(reason: str) -> str:
    return f". {shorten_ids(reason)}" if reason else ""


def _undone(observations: Sequence[SearchObservation]) -> set[int]:
    """Places of what was taken back: always the last that still stands."""
    standing: list[int] = []
    undone: set[int] = set()
    for place, observation in enumerate(observations):
        if isinstance(observation, Measured | UserSkipped):
            standing.append(place)
        elif isinstance(observation, Undone):
            taken = standing[-observation.num :]
            del standing[-observation.num :]
            undone.update(taken)
    return undone
