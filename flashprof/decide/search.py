"""
The course of one search, as a pure state machine: `(state, observation) → state`, `next_action(state)`.

    both ends ─→ search: the cell with the most information a second ─→ proof ─→ confirm, where it was hot ─→ finish
                   ↑  until a set of causes is certain                   │
                   └──────────── refuted: that set cannot be it ←────────┘

Every reading is evidence for all that follows, whatever it was taken for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flashprof.contracts.comparison import Standing, Verdict
from flashprof.contracts.search import Cause, SearchLook, Stage
from flashprof.decide.choices import Choice, Engine, choose, control, real_engine, search_visit
from flashprof.decide.conclusion import (
    Leading,
    View,
    beliefs,
    consider,
    explains_drop,
    finish,
    names,
    rest_sentence,
    seconds_left,
    sure_causes,
)
from flashprof.decide.orders import block_order
from flashprof.decide.proofs import (
    Trial,
    ends_trial,
    is_half_done,
    next_window,
    open_trial,
    proof_trials,
    proved_trials,
    rest_of_launch,
)
from flashprof.decide.search_actions import Build, Finish, SearchAction, Visit
from flashprof.decide.search_focus import find_search_focus, focused_noise, focused_values
from flashprof.decide.search_state import SearchState

if TYPE_CHECKING:
    from flashprof.stats.posterior import Posterior

MIN_NATS = 0.001
"""A window that tells less than this tells nothing: a thousand of them would not settle a coin's toss."""
STAY = 0.9
"""Of the certainty: what was proved is given up only below it, since a cold launch's own noise moves it a little."""
LEAD = 0.5
"""Where no window tells more, what is likelier than all else together goes to the proof, which may."""
SEARCH_SHARE = 0.6
"""Of the budget: by then the search for more than what is proved ends, since launches that confirm take minutes."""
WHY_REST = "window {number} of {total} of this launch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """What a state leads to; made once, since the posterior of 128 commits takes 50 ms."""

    action: SearchAction
    view: View | None
    """None until both ends are measured."""


def next_action(state: SearchState, engine: Engine | None = None) -> SearchAction:
    """What to do now."""
    return think(state, engine).action


def think(state: SearchState, engine: Engine | None = None) -> Thought:
    """What is believed, and what to do now."""
    engine = engine or real_engine()
    first = _first_window(state)
    view = None if first else consider(state, _posterior(state, engine))
    action: SearchAction | None = _blocked(state, view) or rest_of_launch(state, WHY_REST)
    if action is None:
        action = _within_budget(state, None, first) if first else None
    if action is None:
        assert view is not None, "both ends are measured"
        action = _decide(state, view, engine)
    if isinstance(action, Visit) and state.needs_build(action.cell):
        action = Build(group=action.group, cell=action.cell, why=action.why)
    return Thought(action=action, view=view)


def look(state: SearchState, thought: Thought) -> SearchLook:
    """What a live view shows: beliefs, what comes next and why, cost so far and to come."""
    action, view = thought.action, thought.view
    is_over = isinstance(action, Finish)
    return SearchLook(
        beliefs=beliefs(state, view),
        next_cell="" if isinstance(action, Finish) else action.cell,
        why=action.reason if isinstance(action, Finish) else action.why,
        num_readings=len(state.readings),
        num_launches=len(state.group_of),
        spent_s=state.spent_s,
        to_come_s=None if view is None or is_over else seconds_left(state, view, nats_per_s=0.0),
    )


def _blocked(state: SearchState, view: View | None) -> Finish | None:
    """The end of a search that may not, or cannot, go on."""
    if state.is_stopped:
        return finish(state, view, reason="stopped; the same command goes on from here")
    space = state.plan.space
    for name, end in (("good", space.good), ("bad", space.bad)):
        why = state.why_skipped(end)
        if why:
            reason = f"the {name} end cannot be measured ({why}), and without it there is nothing to explain"
            return finish(state, view, reason=reason)
    return None


def _first_window(state: SearchState) -> Visit | None:
    """Both ends, before anything is inferred; None once they are there."""
    plan = state.plan
    order = block_order(plan.seed, 1, 2)
    if plan.is_hot:
        is_shared = plan.space.group(plan.space.good) == plan.space.group(plan.space.bad)
        order = block_order(plan.seed, 1, 4) if is_shared else order[0] * 2 + order[1] * 2
    have = [reading.cell for reading in state.readings if not reading.disturbances]
    for place, letter in enumerate(order, start=1):
        cell = plan.space.good if letter == "A" else plan.space.bad
        if have.count(cell) < order[:place].count(letter):
            return search_visit(state, cell, "both ends first: they show how large the difference is")
    return None


def _posterior(state: SearchState, engine: Engine) -> Posterior:
    import numpy as np

    from flashprof.stats.posterior import Evidence

    plan, number = state.plan, {run_id: place for place, run_id in enumerate(state.group_of)}
    clean = [reading for reading in state.readings if not reading.disturbances]
    focus = find_search_focus(state)
    evidence = Evidence(
        rows=plan.space.rows([reading.cell for reading in clean]),
        values=np.array(focused_values(clean, focus)),
        launches=np.array([number[reading.launch] for reading in clean]),
        at_s=np.array([reading.at_s for reading in clean]),
    )
    terms = plan.space.terms_near(focus.phases if focus else ())
    posterior: Posterior = engine.infer(terms, evidence, focused_noise(plan.noise, focus))
    return posterior


def _decide(state: SearchState, view: View, engine: Engine) -> SearchAction:
    leading = view.leading
    if leading is None:
        return finish(state, view, reason=f"{view.failed}; nothing that is left explains the difference")
    is_certain = _is_certain(state, leading)
    # That nothing else matters takes far longer to know than what does: 10 toggles have 55 terms.
    sure = leading.culprits if is_certain else sure_causes(state, view)
    trial = open_trial(state, proof_trials(state, sure, Stage.PROOF))
    if trial is not None:
        return _try(state, view, trial)
    if not is_certain and not _is_enough(state, view, sure):
        choice = choose(state, view.posterior, engine)
        if choice is not None and choice.nats >= MIN_NATS:
            return _search(state, view, choice)
        if leading.probability < LEAD:
            told = f"{view.failed}; " if view.failed else ""
            return _close(state, view, f"{told}nothing that can be measured tells more; {leading.sentence}")
        sure = leading.culprits
    return _conclude(state, view, sure)


def _conclude(state: SearchState, view: View, culprits: tuple[Cause, ...]) -> SearchAction:
    """Show what was found, in whatever order that needs."""
    if not culprits:
        return _compare_ends(state, view)
    trials = proof_trials(state, culprits, Stage.PROOF)
    trial = open_trial(state, trials)
    if trial is not None:
        return _try(state, view, trial)
    missing = [cause for cause in culprits if not any(trial.cause == cause for trial in trials)]
    if missing:
        reason = f"{names(missing)} leads, and no two cells that can be measured differ by it alone"
        return finish(state, view, reason=reason)
    return _confirm(state, view, culprits, trials)


def _is_enough(state: SearchState, view: View, proved: tuple[Cause, ...]) -> bool:
    """Whether what is proved explains the drop, or must be confirmed now if it is to be confirmed at all."""
    if not _are_proved(state, proved):
        return False
    is_late = state.spent_s >= SEARCH_SHARE * state.plan.rule.budget_s
    return explains_drop(state, view, proved) or (is_late and state.plan.is_hot and state.plan.confirm)


def _is_certain(state: SearchState, leading: Leading) -> bool:
    """Whether one hypothesis is all but sure; a proved one stays so while it is a little less."""
    certainty = state.plan.rule.certainty
    is_near = leading.probability >= certainty * STAY
    return leading.probability >= certainty or (is_near and _are_proved(state, leading.culprits))


def _are_proved(state: SearchState, causes: tuple[Cause, ...]) -> bool:
    """Whether every cause has proofs, and all of them show it."""
    trials = proof_trials(state, causes, Stage.PROOF)
    shown = {trial.cause for trial in trials if trial.verdict is Verdict.REGRESSION}
    open_or_refuted = {trial.cause for trial in trials if trial.verdict is not Verdict.REGRESSION}
    return bool(causes) and shown - open_or_refuted == set(causes)


def _search(state: SearchState, view: View, choice: Choice) -> SearchAction:
    bits = choice.nats / math.log(2)
    why = f"most information a second: {bits:.2g} bit for {choice.cost_s:.0f} s"
    visit = control(state) or search_visit(state, choice.cell, why)
    to_resolve_s = seconds_left(state, view, nats_per_s=choice.nats / choice.cost_s)
    return _within_budget(state, view, visit, to_resolve_s=to_resolve_s)


def _within_budget(
    state: SearchState, view: View | None, visit: Visit, *, to_resolve_s: float | None = None
) -> SearchAction:
    budget_s = state.plan.rule.budget_s
    if state.spent_s < budget_s:
        return visit
    known = view.leading.sentence if view and view.leading else "an end is missing"
    return _close(state, view, f"the budget of {budget_s / 60:.3g} min is spent; {known}", to_resolve_s=to_resolve_s)


def _close(state: SearchState, view: View | None, reason: str, *, to_resolve_s: float | None = None) -> Finish:
    """The end of a search that would go on: what is proved by then is an answer, though there may be more."""
    shown = [trials for trials in proved_trials(state) if not view or not set(view.refuted) & {trials[0].cause}]
    answer = finish(state, view, reason=reason, to_resolve_s=to_resolve_s)
    if not shown or view is None:
        return answer
    culprits = tuple(sorted(trials[0].cause for trials in shown))
    is_cold = all(trial.is_cold for trials in shown for trial in trials)
    verb = "each slow it down" if len(culprits) > 1 else "slows it down"
    rest = rest_sentence(state, view, culprits)
    return replace(
        answer,
        verdict=Verdict.REGRESSION,
        standing=Standing.CONFIRMED if is_cold else Standing.SCREENED,
        reason=f"{names(culprits)} {verb}, shown by switching",
        culprits=culprits,
        gains=(),
        proofs=tuple(trial.proof for trials in shown for trial in trials),
        notes=(*answer.notes, f"there may be more: {reason}{rest}"),
    )


def _try(state: SearchState, view: View, trial: Trial) -> SearchAction:
    """The next window of a proof; a block that is begun is completed beyond the budget, or it was for nothing."""
    how = "switched back in the bad cell" if trial.is_back else "alone in the good cell"
    visit = next_window(state, trial, f"proof of {names([trial.cause])}: {how}, block by block")
    if is_half_done(state, trial):
        return visit
    return _within_budget(state, view, visit, to_resolve_s=seconds_left(state, view, nats_per_s=0.0))


def _compare_ends(state: SearchState, view: View) -> SearchAction:
    trial = ends_trial(state)
    if trial.verdict is Verdict.NO_REGRESSION and trial.comparison is not None:
        answer = finish(state, view, reason=f"good and bad are alike: {trial.comparison.reason}")
        standing = Standing.CONFIRMED if trial.is_cold else Standing.SCREENED
        return replace(answer, verdict=Verdict.NO_REGRESSION, standing=standing)
    visit = next_window(state, trial, "good against bad, block by block: nothing seems to matter")
    if is_half_done(state, trial):
        return visit
    return _within_budget(state, view, visit, to_resolve_s=seconds_left(state, view, nats_per_s=0.0))


def _answer(state: SearchState, view: View, culprits: tuple[Cause, ...], shown: tuple[Trial, ...]) -> Finish:
    """The culprits are proved."""
    verb = "each slow it down" if len(culprits) > 1 else "slows it down"
    answer = finish(state, view, reason=f"{names(culprits)} {verb}, shown by switching")
    is_cold = all(trial.is_cold for trial in shown)
    proved = replace(
        answer,
        verdict=Verdict.REGRESSION,
        standing=Standing.CONFIRMED if is_cold else Standing.SCREENED,
        culprits=culprits,
        proofs=tuple(trial.proof for trial in shown),
    )
    leading = view.leading
    if leading is None or leading.culprits != culprits:
        proved = replace(proved, gains=())
    else:
        proved = replace(proved, reason=f"{proved.reason}; {leading.sentence}")
        if leading.probability >= state.plan.rule.certainty * STAY:
            return proved
    note = f"that nothing else matters is less sure{rest_sentence(state, view, culprits)}"
    return replace(proved, notes=(*proved.notes, note))


def _confirm(state: SearchState, view: View, culprits: tuple[Cause, ...], shown: tuple[Trial, ...]) -> SearchAction:
    """Where the proof was hot, launches of one cell each have the last word."""
    proved = _answer(state, view, culprits, shown)
    if proved.standing is Standing.CONFIRMED or not state.plan.confirm:
        return proved
    together = Cause(tuple(sorted({member for cause in culprits for member in cause.members})))
    trials = proof_trials(state, [together], Stage.CONFIRM)
    if not trials:
        note = "launches of one cell each could not confirm it: the cells cannot be measured"
        return replace(proved, notes=(*proved.notes, note))
    proved = replace(proved, proofs=(*proved.proofs, *(trial.proof for trial in trials)))
    if any(trial.verdict is Verdict.NO_REGRESSION for trial in trials):
        reason = f"{names(culprits)}: shown within one launch, and launches of one cell each show nothing of it"
        return replace(proved, verdict=Verdict.INCONCLUSIVE, reason=reason)
    trial = open_trial(state, trials)
    if trial is not None and (state.spent_s < state.plan.rule.budget_s or is_half_done(state, trial)):
        return next_window(state, trial, f"{names(culprits)}: launches of one cell each confirm it")
    if trial is not None:
        note = "the budget is spent: launches of one cell each have not confirmed it yet"
        return replace(proved, notes=(*proved.notes, note))
    return replace(proved, standing=Standing.CONFIRMED)
