"""What a study will cost and how noisy it will be, from what was measured earlier on this machine."""

from __future__ import annotations

from flashprof.app.earlier import Earlier
from flashprof.contracts.calibration import Calibration
from flashprof.contracts.comparison import Method
from flashprof.contracts.experiment import WindowPlan
from flashprof.decide.plan import Costs, Noise

HOT_BLOCK_STEPS = 32
"""Four windows of four steps, and as many again that are dropped or pass while FlashProf looks."""


def study_costs(windows: WindowPlan, earlier: Earlier | None) -> Costs:
    """
    What measuring takes.

    Args:
        windows: Of a cold launch.
        earlier: Runs of the same cell; None for a guess.
    """
    cold_windows_s = windows.num_measure * windows.measure_s
    if earlier is None or earlier.startup_s is None or earlier.warmup_s is None:
        return Costs(cold_windows_s=cold_windows_s)
    block_s = Costs().hot_block_s if earlier.step_s is None else HOT_BLOCK_STEPS * earlier.step_s
    return Costs(
        startup_s=earlier.startup_s,
        warmup_s=earlier.warmup_s,
        hot_block_s=block_s,
        cold_windows_s=cold_windows_s,
        source=f"{earlier.num_runs} earlier run{'s' if earlier.num_runs > 1 else ''} of this cell",
    )


def study_noise(calibration: Calibration | None) -> Noise:
    """How much blocks differ, where that was measured."""
    if calibration is None:
        return Noise()
    block_sd = {Method.HOT: calibration.noise.block.sd}
    if calibration.launch_sd is not None:
        block_sd[Method.COLD] = calibration.launch_sd.sd * 2**0.5
    return Noise(block_sd=block_sd, source=f"flashprof calibrate, {calibration.date}")
