"""Where a change of tok/s lies, in words: the same sentences for console, page and report.md. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flashprof.contracts.localisation import FrameChange, Localisation, Part, Ruling, Suspect
from flashprof.contracts.results import Interval
from flashprof.report import figures
from flashprof.report.compare_sentences import change, num_decimals, plural, span
from flashprof.report.site_text import clip
from flashprof.windows.lanes import MAIN_THREAD

NAMED_SHARE = 0.1
"""Parts with less of the change than this are left to the table."""
MAX_NAMED = 3
MAX_NAME = 120
"""Characters of a name in a sentence."""
TOLERANCE = 0.01
"""No rounding of a change may cross it: the tolerance of verdicts, if nothing else was asked for."""


def headline(localisation: Localisation) -> str:
    """What fell, where, in which frame, and how sure: the line to read if only one is read."""
    fell = _fell(localisation)
    if not localisation.parts:
        return f"{fell}; where is not known, for nothing told phases"
    if not is_clear(localisation.difference):
        clear = [part for part in localisation.parts if part.is_clear and abs(part.share) >= NAMED_SHARE]
        told = "; ".join(_part(localisation, part) for part in clear[:MAX_NAMED])
        return f"{fell}; parts that are: {told}" if told else fell
    named = named_parts(localisation)
    if not named:
        first = localisation.parts[0]
        largest = f"{_plain(part_name(first))} ({charge(first)}, {_ends(first.charge)})"
        return f"{fell}: no phase is clear by itself; the largest is {largest}"
    told = "; ".join([_parts(localisation, named), *_against(localisation), *_sure(named), *_rest(localisation)])
    return f"{fell}: {told}"


def rate_change(localisation: Localisation) -> Interval:
    """The change of tok/s that goes with the change of time a token."""
    base, found = localisation.base_ns_per_token, localisation.difference

    def share(difference_ns: float) -> float:
        after = base + difference_ns
        return base / after - 1 if after > 0 else math.inf

    return Interval(
        estimate=share(found.estimate),
        low=share(found.high),
        high=share(found.low),
        level=found.level,
        num_samples=found.num_samples,
        method=found.method,
    )


def is_clear(interval: Interval) -> bool:
    """Whether it excludes 0."""
    return interval.low > 0 or interval.high < 0


def named_parts(localisation: Localisation) -> list[Part]:
    """Clear parts in the direction of the change that have a tenth of it; at least one, if any is clear."""
    clear = [part for part in localisation.parts if part.is_clear and part.share > 0]
    return [part for part in clear[:MAX_NAMED] if part is clear[0] or part.share >= NAMED_SHARE]


def part_name(part: Part) -> str:
    """`drafter mask`; with its lane, where that is no main thread."""
    return part.name if part.thread in ("", "main") else f"{part.name} ({part.thread})"


def charge(part: Part) -> str:
    """`+41.0 µs a token`."""
    return f"{figures.signed(part.charge.estimate, figures.time_text)} a token"


def through(part: Part) -> str:
    """Along which waits it costs the training lane; empty for a phase of that lane itself."""
    return " → ".join(part.through)


def culprit_frame(localisation: Localisation, part: Part) -> FrameChange | None:
    """The clear frame that explains most of a part, of its phase where that is known."""
    sign = part.charge.estimate
    alike = [
        frame
        for frame in localisation.frames
        if frame.is_clear and frame.role == part.role and frame.own.estimate * sign > 0
    ]
    of_phase = [frame for frame in alike if frame.phase == part.phase]
    return next(iter(of_phase or [frame for frame in alike if not frame.phase]), None)


def lane(frame: FrameChange) -> str:
    """Whose time it is."""
    return frame.role if frame.thread == MAIN_THREAD else f"{frame.role}, thread {frame.thread}"


def totals(localisation: Localisation) -> str:
    """Time a token in base and candidate."""
    base_ns = localisation.base_ns_per_token
    after_ns = base_ns + localisation.difference.estimate
    return f"{figures.time_text(base_ns)} → {figures.time_text(after_ns)} a token"


def facts(localisation: Localisation) -> tuple[str, ...]:
    """Who limits, and what it was read from."""
    return tuple(fact for fact in (limiting(localisation), _made(localisation)) if fact)


def limiting(localisation: Localisation) -> str:
    """Which role limits in either arm; empty where it cannot be told."""
    before, after = localisation.limiting
    if not (before and after):
        return ""
    return f"the {after} limits in both" if before == after else f"the {before} limits before, the {after} after"


def explained(localisation: Localisation) -> str:
    """What the clear parts sum to, and what they leave."""
    share, rest_ns = localisation.explained_share, localisation.unexplained_ns_per_token
    if not localisation.parts or not math.isfinite(share):
        return ""
    rest = figures.signed(rest_ns, figures.time_text)
    return f"clear parts explain {figures.percent(share)} of the change; {rest} a token is unexplained"


def missing(*, is_shown: bool) -> str:
    """Why there is no localisation."""
    if not is_shown:
        return "no difference is shown, so there is none to localise"
    return "where it lies is not known: no windows of both tell phases, as three lines of flashprof.emit would"


def focus(phases: Sequence[str]) -> str:
    """What a search looked at, where that is not tok/s itself; else empty."""
    if not phases:
        return ""
    named = " and ".join(part for part in (", ".join(phases[:-1]), phases[-1]) if part)
    does = "differs" if len(phases) == 1 else "differ"
    return (
        f"the search looked at the time of {named}, which alone {does} between good and bad, "
        "with the rest of the step at its mean; proofs look at tok/s itself"
    )


def by_ruling(suspects: Sequence[Suspect]) -> list[Suspect]:
    """Named ones first, then those with a part, those ruled out, and what was not measured."""
    order = [Ruling.NAMED, Ruling.PART, Ruling.RULED_OUT, Ruling.UNKNOWN]
    return sorted(suspects, key=lambda suspect: (order.index(suspect.ruling), -_finite(suspect.share)))


def suspect_counts(suspects: Sequence[Suspect]) -> str:
    """How many there are of each ruling."""
    counts = [(sum(it.ruling is ruling for it in suspects), str(ruling)) for ruling in Ruling]
    return ", ".join(f"{num} {word}" for num, word in counts if num)


def _fell(localisation: Localisation) -> str:
    found = rate_change(localisation)
    if not math.isfinite(found.estimate) or localisation.base_ns_per_token <= 0:
        return "the change of tok/s is not known"
    if not is_clear(localisation.difference):
        size = change(found.estimate, _digits(found))
        return f"tok/s changed by {size} % ({span(found, TOLERANCE)}), which is not clear from these windows alone"
    verb = "fell" if found.estimate < 0 else "rose"
    # Falls are told without a sign, the smaller end first.
    ends = sorted((found.low, found.high), key=abs)
    size, low, high = (change(value, _digits(found)).lstrip("+−") for value in (found.estimate, *ends))
    return f"tok/s {verb} {size} % ({low} to {high})"


def _digits(found: Interval) -> int:
    return num_decimals(found, TOLERANCE)


def _parts(localisation: Localisation, named: Sequence[Part]) -> str:
    told = [f"{figures.percent(part.share)} {_part(localisation, part)}" for part in named[1:]]
    return "; ".join([f"{figures.percent(named[0].share)} of it is {_part(localisation, named[0])}", *told])


def _part(localisation: Localisation, part: Part) -> str:
    """Its name and charge, how it reaches the lane that trains, and in which frame it is."""
    chain = _plain(through(part))
    amount = f"{charge(part)}, through {chain}" if chain else charge(part)
    kind = ", a wait that nobody's work explains" if part.kind == "wait" else ""
    frame = culprit_frame(localisation, part)
    where = f", in `{_plain(frame.name)}`" if frame else ""
    return f"{_plain(part_name(part))} ({amount}){kind}{where}"


def _against(localisation: Localisation) -> list[str]:
    parts = [part for part in localisation.parts if part.is_clear and part.share <= -NAMED_SHARE]
    # The largest against the change come last.
    told = [f"{_plain(part_name(part))} ({charge(part)})" for part in reversed(parts)][:MAX_NAMED]
    return [f"the other way went {', '.join(told)}"] if told else []


def _sure(named: Sequence[Part]) -> list[str]:
    first = named[0]
    if not first.first_share > 0:
        return []
    who = "it" if len(named) == 1 else _plain(part_name(first))
    return [f"{who} ranks first in {figures.percent(first.first_share)} of redraws"]


def _rest(localisation: Localisation) -> list[str]:
    rest = 1 - localisation.explained_share
    return [f"{figures.percent(rest)} is unexplained"] if rest >= NAMED_SHARE else []


def _ends(interval: Interval) -> str:
    low, high = (figures.signed(end, figures.time_text) for end in (interval.low, interval.high))
    return f"{low} to {high}"


def _made(localisation: Localisation) -> str:
    base, candidate = localisation.num_windows
    if not (base or candidate):
        return ""
    launches = sum(localisation.num_launches)
    return f"from {base:,} and {plural(candidate, 'window')} of {plural(launches, 'launch')}"


def _plain(name: str) -> str:
    """On one line, and without backquotes: those of a headline are its own."""
    return " ".join(clip(name.replace("`", "'"), MAX_NAME).split())


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0
