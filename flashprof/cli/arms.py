"""The two arguments of `flashprof compare`: folders with runs, or toggle expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.experiment import Experiment, SubjectSpec, apply_settings
from flashprof.contracts.study import ArmSpec, CompareRequest, MethodChoice
from flashprof.contracts.toggles import EXAMPLE, Toggle, format_toggles, parse_toggles

NO_SETTINGS = (
    *("sampling.", "output."),
    *("subject.kind", "subject.toggles", "subject.tok_per_s_pattern"),
)
"""A comparison samples nothing, names its folders itself, and takes its toggles from its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arms:
    """Both arms, which of the differing toggles only a launch can set, and which act in front of the queue."""

    base: ArmSpec
    candidate: ArmSpec
    cold_toggles: tuple[str, ...]
    upstream_toggles: tuple[str, ...]

    @property
    def is_one_cell(self) -> bool:
        """Whether both have the same toggles, however they are written."""
        return self.base.expression == self.candidate.expression


def find_runs(text: str) -> tuple[Path, ...]:
    """
    The run folders that an argument names.

    Returns:
        The folder itself, or those in it; empty for what is no folder, which may be a toggle expression.

    Raises:
        UsageError: It is a folder without runs, or a file.
    """
    path = Path(text)
    try:
        if not text or not path.exists():
            return ()
        if (path / "manifest.json").is_file():
            return (path,)
        # A name with a dot in front is a run that was cut off.
        runs = tuple(sorted(file.parent for file in path.glob("[!.]*/manifest.json")))
    except (OSError, ValueError):
        # Too long for a name, or not to be looked into.
        return ()
    if runs or _looks_like_toggles(text):
        return runs
    raise UsageError(
        "there is no finished run",
        where=text,
        allowed="a run folder (it holds manifest.json), a folder of run folders, or a toggle expression",
        next_command="flashprof run",
    )


def refuse_unfit_runs(texts: tuple[str, str], runs: tuple[Sequence[Path], Sequence[Path]]) -> None:
    """
    Make sure that two arguments of which at least one names runs can be compared.

    Raises:
        UsageError: The other is none, or a run is on both sides.
    """
    if not all(runs):
        run, other = texts if runs[0] else texts[::-1]
        raise UsageError(
            f"one side is a run, the other is none: {other!r} is no folder",
            offered=" ".join(texts),
            allowed="two folders with runs, or two toggle expressions",
            next_command=f"flashprof compare {run} ANOTHER_RUN, or flashprof compare none compile",
        )
    both = {path.resolve() for path in runs[0]} & {path.resolve() for path in runs[1]}
    if both:
        raise UsageError(
            f"the same run is on both sides: {min(both).name}",
            offered=" ".join(texts),
            allowed="different runs",
            next_command="flashprof calibrate, which compares a cell with itself",
        )


def read_arms(base: str, candidate: str, registry: Sequence[Toggle]) -> Arms:
    """
    Read both toggle expressions.

    Raises:
        UsageError: One names no toggle and no folder, or both give the same cell.
    """
    arms = parse_arms(base, candidate, registry)
    if arms.is_one_cell:
        expression = arms.base.expression
        raise UsageError(
            f"both arms are the same cell: {expression}",
            offered=f"{base} {candidate}",
            allowed="two expressions that differ",
            next_command=f"flashprof calibrate --toggles {expression}, which compares a cell with itself",
        )
    return arms


def parse_arms(base: str, candidate: str, registry: Sequence[Toggle]) -> Arms:
    """
    Read both toggle expressions, which may be of one cell.

    Raises:
        UsageError: One names no toggle and no folder.
    """
    first, second = _read_arm(base, registry), _read_arm(candidate, registry)
    differing = [toggle for toggle in registry if first.values[toggle.name] != second.values[toggle.name]]
    return Arms(
        base=first,
        candidate=second,
        cold_toggles=tuple(toggle.name for toggle in differing if not toggle.hot),
        upstream_toggles=tuple(toggle.name for toggle in differing if toggle.is_upstream),
    )


def read_settings(subject: SubjectSpec, settings: tuple[str, ...]) -> Experiment:
    """
    Apply `--set`, but not where it would do nothing.

    Raises:
        UsageError: A setting is wrong, or of a section that a comparison does not use.
    """
    experiment = apply_settings(Experiment(subject=subject), settings)
    for setting in settings:
        if setting.startswith(NO_SETTINGS):
            raise UsageError(
                f"--set {setting} does nothing in a comparison",
                offered=setting,
                allowed="windows.…, subject.preset, subject.topology, subject.seed",
                next_command="flashprof compare --help",
            )
    return experiment


def check_method(request: CompareRequest) -> None:
    """
    Make sure that the method can be had.

    Raises:
        UsageError: Hot, but a toggle is cold; or screening only, but there is nothing to screen.
    """
    cold = ", ".join(request.cold_toggles)
    if cold and request.method is MethodChoice.HOT:
        raise UsageError(
            f"cannot be switched while the subject runs: {cold}",
            offered="--method hot",
            allowed="auto, cold",
            next_command="--method cold, or leave it out",
        )
    if not request.confirm and (cold or request.method is MethodChoice.COLD):
        why = f"{cold} can only be set by a launch" if cold else "--method cold makes no hot blocks"
        raise UsageError(
            f"--screen leaves nothing to measure: {why}",
            offered="--screen",
            allowed="hot toggles with --method auto or hot",
            next_command="the same command without --screen",
        )


def _read_arm(expression: str, registry: Sequence[Toggle]) -> ArmSpec:
    if not expression.strip():
        raise UsageError(
            "an arm is empty", offered=repr(expression), allowed=EXAMPLE, next_command="flashprof compare none compile"
        )
    try:
        values = parse_toggles(expression, registry)
    except UnknownNameError as error:
        raise UsageError(
            f"{error.what}, and {expression!r} is no folder with runs",
            offered=expression,
            allowed=f"toggles: {error.allowed}; or a folder with runs",
            next_command=error.next_command,
        ) from error
    return ArmSpec(expression=format_toggles(values, registry), values=values)


def _looks_like_toggles(text: str) -> bool:
    """A folder without runs may happen to be called like a toggle; a path with a slash is meant as a path."""
    return "/" not in text and text not in (".", "..")
