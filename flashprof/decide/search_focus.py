"""Where a search looks: at tok/s, or at the phases in which its ends differ, where these are a better signal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flashprof.contracts.search import Reading
from flashprof.decide.search_state import SearchState

if TYPE_CHECKING:
    from flashprof.stats.basis import NoisePrior
    from flashprof.stats.focus import End, Focus

MIN_NOISE_SHARE = 0.1
"""What is left of the noise is known from few readings: less than a tenth is not believed."""


def find_search_focus(state: SearchState) -> Focus | None:
    """The phases to look at, from all readings that count; None for tok/s. A reading without phases rules it out."""
    from flashprof.stats.focus import find_focus

    space = state.plan.space
    clean = [reading for reading in state.readings if not reading.disturbances]
    if not clean or not all(reading.phases for reading in clean):
        return None
    ends = [_end([reading for reading in clean if reading.cell == cell]) for cell in (space.good, space.bad)]
    return find_focus(ends[0], ends[1], [reading.phases for reading in clean], state.plan.noise)


def focused_values(readings: Sequence[Reading], focus: Focus | None) -> list[float]:
    """Log tok/s of each reading, as it is counted or as the focus sees it."""
    if focus is None:
        return [reading.log_tok_per_s for reading in readings]
    return [focus.log_tok_per_s(reading.phases) for reading in readings]


def focused_noise(noise: NoisePrior, focus: Focus | None) -> NoisePrior:
    """What is left of the noise."""
    if focus is None:
        return noise
    share = max(MIN_NOISE_SHARE, focus.noise_share)
    sds = {name: share * getattr(noise, name) for name in ("window_sd", "launch_sd", "drift_sd")}
    return replace(noise, **sds)


def _end(readings: Sequence[Reading]) -> End:
    from flashprof.stats.focus import End

    return End(
        phases=[reading.phases for reading in readings], launches=frozenset(reading.launch for reading in readings)
    )
