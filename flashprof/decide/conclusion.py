"""
What a search concludes from its posterior and its proofs: the leading hypothesis, and the answer. Pure.

Hypotheses that differ by what is no larger than usual are one answer. A toggle whose effect is 0.5 % may be said to
matter by little, or not to matter: no window tells these apart, and of eight toggles, with a prior of 0.15 each, they
hold a quarter of the probability for ever. Nobody who asks for the cause of 17 % wants to know.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

from flashprof.contracts.comparison import Standing, Verdict
from flashprof.contracts.results import Interval
from flashprof.contracts.search import Belief, Cause, Proof, Stage
from flashprof.decide.proofs import NUM_HOT_WINDOWS, Trial, ends_trial, proof_trials, refuted_causes, tried_causes
from flashprof.decide.search_actions import Finish
from flashprof.decide.search_state import SearchState, failure_sentences
from flashprof.stats.sequential import fewest

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    from flashprof.stats.posterior import Posterior

    Floats = NDArray[float64]

MIN_NAMED = 0.5
"""A hypothesis that is less likely than not is told among the beliefs, and names nobody."""
NUM_BELIEFS = 8
MAX_POOLS = 32
"""Hypotheses that others may be added to, the likeliest ones: no other will ever lead."""
LEAST_WHILE_PROVED = 0.5
"""A proof that is begun goes on while its cause is likelier than not: its own windows move the belief."""
MAX_REST = 0.25
"""Of the drop: what may be left unexplained once the culprits are proved."""
Z_ONE_SIDED = 1.645
MIN_POOLED = 1e-3
"""Hypotheses below this stay by themselves: asking for the spread of an effect takes 0.3 ms."""
NUM_USUAL_SDS = 2.0
"""An effect within so many spike sds is what such a term usually has: 3.4 % for a toggle."""
MAX_PROMISED_S = 7 * 86400.0
"""A search that needs longer is not promised."""
LEVEL, Z = 0.95, 1.96
METHOD = "posterior of a hypothesis, normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A hypothesis as a person reads it."""

    place: int
    """In the posterior."""
    probability: float
    effects: Mapping[int, float]
    """Term → mean effect on log tok/s, if it holds."""
    culprits: tuple[Cause, ...]
    gains: tuple[Cause, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leading:
    """The likeliest hypothesis that no proof has refuted."""

    place: int
    """In the posterior."""
    probability: float
    """Among those that no proof has refuted, with all that say no more than it does."""
    culprits: tuple[Cause, ...]
    gains: tuple[Cause, ...]

    @property
    def sentence(self) -> str:
        """`swa leads with probability 0.87`."""
        what = names(self.culprits) if self.culprits else "no difference"
        return f"{what} leads with probability {self.probability:.3g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is believed and proved; made once a decision, since pooling 400 hypotheses takes some ms."""

    posterior: Posterior
    answers: tuple[_Answer, ...]
    """Pooled, the likeliest first; without those that the proofs have refuted."""
    leading: Leading | None
    """None where the proofs have refuted all."""
    refuted: tuple[Cause, ...]

    @property
    def failed(self) -> str:
        """What the proofs have refuted, as a sentence; empty for nothing."""
        one = len(self.refuted) == 1
        return f"the proof failed: {names(self.refuted)} cost{'s' * one} less than tolerated" if self.refuted else ""


def names(causes: Iterable[Cause]) -> str:
    """`swa and compile × queue`; of a commit as many digits as a person needs."""
    short = [re.sub(r"\b([0-9a-f]{10})[0-9a-f]{30}\b", r"\1", cause.name) for cause in causes]
    return ", ".join(short[:-1]) + (" and " if len(short) > 1 else "") + "".join(short[-1:])


def consider(state: SearchState, posterior: Posterior) -> View:
    """What the posterior and the proofs come to."""
    refuted = refuted_causes(state)
    # Good and bad differ for certain: something must explain it.
    must_explain = ends_trial(state).verdict is Verdict.REGRESSION
    left: list[_Answer] = []
    lost: list[_Answer] = []
    for answer in _answers(state, posterior):
        is_lost = refuted & set(answer.culprits) or (must_explain and not answer.culprits)
        (lost if is_lost else left).append(answer)
    pooled = _pooled(state, posterior, left)
    # What is refuted is out, and its probability goes to the rest; it is shown only where nothing is left.
    rest = max(1.0 - sum(answer.probability for answer in lost), sum(answer.probability for answer in left))
    answers = tuple(replace(answer, probability=answer.probability / rest) for answer in pooled) or tuple(lost)
    leading = None
    if pooled:
        best = answers[0]
        leading = Leading(
            place=best.place, probability=min(1.0, best.probability), culprits=best.culprits, gains=best.gains
        )
    return View(posterior=posterior, answers=answers, leading=leading, refuted=tuple(sorted(refuted)))


def sure_causes(state: SearchState, view: View) -> tuple[Cause, ...]:
    """Culprits of the leading hypothesis that matter for sure, whatever else does; those being proved stay longer."""
    begun, found = tried_causes(state), []
    if not state.plan.rule.proves_early:
        return ()
    for cause in view.leading.culprits if view.leading else ():
        share = sum(answer.probability for answer in view.answers if cause in answer.culprits)
        if share >= (LEAST_WHILE_PROVED if cause in begun else state.plan.rule.certainty):
            found.append(cause)
    return tuple(found)


def explains_drop(state: SearchState, view: View, culprits: Sequence[Cause]) -> bool:
    """Whether, without the culprits, the bad cell would be about as fast as the good one, and no faster either."""
    space, rest = state.plan.space, _unexplained(state, view, culprits)
    if rest is None:
        return False
    mean, sd = rest
    drop = _contrast(view, _row(state, space.bad) - _row(state, space.good))[0]
    # A gain that masks a loss leaves a small drop: what the culprits cost is the measure then.
    allowed = max(-math.log1p(-state.plan.rule.tolerance), MAX_REST * max(abs(drop), abs(drop - mean)))
    return abs(mean) + Z_ONE_SIDED * sd < allowed


def rest_sentence(state: SearchState, view: View, culprits: Sequence[Cause]) -> str:
    """How much slower than good the bad cell would be without the culprits; empty where that cannot be told."""
    rest = _unexplained(state, view, culprits)
    if rest is None:
        return ""
    found = _interval(*rest, view.posterior.num_readings)
    low, high = 100 * found.low, 100 * found.high
    return f"; without them the bad cell would be within {low:+.1f} and {high:+.1f} % of the good one (95 %)"


def beliefs(state: SearchState, view: View | None) -> tuple[Belief, ...]:
    """The likeliest hypotheses with the effect of each cause, the likeliest first."""
    if view is None:
        return ()
    posterior = view.posterior
    made = []
    for answer in view.answers[:NUM_BELIEFS]:
        means, sds = posterior.effect(answer.place)
        pairs = zip(map(state.plan.space.cause, posterior.hypotheses[answer.place]), means, sds, strict=True)
        ordered = sorted((cause, float(mean), float(sd)) for cause, mean, sd in pairs)
        made.append(
            Belief(
                causes=tuple(cause for cause, _, _ in ordered),
                probability=min(1.0, answer.probability),
                effects=tuple(_interval(mean, sd, posterior.num_readings) for _, mean, sd in ordered),
            )
        )
    return tuple(made)


def seconds_left(state: SearchState, view: View, *, nats_per_s: float) -> float | None:
    """
    About how long the search still takes, if the information goes on coming at this rate; None if that is too long.

    Args:
        state: What is known.
        view: What is believed: its leading hypothesis is what is to be proved.
        nats_per_s: Of the best cell; 0 where the search itself is over, or its rate is not known.
    """
    leading = view.leading
    if leading is None:
        return None
    certainty = state.plan.rule.certainty
    seconds = sum(_trial_s(state, trial) for trial in _wanted(state, leading))
    if leading.probability < certainty:
        if nats_per_s <= 0:
            return None
        enough = -certainty * math.log(certainty) - (1 - certainty) * math.log1p(-certainty)
        entropy = -sum(float(share) * math.log(share) for share in view.posterior.probabilities if share > 0)
        seconds += max(0.0, entropy - enough) / nats_per_s
    return seconds if seconds < MAX_PROMISED_S else None


def finish(state: SearchState, view: View | None, *, reason: str, to_resolve_s: float | None = None) -> Finish:
    """The answer as far as it is known; inconclusive, unless the caller replaces that."""
    leading = view.leading if view else None
    named = leading if leading and leading.probability >= MIN_NAMED else None
    return Finish(
        verdict=Verdict.INCONCLUSIVE,
        standing=Standing.SCREENED,
        reason=reason,
        drop=_drop(state, view) if view else None,
        culprits=named.culprits if named else (),
        gains=named.gains if named else (),
        beliefs=beliefs(state, view),
        proofs=_proofs(state, view) if view else (),
        to_resolve_s=to_resolve_s,
        notes=_notes(state, view) if view else (),
        failures=failure_sentences(state),
        spent_s=state.spent_s,
        num_reused=state.num_reused,
    )


def _answers(state: SearchState, posterior: Posterior) -> list[_Answer]:
    """All hypotheses with the signs of their causes, the likeliest first."""
    found: list[_Answer] = []
    causes = [state.plan.space.cause(term) for term in range(len(state.plan.space.terms.names))]
    for place, (terms, means) in enumerate(zip(posterior.hypotheses, _mean_effects(posterior), strict=True)):
        effects = dict(zip(terms, means, strict=False))
        found.append(
            _Answer(
                place=place,
                probability=float(posterior.probabilities[place]),
                effects=effects,
                culprits=tuple(causes[term] for term in terms if effects[term] < 0),
                gains=tuple(causes[term] for term in terms if effects[term] >= 0),
            )
        )
    return found


def _mean_effects(posterior: Posterior) -> list[list[float]]:
    """
    Mean log tok/s effect of each term of each hypothesis, as `Posterior.effect` has it, padded.

    All at once: one at a time, 400 hypotheses take 120 ms. A term that matters has the spike and the slab's extra
    on the same column, so that the mean of the sum is that of the extra part, over its share of the variance.
    """
    import numpy as np

    members, extra_sd = posterior.members, np.append(posterior.terms.extra_sd, 1.0)
    if not members.shape[1]:
        return [[] for _ in posterior.hypotheses]
    means, _ = posterior.basis.slabs(members)
    slabs = np.einsum("hs,shk->hk", posterior.scale_weights, means)
    effects: list[list[float]] = (slabs * posterior.terms.slab_sd**2 / extra_sd[members]).tolist()
    return effects


def _pooled(state: SearchState, posterior: Posterior, answers: Sequence[_Answer]) -> list[_Answer]:
    """
    The same, less what says no more than a likelier one, which gets that part of its probability.

    An effect of which only the mean is small may be large: four windows leave an sd of 3 %. Given to the likelier one
    as a whole, 3 of 20 answers that were stated at 0.95 were wrong.
    """
    kept: list[_Answer] = []
    for answer in answers:
        same = next((place for place, other in enumerate(kept[:MAX_POOLS]) if _has_all_of(answer, other)), None)
        share = 0.0
        if same is not None and answer.probability >= MIN_POOLED:
            share = _share_of_usual(state, posterior, answer, kept[same])
            kept[same] = replace(kept[same], probability=kept[same].probability + share * answer.probability)
        kept.append(replace(answer, probability=(1.0 - share) * answer.probability))
    return sorted(kept, key=lambda answer: (-answer.probability, answer.place))


def _has_all_of(answer: _Answer, other: _Answer) -> bool:
    """Whether *answer* has all causes of *other*, with their signs."""
    shared = [term for term in other.effects if term in answer.effects]
    is_wider = len(shared) == len(other.effects)
    return is_wider and all((answer.effects[term] < 0) == (other.effects[term] < 0) for term in shared)


def _share_of_usual(state: SearchState, posterior: Posterior, answer: _Answer, other: _Answer) -> float:
    """Probability that all that *answer* has besides *other* is no larger than what toggles usually bring."""
    usual_sd, tolerance = state.plan.space.terms.spike_sd, state.plan.rule.tolerance
    means, sds = posterior.effect(answer.place)
    share = 1.0
    for term, mean, sd in zip(posterior.hypotheses[answer.place], means, sds, strict=True):
        if term not in other.effects:
            usual = max(tolerance, NUM_USUAL_SDS * float(usual_sd[term]))
            spread = NormalDist(float(mean), max(float(sd), 1e-9))
            share *= spread.cdf(usual) - spread.cdf(-usual)
    return share


def _unexplained(state: SearchState, view: View, culprits: Sequence[Cause]) -> tuple[float, float] | None:
    """Mean and sd of what good and bad still differ by with the culprits switched back, in log tok/s."""
    together = Cause(tuple(sorted({member for cause in culprits for member in cause.members})))
    cells = state.plan.space.back(together)
    return None if cells is None else _contrast(view, _row(state, cells[0]) - _row(state, state.plan.space.good))


def _contrast(view: View, difference_row: Floats) -> tuple[float, float]:
    """Mean and sd of a difference of cells over the likeliest hypotheses together."""
    answers = [answer for answer in view.answers[:MAX_POOLS] if answer.probability > 0] or view.answers[:1]
    total = sum(answer.probability for answer in answers)
    found = [(answer.probability / total, *view.posterior.contrast(answer.place, difference_row)) for answer in answers]
    middle = sum(share * mean for share, mean, _ in found)
    return middle, math.sqrt(sum(share * (sd**2 + (mean - middle) ** 2) for share, mean, sd in found))


def _row(state: SearchState, cell: str) -> Floats:
    row: Floats = state.plan.space.rows([cell])[0]
    return row


def _wanted(state: SearchState, leading: Leading) -> Sequence[Trial]:
    if not leading.culprits:
        return (ends_trial(state),)
    return proof_trials(state, leading.culprits, Stage.PROOF)


def _trial_s(state: SearchState, trial: Trial) -> float:
    """Seconds that a comparison still takes: what it says itself, or the fewest blocks that can decide."""
    if not trial.is_open:
        return 0.0
    if trial.comparison is not None and trial.comparison.to_resolve_s is not None:
        return trial.comparison.to_resolve_s
    plan, costs = state.plan, state.plan.costs
    block_s = NUM_HOT_WINDOWS * (costs.window_s + costs.switch_s)
    if trial.is_cold:
        block_s = 2 * (costs.start_s + plan.num_windows_cold * costs.window_s)
    return max(1, fewest(plan.rule.alpha) - len(trial.blocks)) * block_s


def _drop(state: SearchState, view: View) -> Interval:
    rows = state.plan.space.rows([state.plan.space.good, state.plan.space.bad])
    place = view.leading.place if view.leading else 0
    mean, sd = view.posterior.contrast(place, rows[1] - rows[0])
    return _interval(mean, sd, view.posterior.num_readings)


def _proofs(state: SearchState, view: View) -> tuple[Proof, ...]:
    """Of the culprits, then what was refuted on the way, then what led once and was measured, then the ends."""
    causes = dict.fromkeys((*(view.leading.culprits if view.leading else ()), *view.refuted))
    others = sorted(tried_causes(state) - causes.keys())
    made = proof_trials(state, (*causes, *others), Stage.PROOF)
    trials = [trial for trial in made if trial.cause in causes or trial.comparison is not None]
    ends = ends_trial(state)
    is_new = ends.comparison is not None and all(trial.number != ends.number for trial in trials)
    return tuple(trial.proof for trial in (*trials, *((ends,) if is_new else ())))


def _notes(state: SearchState, view: View) -> tuple[str, ...]:
    leading, notes = view.leading, [view.failed] if view.failed else []
    for cause in leading.culprits if leading else ():
        sides = {"alone in the good cell": state.plan.space.alone(cause)}
        sides["back in the bad cell"] = state.plan.space.back(cause)
        for how, cells in sides.items():
            whys = [f"{cell}: {why}" for cell in cells or () if (why := state.why_skipped(cell))]
            if whys:
                notes.append(f"{names([cause])} could not be switched {how} ({'; '.join(whys)})")
    return tuple(notes)


def _interval(mean: float, sd: float, num_readings: int) -> Interval:
    """Of a change of log tok/s, as a relative change."""
    estimate, low, high = (math.expm1(min(mean + sign * Z * sd, 700.0)) for sign in (0, -1, 1))
    return Interval(estimate=estimate, low=low, high=high, level=LEVEL, num_samples=num_readings, method=METHOD)
