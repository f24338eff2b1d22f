"""Where head is slower than a stored baseline: its launches beside the folders that are left of the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from flashprof.app.course import Course
from flashprof.app.explain import Explainer, explain_id, is_explained
from flashprof.app.gate_baseline import StoredBaseline, StoredLaunch
from flashprof.app.gate_study import is_shown_slower, localised_result
from flashprof.app.history_runs import read_run
from flashprof.app.launches import StudyLaunches
from flashprof.app.localise import SAMPLES, localise, pick_runs
from flashprof.contracts.comparison import Arm
from flashprof.contracts.errors import FlashProfError
from flashprof.contracts.gate import GateRequest, GateResult
from flashprof.launch.worktrees import SHORT
from flashprof.store.journal import EXPLAINED

UNKNOWN = "where the time goes is not known"


def localise_stored(
    request: GateRequest, baseline: StoredBaseline, launches: StudyLaunches, course: Course, result: GateResult
) -> GateResult:
    """
    Take the change apart, once head is shown to be too slow.

    Args:
        request: Of the gate.
        baseline: What head is held against.
        launches: Starts head once more, with samplers.
        course: What was measured of head.
        result: What was found.

    Returns:
        The result with a localisation; or with a note that says why there is none, and what would give one.
    """
    if not is_shown_slower(result):
        return result
    bases = [folder for launch in baseline.launches if (folder := _folder_of(launch)) is not None]
    if not bases:
        return localised_result(result, None, (f"{UNKNOWN}: {_gone(baseline, 0)}",))
    heads = [course.folder.launches / launch.run_id for launch in course.state.cold_launches if not launch.disturbances]
    notes = [] if len(bases) == len(baseline.launches) else [_gone(baseline, len(bases))]
    if request.explain and any(any((folder / SAMPLES).glob("*")) for folder in bases):
        # Frames are named by what both sides have: without samples of the baseline, those of head tell nothing.
        notes += _explain_head(course.folder.path / EXPLAINED, launches, result.head, heads)
    try:
        found = localise(
            [*bases, *heads], pick_runs(bases, heads), names=(result.base, result.head), seed=request.subject.seed
        )
    except FlashProfError as error:
        # Folders of an older FlashProf, or damaged ones: the verdict stands without them.
        return localised_result(result, None, (*notes, f"{UNKNOWN}: {error.what}; {_remedy(baseline)}"))
    return localised_result(result, found.localisation if found else None, notes)


def _folder_of(launch: StoredLaunch) -> Path | None:
    """None where it is gone, or another run lies there by now."""
    for place in launch.places:
        with suppress(FlashProfError, OSError):
            if read_run(place).started == launch.started:
                return place
    return None


def _explain_head(folder: Path, launches: StudyLaunches, name: str, heads: list[Path]) -> Sequence[str]:
    """Launch head with samplers, and add its folder to *heads*; returns why that could not be."""
    explainer = Explainer(folder=folder, windows=launches.request.windows, progress=launches.progress)
    arm = Arm.CANDIDATE
    why = explainer.explain(arm, arm, name, lambda: launches.start(arm))
    explained = folder / explain_id(arm, arm)
    if is_explained(explained):
        heads.append(explained)
    return [why] if why else []


def _gone(baseline: StoredBaseline, num_left: int) -> str:
    num = len(baseline.launches)
    what = f"{num - num_left} of {num} run folders of the baseline are gone"
    return f"{what}; {_remedy(baseline)}" if num_left == 0 else f"{what}, the others say where the time goes"


def _remedy(baseline: StoredBaseline) -> str:
    return f"flashprof gate --base-ref {baseline.commit[:SHORT] or 'main'} measures both, and says where"
