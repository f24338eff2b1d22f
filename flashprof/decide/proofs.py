"""
What proves a cause: it is switched alone in the good cell, and back in the bad one, block by block. Pure.

A hot block is four windows of one launch, a cold one a pair of launches. The posterior names the cause, the blocks
prove it: `stats.compare` judges them, whatever prior or noise model the search believed in. The n-th cause that is
tried may be proved by chance with probability alpha / (n · (n + 1)), which sums to alpha however many are tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from flashprof.contracts.comparison import Block, Comparison, DecisionRule, Method, Verdict
from flashprof.contracts.search import Cause, Proof, Reading, Stage
from flashprof.decide.orders import block_order
from flashprof.decide.search_actions import Visit
from flashprof.decide.search_state import COLD, HOT, SearchState
from flashprof.stats.compare import compare_blocks
from flashprof.stats.joint import judge_together

NUM_HOT_WINDOWS = 4
SITE = "this machine"
"""A search measures on one; each launch's own folder says where it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Two cells that are compared by blocks."""

    stage: Stage
    cause: Cause
    """What they differ by; without members: all that good and bad differ by."""
    is_back: bool
    base: str
    candidate: str
    is_cold: bool
    number: int
    """As in the readings: the same for the same cells and stage, from 1."""
    blocks: tuple[Block, ...]
    comparison: Comparison | None
    """None where no block is complete."""

    @property
    def verdict(self) -> Verdict:
        """What the blocks say so far."""
        return self.comparison.verdict if self.comparison else Verdict.INCONCLUSIVE

    @property
    def is_open(self) -> bool:
        """Whether more blocks are wanted."""
        return self.verdict is Verdict.INCONCLUSIVE

    @property
    def proof(self) -> Proof:
        """As the report has it."""
        return Proof(
            number=self.number,
            cause=self.cause,
            is_back=self.is_back,
            base=self.base,
            candidate=self.candidate,
            stage=self.stage,
            comparison=self.comparison,
        )


def proof_trials(state: SearchState, causes: Sequence[Cause], stage: Stage) -> tuple[Trial, ...]:
    """
    Both comparisons of each cause, as far as they can be made: alone first, then back.

    A cause for which nothing can be made has none: its cells are not allowed, or were skipped.
    """
    found: dict[tuple[str, str], Trial] = {}
    for cause in causes:
        of_cause: list[Trial] = []
        alone, back = _sides(state, cause)
        sides = [(cells, is_back) for cells, is_back in ((alone, False), (back, True)) if cells is not None]
        # Where nothing else differs between good and bad, both are one comparison.
        num_sides = len({cells for cells, _ in sides})
        for cells, is_back in sides:
            if cells in found:
                continue
            taken = frozenset(trial.number for trial in found.values())
            shared = None if stage is Stage.CONFIRM else num_sides
            trial = _trial(state, stage, cells, cause, is_back=is_back, taken=taken, num_sides=shared)
            if not (trial.is_open and any(state.why_skipped(cell) for cell in cells)):
                of_cause.append(trial)
                found[cells] = trial
        found |= {(trial.base, trial.candidate): trial for trial in _together(state, of_cause)}
    return tuple(found.values())


def open_trial(state: SearchState, trials: Sequence[Trial]) -> Trial | None:
    """The one to go on with: what is half done, then of launches the one with the fewest, so that both get on."""
    wanted = [trial for trial in trials if trial.is_open]
    key = [(not is_half_done(state, trial), len(trial.blocks) if trial.is_cold else 0) for trial in wanted]
    return wanted[key.index(min(key))] if wanted else None


