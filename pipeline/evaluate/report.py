"""An evaluation as a small table, and as JSON with the versions that it depends on."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import ToolError
from pipeline.evaluate.evaluation import Evaluation, TextResult

FORMAT = "flashprof-evaluation"
VERSION = "1.0"
"""1.0  2026-11  held-out sums and ratios, every prompt's two texts, versions."""
SLOTS_A_LINE = 8
REFERENCE = "(1.0: a drafter that gets nothing right)"


def table_lines(evaluation: Evaluation) -> list[str]:
    """The table, ready to print; parts that have not been reached are left out."""
    return _held_out_lines(evaluation) + _generation_lines(evaluation)


def evaluation_to_json(evaluation: Evaluation, facts: dict[str, Any]) -> dict[str, Any]:
    """
    All of it, for programs; what is not known is null.

    Args:
        evaluation: Finished or not.
        facts: What the caller knows of the drafter, such as its checkpoint and step.
    """
    held_out = evaluation.held_out
    document = {
        "format": FORMAT,
        "version": VERSION,
        **facts,
        "device": evaluation.device,
        "dtype": evaluation.dtype,
        "effort": asdict(evaluation.effort),
        "held_out": {
            "num_batches": evaluation.num_batches,
            "accuracy": list(held_out.accuracy_K),
            "acceptance_length": held_out.acceptance_length,
            "loss": held_out.loss,
            **asdict(held_out),
        },
        "generation": {
            "acceptance_length": evaluation.acceptance_length,
            "num_prompts": len(evaluation.texts),
            "num_lossless": evaluation.num_lossless,
            "num_wrong": evaluation.num_wrong,
            "tie_limit": evaluation.tie_limit,
            "own_tok_per_s": evaluation.own_tok_per_s,
            "drafted_tok_per_s": evaluation.drafted_tok_per_s,
            "speedup": evaluation.speedup,
            "texts": [asdict(text) for text in evaluation.texts],
        },
        "versions": _versions(evaluation.device),
    }
    finite: dict[str, Any] = _finite(document)
    return finite


def write_json(path: Path, document: dict[str, Any]) -> None:
    """
    Write *document* whole or not at all.

    Raises:
        ToolError: The place cannot be written to.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise ToolError(f"cannot write the evaluation: {error.strerror or error}", where=str(path)) from error


def _held_out_lines(evaluation: Evaluation) -> list[str]:
    held_out = evaluation.held_out
    if not held_out.num_blocks:
        return []
    lines = [f"held-out text: {held_out.num_blocks:,} blocks of {evaluation.num_batches} batches"]
    accuracies = [f"{accuracy:5.3f}" for accuracy in held_out.accuracy_K]
    for start in range(0, len(accuracies), SLOTS_A_LINE):
        shown = accuracies[start : start + SLOTS_A_LINE]
        lines += [
            "  slot               " + " ".join(f"{start + i + 1:>5}" for i in range(len(shown))),
            "  accuracy           " + " ".join(shown),
        ]
    return [
        *lines,
        f"  loss               {held_out.loss:.3f}",
        f"  acceptance length  {held_out.acceptance_length:.3f} {REFERENCE}",
    ]


def _generation_lines(evaluation: Evaluation) -> list[str]:
    texts = evaluation.texts
    if not texts:
        return []
    num_tokens = sum(len(text.drafted.tokens) for text in texts)
    rates = f"{evaluation.own_tok_per_s:.1f} the target alone, {evaluation.drafted_tok_per_s:.1f} with the drafter"
    return [
        f"generation: {num_tokens:,} tokens for {len(texts)} prompts, {evaluation.dtype} on {evaluation.device}",
        f"  acceptance length  {evaluation.acceptance_length:.3f} {REFERENCE}",
        f"  lossless           {evaluation.num_lossless} of {len(texts)} prompts",
        *(_difference_line(text, evaluation.tie_limit) for text in texts if text.difference),
        f"  tok/s              {rates}: × {evaluation.speedup:.2f}",
    ]


def _difference_line(text: TextResult, tie_limit: float) -> str:
    difference = text.difference
    assert difference is not None
    kind = "a rounding tie" if difference.is_tie(tie_limit) else "NOT a rounding tie"
    return (
        f"    sample {text.sample} differs from token {difference.position} on, {kind}: the target's two best logits "
        f"are {difference.top2_gap:.3g} apart there, the two tokens said {difference.said_gap:.3g}"
    )


def _versions(device_type: str) -> dict[str, str]:
    import torch

    packages = {name: version(name) for name in ("torch", "transformers", "datasets")}
    # A machine with a GPU may have evaluated on its CPU.
    device = torch.cuda.get_device_name() if device_type == "cuda" else platform.processor() or platform.machine()
    return {"python": platform.python_version(), **packages, "device": device}


def _finite(value: Any) -> Any:
    """NaN and infinity are no JSON."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
