"""Which cell the search measures next: the one that tells most a second, and an end from time to time. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashprof.contracts.search import Stage
from flashprof.decide.search_actions import Visit
from flashprof.decide.search_state import COLD, HOT, SearchState

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from flashprof.stats.posterior import Posterior

NUM_TO_CONTROL = 8
"""One choice in so many is an end: drift shows, and costs an eighth."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What is believed, and what a window would tell: `stats.posterior.infer`, `stats.information.information`."""

    infer: Callable[..., Any]
    information: Callable[..., NDArray[np.float64]]


def real_engine() -> Engine:
    """The engine of `flashprof.stats`."""
    from flashprof.stats.information import information
    from flashprof.stats.posterior import infer

    return Engine(infer, information)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best cell to measure for the search."""

    cell: str
    nats: float
    cost_s: float


def choose(state: SearchState, posterior: Posterior, engine: Engine) -> Choice | None:
    """The cell with the most information a second; of equals the cheaper, then the first."""
    import numpy as np

    readings = state.readings
    cells = [
        cell
        for cell in state.plan.space.candidates({reading.cell for reading in readings})
        if not state.why_skipped(cell)
    ]
    if not cells:
        return None
    usable = _usable_launch(state)
    # An index that no evidence has would be a launch like any new one.
    has_evidence = any(reading.launch == usable and not reading.disturbances for reading in readings)
    running = list(state.group_of).index(usable) if usable is not None and has_evidence else -1
    inside = np.array([_is_inside(state, cell) for cell in cells])
    at_s = max(reading.at_s for reading in readings) + state.plan.costs.window_s
    rows = state.plan.space.rows(cells)
    nats = engine.information(posterior, rows, np.where(inside, running, -1), at_s)
    costs = [_cost_s(state, cell, is_inside=bool(inner)) for cell, inner in zip(cells, inside, strict=True)]
    best = max(range(len(cells)), key=lambda place: (round(float(nats[place]) / costs[place], 12), -costs[place]))
    return Choice(cell=cells[best], nats=float(nats[best]), cost_s=costs[best])


def _cost_s(state: SearchState, cell: str, *, is_inside: bool) -> float:
    plan, costs = state.plan, state.plan.costs
    if is_inside:
        last = state.readings[-1].cell
        return costs.window_s + (costs.switch_s if cell != last else 0.0)
    num_windows = 1 if plan.is_hot else plan.num_windows_cold
    return state.start_s + num_windows * costs.window_s + (costs.build_s if state.needs_build(cell) else 0.0)


def control(state: SearchState) -> Visit | None:
    """An end, where its turn has come."""
    # A launch of one cell is one choice, however many windows it has.
    num = 1 + sum(reading.stage is Stage.SEARCH and reading.position == 0 for reading in state.readings)
    if num % NUM_TO_CONTROL:
        return None
    space = state.plan.space
    ends = [(space.bad, "bad"), (space.good, "good")]
    if num // NUM_TO_CONTROL % 2 == 0:
        ends.reverse()
    # An end that needs a launch of its own is no cheap control, where the other one does not.
    inside = [end for end in ends if _is_inside(state, end[0])]
    cell, name = (inside or ends)[0]
    return search_visit(state, cell, f"the {name} end again, the control for drift")


def _usable_launch(state: SearchState) -> str | None:
    """The running launch, where the search may go on in it."""
    running = state.running
    is_usable = running is not None and (not state.plan.is_hot or running.startswith(HOT))
    return running if is_usable else None


def _is_inside(state: SearchState, cell: str) -> bool:
    running = _usable_launch(state)
    return running is not None and state.group_of[running] == state.plan.space.group(cell)


def search_visit(state: SearchState, cell: str, why: str) -> Visit:
    """A window of the search itself, in the running launch where that holds the cell's group."""
    running = _usable_launch(state)
    is_inside = running is not None and _is_inside(state, cell)
    run_id = running if is_inside and running else state.next_run_id(HOT if state.plan.is_hot else COLD)
    return Visit(cell=cell, group=state.plan.space.group(cell), run_id=run_id, stage=Stage.SEARCH, why=why)