def _together(state: SearchState, trials: Sequence[Trial]) -> Sequence[Trial]:
    """Both switches of a cause by launches, where neither shows it alone, and both together do."""
    if len(trials) < 2 or not all(trial.is_cold and trial.comparison for trial in trials):
        return trials
    if not any(trial.is_open for trial in trials) or any(trial.verdict is Verdict.NO_REGRESSION for trial in trials):
        return trials
    alpha = min(trial.comparison.rule.alpha for trial in trials if trial.comparison)
    shown = judge_together([trial.blocks for trial in trials], replace(_rule(state), alpha=alpha))
    if shown is None:
        return trials
    return [replace(trial, comparison=item) for trial, item in zip(trials, shown, strict=True)]


def ends_trial(state: SearchState) -> Trial:
    """Good against bad: whether there is anything to explain."""
    space = state.plan.space
    return _trial(state, Stage.PROOF, (space.good, space.bad), Cause(()), is_back=False)


def refuted_causes(state: SearchState) -> frozenset[Cause]:
    """Single terms that are shown to cost less than the tolerance, in either proof."""
    tried = _tried(state)
    return frozenset(trial.cause for trials in tried for trial in trials if trial.verdict is Verdict.NO_REGRESSION)


def proved_trials(state: SearchState) -> list[tuple[Trial, ...]]:
    """Of each single term that all its proofs show to cost tok/s: those proofs."""
    return [trials for trials in _tried(state) if all(trial.verdict is Verdict.REGRESSION for trial in trials)]


def tried_causes(state: SearchState) -> frozenset[Cause]:
    """Single terms for whose proof anything was measured."""
    return frozenset(trials[0].cause for trials in _tried(state))


def _tried(state: SearchState) -> list[tuple[Trial, ...]]:
    """The proofs of each single term for which anything was measured."""
    tried = [cells for cells in _cells_by_number(state, Stage.PROOF).values() if len(cells) == 2]
    space = state.plan.space
    causes = (space.cause(term) for term in range(len(space.terms.names))) if tried else ()
    # Each look at the blocks costs 1 ms; a space has hundreds of terms, and few were ever tried.
    likely = [cause for cause in causes if any(set(cells or ()) in tried for cells in _sides(state, cause))]
    return [trials for cause in likely if (trials := proof_trials(state, [cause], Stage.PROOF))]


def next_window(state: SearchState, trial: Trial, why: str) -> Visit:
    """The window that *trial* wants next."""
    return (_next_cold if trial.is_cold else _next_hot)(state, trial, why)


def is_half_done(state: SearchState, trial: Trial) -> bool:
    """Whether a block is begun that is for nothing unless it is completed now."""
    last = state.last_launch
    done = {run_id for block in trial.blocks for run_id in block.launches} if trial.is_cold else set()
    numbers = {block.number for block in trial.blocks}
    readings = _readings(state, trial.stage, trial.number)
    begun = [reading for reading in readings if reading.block not in numbers and reading.launch not in done]
    return any(reading.launch == last and (trial.is_cold or last == state.running) for reading in begun)


def rest_of_launch(state: SearchState, why: str) -> Visit | None:
    """The next window of a launch that holds one cell only; None where no such launch runs, or it has all of them."""
    readings = state.readings
    if not readings or readings[-1].launch != state.running or not readings[-1].launch.startswith(COLD):
        return None
    last = readings[-1]
    num = sum(_unit(reading) == _unit(last) for reading in readings)
    if num >= state.plan.num_windows_cold or state.why_skipped(last.cell):
        return None
    return Visit(
        cell=last.cell,
        group=state.plan.space.group(last.cell),
        run_id=last.launch,
        stage=last.stage,
        proof=last.proof,
        block=last.block,
        position=num,
        order=_order(state, last.proof, last.block, 2) if last.block else "",
        why=why.format(number=num + 1, total=state.plan.num_windows_cold),
    )


def _unit(reading: Reading) -> tuple[object, ...]:
    """What the windows of one cold side have in common."""
    return reading.launch, reading.stage, reading.proof, reading.block, reading.cell


def _sides(state: SearchState, cause: Cause) -> tuple[tuple[str, str] | None, ...]:
    return state.plan.space.alone(cause), state.plan.space.back(cause)


