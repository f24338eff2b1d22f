"""The subject's side of an experiment: its command line, its toggles, its processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashprof.contracts.errors import ToolError, UsageError
from flashprof.contracts.experiment import SubjectKind, SubjectSpec
from flashprof.contracts.ports import SampleTarget
from flashprof.contracts.toggles import Toggle, toggles_from_json

if TYPE_CHECKING:
    from flashprof.app.watch import Watch

LIST_TIMEOUT_S = 30.0
# -P: the subject's modules come from where it is installed or PYTHONPATH says, not from whatever folder this is run in.
PIPELINE = (sys.executable, "-P", "-m", "pipeline")


def read_toggles(env: Mapping[str, str], cwd: Path) -> tuple[Toggle, ...]:
    """
    The pipeline's registry, asked of the pipeline itself: it may be of another commit.

    Raises:
        ToolError: The pipeline cannot be started or gives no list.
    """
    command = (*PIPELINE, "toggles", "--json")
    try:
        done = subprocess.run(
            command, env=dict(env), cwd=cwd, capture_output=True, text=True, timeout=LIST_TIMEOUT_S, check=True
        )
        return toggles_from_json(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise ToolError(
            "the pipeline does not list its toggles",
            where=" ".join(command),
            offered=said[-1] if said else None,
            next_command="make install, then python -m pipeline toggles",
        ) from error


def pipeline_command(spec: SubjectSpec) -> tuple[str, ...]:
    """The command line of our own pipeline for this cell; it runs until it is stopped."""
    return (
        *PIPELINE,
        "train",
        *("--preset", spec.preset),
        *("--topology", spec.topology),
        *("--toggles", spec.toggles),
        *("--seed", str(spec.seed)),
        *("--steps", "0"),
        *spec.train_options,
    )


def launch_command(spec: SubjectSpec) -> tuple[str, ...]:
    """The command line of a launch: a foreign subject's own, which `DeclaredLauncher` fills, or our pipeline's."""
    return spec.command if spec.kind is SubjectKind.FOREIGN else pipeline_command(spec)


def refusal(said: Sequence[str]) -> UsageError:
    """
    The usage error that our own pipeline ended with, as an error of ours.

    Args:
        said: The last lines of its output: a `FlashProfError`'s lines, or Click's.
    """
    facts = dict(line.strip().partition(": ")[::2] for line in said if ": " in line)
    what = facts.get("error") or facts.get("Error") or (said[-1] if said else "it printed nothing")
    return UsageError(
        f"the pipeline refuses: {what}",
        offered=facts.get("got"),
        allowed=facts.get("allowed"),
        next_command=facts.get("try", "flashprof run --help"),
    )


def find_targets(watch: Watch, pid: int) -> list[SampleTarget]:
    """The processes to sample: those that report events, else the Python ones from *pid* down, else all of them."""
    reporting = [
        SampleTarget(role=log.header.role, rank=log.header.rank, pid=log.header.pid) for log in watch.logs if log.steps
    ]
    return reporting or _descendants(pid)


def _descendants(pid: int) -> list[SampleTarget]:
    import psutil

    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
    chosen = [process for process in family if _is_python(process)] or family
    return [SampleTarget(role="process", rank=rank, pid=process.pid) for rank, process in enumerate(chosen)]


def _is_python(process: object) -> bool:
    import psutil

    assert isinstance(process, psutil.Process)
    try:
        return "python" in Path(process.exe()).name
    except psutil.Error:
        return False
