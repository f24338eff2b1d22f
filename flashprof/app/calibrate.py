"""
`flashprof calibrate` without its command line: launches that compare a cell with itself, and the page about them.

    for each launch: start → hot blocks of two equal arms until its time is up → stop; then folders → calibration

The data are run folders; everything else is made from all of them, again by every call.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from flashprof.app.calibration_data import Recorded, analyse, launch_name, read_launches
from flashprof.app.cells import known_before_launch, survey
from flashprof.app.hot import HotPlan, hot_blocks
from flashprof.app.measure import Schedule
from flashprof.app.progress import Progress
from flashprof.app.session import Ports, Session
from flashprof.contracts.calibration import Calibration, matched_facts
from flashprof.contracts.cell import Cell
from flashprof.contracts.comparison import Arm, Block
from flashprof.contracts.errors import SubjectError, UsageError
from flashprof.contracts.experiment import Experiment, Output, Sampling, SubjectSpec, WindowPlan
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import RunSummary
from flashprof.contracts.toggles import Toggle, ToggleValues, parse_toggles
from flashprof.decide.orders import block_order
from flashprof.report.calibration_page import PICTURE, render_page
from flashprof.report.calibration_picture import render_picture
from flashprof.stats.compare import compare_blocks
from flashprof.stats.power import Judge
from flashprof.store.calibration_file import PUT_ASIDE, write_calibration

MIN_BLOCKS = 4
"""Of a launch, however little time it has."""
MIN_LAUNCHES = 2
"""For a page after Ctrl-C: one launch cannot say how much launches differ."""
MAX_FAILURES = 2
"""In a row; what fails twice fails again."""
PAGE = "calibration.md"
RUN_PREFIX = "launch-"


class Runner(Protocol):
    """Measures one cell and leaves its run folder: `app.run.run`."""

    def __call__(self, experiment: Experiment, ports: Ports, progress: Progress, *, schedule: Schedule) -> RunSummary:
        """One launch, measured by *schedule*."""
        ...


@dataclass(frozen=True, kw_only=True)
class CalibrateRequest:
    """What is to be calibrated, and for how long."""

    subject: SubjectSpec
    registry: Sequence[Toggle]
    """The subject's toggles."""
    windows: WindowPlan = field(default_factory=WindowPlan)
    hot: HotPlan = field(default_factory=HotPlan)
    minutes: float = 10.0
    """Life of all new launches together."""
    num_launches: int = 6
    """New ones; 0 makes the page again."""
    reports: Path = Path("reports")
    fresh: bool = False
    """Put aside what earlier calls have measured."""


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """How a call of calibrate ended."""

    calibration: Calibration
    is_interrupted: bool
    """By the user; what was measured until then is in the calibration."""


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a calibration lives, and for which cell."""

    cell: Cell
    folder: Path

    @property
    def launches(self) -> Path:
        return self.folder / "launches"

    @property
    def numbers(self) -> list[int]:
        """Of the launches that are there already, cut-off ones too."""
        names = (launch_name(path) for path in self.launches.glob("*"))
        return [int(name.removeprefix(RUN_PREFIX)) for name in names if re.fullmatch(f"{RUN_PREFIX}[0-9]+", name)]


def plan(request: CalibrateRequest, env: Mapping[str, str], cwd: Path) -> list[str]:
    """What would be launched and written, for `--dry-run`; nothing is."""
    place, subject = _find_place(request, env, cwd), request.subject
    num_old = 0 if request.fresh else len(place.numbers)
    lines = [
        f"{request.num_launches} launches of {subject.preset} {subject.topology} with {subject.toggles} in both arms",
        f"each {_launch_s(request):.0f} s from launch to stop: start-up, warm-up, then blocks ABBA or BAAB by a coin",
        f"about {request.minutes:.3g} min in all, and up to a minute to analyse them",
        f"results: {place.folder / PAGE}",
    ]
    if num_old:
        lines.insert(2, f"{num_old} launches of earlier calls are used too (--fresh puts them aside)")
    return lines


def calibrate(
    request: CalibrateRequest, ports: Ports, progress: Progress, *, runner: Runner, judge: Judge = compare_blocks
) -> Calibrated:
    """
    Launch, compare the cell with itself, and write the page.

    Returns:
        Also after Ctrl-C, if two launches hold blocks by then.

    Raises:
        SubjectError: Too few blocks were measured to say anything.
        UsageError: The cell cannot be measured, or another calibrate is at it.
        KeyboardInterrupt: Stopped by the user before two launches held blocks.
    """
    from filelock import FileLock, Timeout

    place = _find_place(request, ports.env, ports.cwd)
    request.reports.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(request.reports / f".{place.folder.name}.lock", timeout=0):
            if request.fresh:
                _put_aside(place.folder)
            place.launches.mkdir(parents=True, exist_ok=True)
            outcome = _launch_all(request, place, ports, progress, runner)
            return _conclude(request, place, outcome, progress, judge)
    except Timeout as error:
        raise UsageError(
            "another flashprof calibrate is measuring this cell",
            where=str(place.folder),
            next_command="wait for it, or --reports DIRECTORY",
        ) from error


def _launch_all(request: CalibrateRequest, place: _Place, ports: Ports, progress: Progress, runner: Runner) -> Outcome:
    """How the last launch ended."""
    outcome, num_failures = Outcome.COMPLETED, 0
    first = 1 + max(place.numbers, default=0)
    for number in range(first, first + request.num_launches):
        progress.note(f"launch {number - first + 1} of {request.num_launches}")
        try:
            summary = runner(
                _experiment(request, place, number), ports, progress, schedule=_schedule(request, ports, number)
            )
        except KeyboardInterrupt:
            return Outcome.INTERRUPTED
        outcome = summary.outcome
        if outcome is Outcome.INTERRUPTED:
            break
        num_failures = 0 if outcome.is_measurement else num_failures + 1
        if num_failures:
            progress.note(f"launch {number} does not count: {outcome}: {summary.reason}")
        if num_failures == MAX_FAILURES:
            break
    return outcome


def _conclude(
    request: CalibrateRequest, place: _Place, outcome: Outcome, progress: Progress, judge: Judge
) -> Calibrated:
    is_interrupted = outcome is Outcome.INTERRUPTED
    progress.stage("reading what was measured")
    recorded = read_launches(place.launches)
    if is_interrupted and len(recorded.launches) < MIN_LAUNCHES:
        raise KeyboardInterrupt
    _refuse_too_little(recorded, outcome, place)
    progress.stage("rehearsing comparisons on it")
    calibration = analyse(
        recorded,
        judge,
        facts=matched_facts(place.cell),
        toggles=request.subject.toggles,
        date=time.strftime("%Y-%m-%dT%H:%M:%S"),
    )
    names = (("page", PAGE), ("picture", PICTURE), ("data", "calibration.json"), ("launches", "launches"))
    paths = tuple((name, str(place.folder / file)) for name, file in names)
    calibration = replace(calibration, paths=paths)
    _write(place.folder / PAGE, render_page(calibration))
    _write(place.folder / PICTURE, render_picture(calibration))
    write_calibration(place.folder, calibration)
    return Calibrated(calibration=calibration, is_interrupted=is_interrupted)


def _refuse_too_little(recorded: Recorded, outcome: Outcome, place: _Place) -> None:
    if recorded.num_blocks >= MIN_BLOCKS:
        return
    raise SubjectError(
        f"there is too little to calibrate from: {recorded.num_blocks} blocks count",
        outcome=outcome,
        where=f"{place.launches}; {'; '.join(recorded.notes) or 'no launches'}",
        next_command="flashprof run with the same options shows what is wrong; --minutes N measures longer",
    )


def _find_place(request: CalibrateRequest, env: Mapping[str, str], cwd: Path) -> _Place:
    experiment = Experiment(subject=request.subject, output=Output(reports=request.reports))
    cell = known_before_launch(experiment, survey(experiment, env, cwd), request.registry)
    return _Place(cell=cell, folder=request.reports / f"calibration-{cell.hash}")


def _experiment(request: CalibrateRequest, place: _Place, number: int) -> Experiment:
    return Experiment(
        subject=request.subject,
        windows=request.windows,
        sampling=Sampling(stacks="off", resources="off"),
        output=Output(reports=place.launches, run_id=f"{RUN_PREFIX}{number:02d}"),
    )


def _schedule(request: CalibrateRequest, ports: Ports, number: int) -> Schedule:
    """Hot blocks of equal arms until the launch has lived as long as it may."""
    values = _hot_values(request)
    limit_ns = round(_launch_s(request) * 1e9)

    def run(session: Session) -> None:
        num_blocks = 0

        def goes_on(block: Block) -> bool:
            nonlocal num_blocks
            num_blocks += 1
            # At 1, 2, 4, 8, …: a line a block would drown a log.
            if num_blocks.bit_count() == 1:
                session.progress.stage(
                    f"equal arms: {num_blocks} blocks, the last {100 * block.difference:+.2f} % apart"
                )
            return num_blocks < MIN_BLOCKS or ports.clock.monotonic_ns() < session.launched_ns + limit_ns

        hot_blocks(
            request.hot,
            {Arm.BASE: values, Arm.CANDIDATE: values},
            # The launch's number in place of a seed: each launch has coins of its own.
            lambda block: block_order(number, block),
            first_block=1,
            on_block=goes_on,
        )(session)

    return run


def _hot_values(request: CalibrateRequest) -> ToggleValues:
    """What is sent at a switch: every hot toggle, as it is already."""
    values = parse_toggles(request.subject.toggles, request.registry)
    return {toggle.name: values[toggle.name] for toggle in request.registry if toggle.hot}


def _launch_s(request: CalibrateRequest) -> float:
    return 60 * request.minutes / max(1, request.num_launches)


def _put_aside(folder: Path) -> None:
    if folder.exists():
        number = 1
        while (aside := folder.with_name(f"{folder.name}{PUT_ASIDE}{number}")).exists():
            number += 1
        folder.rename(aside)


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