def _trial(
    state: SearchState,
    stage: Stage,
    cells: tuple[str, str],
    cause: Cause,
    *,
    is_back: bool,
    taken: frozenset[int] = frozenset(),
    num_sides: int | None = None,
) -> Trial:
    """*num_sides*: comparisons that a cause needs, where alpha is shared among causes."""
    plan, (base, candidate) = state.plan, cells
    is_cold = stage is Stage.CONFIRM or not plan.is_hot or plan.space.group(base) != plan.space.group(candidate)
    number = _number(state, stage, cells, taken, num_units=2 if is_cold else NUM_HOT_WINDOWS)
    blocks = tuple((_cold_blocks if is_cold else _hot_blocks)(state, stage, cells, number))
    share = 1 if num_sides is None else _share(-(-number // num_sides))
    return Trial(
        stage=stage,
        cause=cause,
        is_back=is_back,
        base=base,
        candidate=candidate,
        is_cold=is_cold,
        number=number,
        blocks=blocks,
        comparison=_judged(state, blocks, plan.rule.alpha / share) if blocks else None,
    )


def _share(place: int) -> int:
    return place * (place + 1)


def _judged(state: SearchState, blocks: Sequence[Block], alpha: float) -> Comparison:
    rule = replace(_rule(state), alpha=alpha)
    return compare_blocks(blocks, rule, spent_s=sum(block.length_s for block in blocks))


def _rule(state: SearchState) -> DecisionRule:
    rule = state.plan.rule
    return DecisionRule(alpha=rule.alpha, tolerance=rule.tolerance, budget_s=rule.budget_s)


def _cells_by_number(state: SearchState, stage: Stage) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for reading in state.readings:
        if reading.stage is stage and reading.proof:
            found.setdefault(reading.proof, set()).add(reading.cell)
    return found


def _number(state: SearchState, stage: Stage, cells: tuple[str, str], taken: frozenset[int], *, num_units: int) -> int:
    """The number whose readings lie in these two cells; a new one where there is none."""
    fitting = []
    for number, seen in _cells_by_number(state, stage).items():
        first = _readings(state, stage, number)[0]
        expected = cells["AB".index(_order(state, number, first.block, num_units)[0])]
        if seen <= set(cells) and first.cell == expected and number not in taken:
            # Where one cell was measured so far it could become either comparison; the one that is known goes first.
            fitting.append((-len(seen), number))
    used = {reading.proof for reading in state.readings} | taken
    return min(fitting)[1] if fitting else 1 + max(used, default=0)


def _readings(state: SearchState, stage: Stage, number: int) -> list[Reading]:
    return [reading for reading in state.readings if (reading.stage, reading.proof) == (stage, number)]


def _order(state: SearchState, number: int, block: int, num_windows: int) -> str:
    return block_order(state.plan.seed + number, block, num_windows)


def _hot_blocks(state: SearchState, stage: Stage, cells: tuple[str, str], number: int) -> Iterator[Block]:
    readings = _readings(state, stage, number)
    for block in sorted({reading.block for reading in readings}):
        windows = _hot_windows(readings, block)
        if windows is not None:
            units = [[window] for window in windows]
            yield _block(state, number=number, cells=cells, block=block, units=units, method=Method.HOT)


def _hot_windows(readings: Sequence[Reading], block: int) -> list[Reading] | None:
    """The windows of a block, by position, of the first launch that has them all."""
    for launch in dict.fromkeys(reading.launch for reading in readings if reading.block == block):
        of_launch = {
            reading.position: reading
            for reading in reversed(readings)
            if (reading.block, reading.launch) == (block, launch)
        }
        if set(of_launch) >= set(range(NUM_HOT_WINDOWS)):
            return [of_launch[position] for position in range(NUM_HOT_WINDOWS)]
    return None


def _cold_blocks(state: SearchState, stage: Stage, cells: tuple[str, str], number: int) -> Iterator[Block]:
    readings = _readings(state, stage, number)
    for block in sorted({reading.block for reading in readings}):
        order = _order(state, number, block, 2)
        sides = [_cold_side(state, readings, block, cells["AB".index(letter)]) for letter in order]
        if all(sides):
            yield _block(state, number=number, cells=cells, block=block, units=sides, method=Method.COLD)


def _cold_side(state: SearchState, readings: Sequence[Reading], block: int, cell: str) -> list[Reading]:
    """The windows of one launch: all that it should have, or all that it had when it ended; else none."""
    of_side = [reading for reading in readings if (reading.block, reading.cell) == (block, cell)]
    for launch in dict.fromkeys(reading.launch for reading in of_side):
        windows = [reading for reading in of_side if reading.launch == launch]
        if len(windows) >= state.plan.num_windows_cold or launch != state.running:
            return windows
    return []


def _block(
    state: SearchState,
    *,
    number: int,
    cells: tuple[str, str],
    block: int,
    units: Sequence[Sequence[Reading]],
    method: Method,
) -> Block:
    """*units*: what stands at each place of the order, one window or those of one launch."""
    order = _order(state, number, block, len(units))
    clean = [[reading for reading in unit if not reading.disturbances] for unit in units]
    is_whole = all(clean)
    used = clean if is_whole else units
    values = [fmean(reading.log_tok_per_s for reading in unit) for unit in used]
    base, candidate = (
        fmean(value for value, letter in zip(values, order, strict=True) if letter == side) for side in "AB"
    )
    assert all(unit[0].cell == cells["AB".index(letter)] for unit, letter in zip(units, order, strict=True))
    windows = [reading for unit in units for reading in unit]
    disturbances = () if is_whole else tuple(dict.fromkeys(text for item in windows for text in item.disturbances))
    launches = tuple(dict.fromkeys(reading.launch for reading in windows))
    is_cold = method is Method.COLD
    return Block(
        number=block,
        method=method,
        order=order,
        launches=launches,
        site=SITE,
        difference=candidate - base,
        base_log_tok_per_s=base,
        num_windows=sum(map(len, used)),
        length_s=sum(map(state.life_s, launches)) if is_cold else sum(reading.length_s for reading in windows),
        disturbances=disturbances,
    )


def _first_missing(trial: Trial) -> int:
    """Blocks are made in order, so that mirror images stand side by side."""
    have = {block.number for block in trial.blocks}
    return next(number for number in range(1, len(have) + 2) if number not in have)


def _next_hot(state: SearchState, trial: Trial, why: str) -> Visit:
    block, running, group = _first_missing(trial), state.running, state.plan.space.group(trial.base)
    is_usable = running is not None and running.startswith(HOT) and state.group_of[running] == group
    run_id = running if running is not None and is_usable else state.next_run_id(HOT)
    readings = _readings(state, trial.stage, trial.number)
    position = sum((reading.block, reading.launch) == (block, run_id) for reading in readings)
    order = _order(state, trial.number, block, NUM_HOT_WINDOWS)
    cell = (trial.base, trial.candidate)["AB".index(order[position])]
    return Visit(
        cell=cell,
        group=group,
        run_id=run_id,
        stage=trial.stage,
        proof=trial.number,
        block=block,
        position=position,
        order=order,
        why=why,
    )


def _next_cold(state: SearchState, trial: Trial, why: str) -> Visit:
    block = _first_missing(trial)
    order = _order(state, trial.number, block, 2)
    readings = _readings(state, trial.stage, trial.number)
    cells = [(trial.base, trial.candidate)["AB".index(letter)] for letter in order]
    cell = next(cell for cell in cells if not _cold_side(state, readings, block, cell))
    return Visit(
        cell=cell,
        group=state.plan.space.group(cell),
        run_id=state.next_run_id(COLD),
        stage=trial.stage,
        proof=trial.number,
        block=block,
        position=0,
        order=order,
        why=why,
    )
