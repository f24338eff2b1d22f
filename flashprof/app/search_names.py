"""Which cell of a search a user's words mean."""

from __future__ import annotations

from flashprof.app.search_plan import Known
from flashprof.app.search_subjects import CommitSubjects, ToggleSubjects
from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.toggles import parse_toggles
from flashprof.launch.git import call_git


def find_cell(known: Known, text: str) -> str:
    """
    The id of a cell that may be left out.

    Args:
        known: Of the search.
        text: An id, a toggle expression, or a commit as git names it.

    Raises:
        UnknownNameError: The search has no such cell; offers the nearest.
        UsageError: It is one of the ends.
    """
    space, subjects = known.plan.space, known.subjects
    cells = space.candidates(())
    found = next((cell for cell in cells if text in (cell, subjects.label(cell))), None)
    if found is None and isinstance(subjects, CommitSubjects):
        found = _commit(subjects, text)
    if found is None and isinstance(subjects, ToggleSubjects):
        found = _toggles(subjects, text)
    if found is None or found not in cells:
        raise UnknownNameError("cell", text, map(subjects.label, cells), next_command="flashprof bisect status")
    if found in (space.good, space.bad):
        raise UsageError(
            "an end of a search cannot be left out",
            offered=text,
            allowed="a cell between good and bad",
            next_command="flashprof bisect with other ends",
        )
    return found


def _commit(subjects: CommitSubjects, text: str) -> str | None:
    done = call_git(subjects.commits.repo, "rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
    return done.stdout.decode().strip() if done.returncode == 0 else None


def _toggles(subjects: ToggleSubjects, text: str) -> str | None:
    try:
        values = parse_toggles(text, subjects.registry)
    except UsageError:
        return None
    space = subjects.space
    subset = {name for name in space.names if values[name] == space.bad_values[name]}
    cell = space.cell(subset)
    return cell if space.values(cell) == values else None
