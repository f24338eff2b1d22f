"""A preset with the command line's changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flashprof.contracts.errors import UsageError
from pipeline.presets import DataPlan, Preset, TargetPlan, find_preset


def make_workload(given: Mapping[str, Any]) -> Preset:
    """
    The preset of the options, adjusted.

    Raises:
        UsageError: Options that do not fit each other; names the one to change.
        UnknownNameError: There is no such preset.
    """
    preset = find_preset(given["preset"])
    recipe = {name: given[name] for name in ("lr", "schedule", "warmup_ratio", "accumulate") if given[name] is not None}
    target, data = _target(preset.target, given), _data(preset.data, given)
    _check_paths(preset.name, target, data)
    return replace(
        preset,
        target=target,
        data=data,
        drafter=replace(preset.drafter, num_anchors=given["anchors"] or preset.drafter.num_anchors),
        recipe=replace(preset.recipe, **recipe),
    )


def _check_paths(name: str, target: TargetPlan, data: DataPlan) -> None:
    missing = {
        "--target DIR": target.source == "folder" and not target.path,
        "--data FILE": data.source == "file" and not data.path,
    }
    options = " ".join(option for option, is_missing in missing.items() if is_missing)
    if options:
        raise UsageError(
            f"the preset {name!r} names no target or data of its own: {options}",
            next_command=f"python -m pipeline train --preset {name} {options}",
        )


def _target(plan: TargetPlan, given: Mapping[str, Any]) -> TargetPlan:
    if given["target"] is not None:
        plan = replace(plan, source="folder", path=str(given["target"].resolve()))
    if given["mask_token_id"] is not None:
        plan = replace(plan, mask_token_id=given["mask_token_id"])
    return plan


def _data(plan: DataPlan, given: Mapping[str, Any]) -> DataPlan:
    if given["data"] is not None:
        plan = replace(plan, source="file", path=str(given["data"].resolve()))
    from pipeline.data.buckets import LENGTH_MULTIPLE

    bounds = _bounds(plan, given)
    plan = replace(plan, max_length=bounds[-1], bucket_bounds=bounds)
    budget = given["token_budget"] or plan.token_budget
    longest = -(-bounds[-1] // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
    if budget < longest:
        raise UsageError(
            f"--token-budget {budget} is less than the longest sample",
            offered=str(budget),
            allowed=f"{longest} or more: --max-length, padded to a multiple of {LENGTH_MULTIPLE}",
            next_command=f"--token-budget {longest}",
        )
    return replace(plan, token_budget=budget, batches=given["batches"] or plan.batches)


def _bounds(plan: DataPlan, given: Mapping[str, Any]) -> tuple[int, ...]:
    longest = given["max_length"] or plan.max_length
    if given["buckets"] is None:
        return (*(bound for bound in plan.bucket_bounds if bound < longest), longest)
    try:
        bounds = tuple(int(item) for item in given["buckets"].split(","))
    except ValueError:
        bounds = ()
    is_rising = bool(bounds) and bounds[0] >= 1 and sorted(set(bounds)) == list(bounds)
    if not is_rising or given["max_length"] not in (None, bounds[-1]):
        raise UsageError(
            "--buckets are rising numbers, and the last is the longest sample",
            offered=given["buckets"],
            allowed=f"such as {','.join(map(str, plan.bucket_bounds))}; --max-length, if given, equals the last",
            next_command=f"--buckets {','.join(map(str, plan.bucket_bounds))}",
        )
    return bounds
