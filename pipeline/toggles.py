"""
The registry of toggles: each optimisation of the trainer as a switch, off in the cell `none`.

Light on purpose: `flashprof run --list-toggles` reads it from a process that must not import torch (2 to 4 s).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence

from flashprof.contracts.errors import UsageError
from flashprof.contracts.toggles import Toggle, ToggleValues

ROUNDING = 1e-4
"""
Relative: what another order of sums makes of a step's loss within 50 steps; 9e-5 on an H200 in bfloat16
(docs/parity.md).
"""

COMPILED_ROUNDING = 1e-3
"""
Relative, likewise: fused operations keep in float32 what else is rounded to bfloat16 between them, 2e-3 an element. On
a CPU, where nothing is rounded, compiled steps are within 1e-5.
"""

REGISTRY: tuple[Toggle, ...] = (
    Toggle(
        name="compile",
        help="compile the attention-mask builder with torch.compile instead of evaluating it eagerly every step",
        hot=True,
        needs=("compiler",),
    ),
    Toggle(
        name="swa",
        help="make every drafter layer sliding-window, so that one mask serves all layers; changes the model",
        hot=True,
        changes_numbers=True,
    ),
    Toggle(
        name="queue",
        help="depth of the hidden-state queue in front of each drafter, in batches",
        default=1,
        on=8,
        minimum=1,
        maximum=64,
        hot=True,
    ),
    Toggle(
        name="async-metrics",
        help="read a step's metrics later in one copy (CUDA: on a side stream), not one by one at once",
        hot=True,
    ),
    Toggle(
        name="grad-norm",
        help="clip by a coefficient on the device, without reading the gradient norm on the host first",
        hot=True,
    ),
    Toggle(
        name="expandable",
        help="let the CUDA allocator grow its segments (expandable_segments) instead of keeping ones of fixed size",
        needs=("cuda",),
    ),
    Toggle(
        name="warmup",
        help="run each batch shape before the first step: compilation and allocation come early",
        # On CUDA flex_attention compiles for the first shape that it meets, so that the order of shapes decides.
        loss_tolerance=ROUNDING,
    ),
    Toggle(
        name="docids",
        help="make document ids in one vectorised call instead of one Python object a position",
        hot=True,
    ),
    Toggle(
        name="prealloc",
        help="move a step's host tensors in one copy through pinned and device buffers that are kept",
        hot=True,
        needs=("cuda",),
    ),
    Toggle(
        name="analytic-mask",
        help="write the mask, or its block sparsity, in closed form instead of evaluating the rule at every pair",
        hot=True,
    ),
    Toggle(
        name="early-exit",
        help="stop the target after its last tapped layer",
        hot=True,
        is_upstream=True,
    ),
    Toggle(
        name="compile-target",
        help="run the target's layers as compiled functions around attention, with joined weight matrices",
        hot=True,
        is_upstream=True,
        # On a CPU it would be a start of 20 s longer, and not one of the operations that it saves is what limits there.
        needs=("cuda",),
        loss_tolerance=COMPILED_ROUNDING,
    ),
    Toggle(
        name="packed-target",
        help="run the target on one row without padding, attending within each sample",
        hot=True,
        is_upstream=True,
        loss_tolerance=COMPILED_ROUNDING,
    ),
    Toggle(
        name="compile-drafter",
        help="run the drafter's layers, and with fused-loss the scoring of a chunk, as compiled code around attention",
        hot=True,
        needs=("cuda",),
        loss_tolerance=COMPILED_ROUNDING,
    ),
    Toggle(
        name="fused-loss",
        help="compute loss and gradient in chunks that never hold the logits of the whole vocabulary for all slots",
        hot=True,
        loss_tolerance=ROUNDING,
    ),
)


def not_applied(
    values: ToggleValues, *, has_cuda: bool, which: Callable[[str], str | None] = shutil.which
) -> dict[str, str]:
    """
    The toggles in *values* that this machine cannot honour, each with the reason.

    Args:
        values: Toggle values of the cell.
        has_cuda: Whether the roles run on a CUDA device.
        which: Finds a program on PATH.
    """
    missing = _missing_needs(has_cuda=has_cuda, which=which)
    reasons = {}
    for toggle in REGISTRY:
        lacking = [missing[need] for need in toggle.needs if need in missing]
        if lacking and values[toggle.name] != toggle.default:
            reasons[toggle.name] = "; ".join(lacking)
    return reasons


def honoured(values: ToggleValues, refused: Mapping[str, str]) -> ToggleValues:
    """*values* with the refused toggles back at their defaults."""
    return {toggle.name: toggle.default if toggle.name in refused else values[toggle.name] for toggle in REGISTRY}


def hot_changes(
    asked: Mapping[str, object],
    *,
    has_cuda: bool,
    planted: Sequence[Toggle] = (),
    which: Callable[[str], str | None] = shutil.which,
) -> tuple[ToggleValues, dict[str, str]]:
    """
    Sort what a running trainer is asked to change.

    Args:
        asked: Toggle name to value, as a control command brought them.
        has_cuda: Whether the roles run on a CUDA device.
        planted: Hidden toggles that this run knows besides.
        which: Finds a program on PATH.

    Returns:
        The values to put in force, and the toggles that stay as they are, each with the reason.
    """
    by_name = {toggle.name: toggle for toggle in (*REGISTRY, *planted)}
    values: ToggleValues = {}
    refused: dict[str, str] = {}
    for name, value in asked.items():
        toggle = by_name.get(name)
        if toggle is None or not toggle.hot:
            refused[name] = "no such toggle" if toggle is None else "cold: it needs a new start"
            continue
        try:
            values[name] = toggle.parse(str(value))
        except UsageError as error:
            refused[name] = f"{error.what}; allowed: {error.allowed}"
    defaults = {toggle.name: toggle.default for toggle in REGISTRY}
    refused |= not_applied(defaults | values, has_cuda=has_cuda, which=which)
    return {name: value for name, value in values.items() if name not in refused}, refused


def _missing_needs(*, has_cuda: bool, which: Callable[[str], str | None]) -> dict[str, str]:
    missing = {}
    if not has_cuda:
        missing["cuda"] = "needs a CUDA device; this run is on the CPU"
    # On CUDA the compiler is Triton, which comes with torch; on the CPU inductor calls g++ or clang++.
    if not has_cuda and not any(which(name) for name in ("g++", "clang++")):
        missing["compiler"] = "needs a C++ compiler (g++ or clang++) on PATH; try: apt-get install g++"
    return missing
