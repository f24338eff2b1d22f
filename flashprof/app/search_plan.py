"""From what the user asks to what a search knows before it starts: question, space, costs, noise, programs."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flashprof.app.cells import known_before_launch, survey, toggle_facts
from flashprof.app.commits import commit_words, path_weights
from flashprof.app.earlier import Earlier, find_earlier
from flashprof.app.foreign import DeclaredLauncher
from flashprof.app.foreign_needs import has_cuda
from flashprof.app.search_subjects import CommitSubjects, Subjects, ToggleSubjects
from flashprof.app.session import Ports
from flashprof.app.subject import read_toggles
from flashprof.contracts.calibration import Calibration
from flashprof.contracts.cell import Cell
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import Experiment, Output
from flashprof.contracts.search import SearchKind
from flashprof.contracts.search_request import BisectRequest
from flashprof.contracts.toggles import Toggle
from flashprof.decide.commit_space import CommitInfo, CommitSpace
from flashprof.decide.search_state import SearchCosts, SearchPlan
from flashprof.decide.spaces import Space
from flashprof.decide.toggle_space import ToggleSpace
from flashprof.launch.environments import Environments
from flashprof.launch.git import Range, ask_git, resolve_range, tree_state
from flashprof.launch.worktrees import Worktrees
from flashprof.stats.posterior import NoisePrior
from flashprof.store.calibration_file import find_calibration
from flashprof.store.search_folder import SearchQuestion, search_id

VISIT_STEPS = 24
"""Twelve that count, and about as many that settle or pass while FlashProf looks."""
BUILD_S, SETUP_S = 3.0, 120.0
"""A checkout with a compile check; an environment that is made anew."""
WORKTREES = "worktrees"
"""In a search's folder."""
HOT_SWITCH_SHARE = 0.5
"""Of a visit: what a change of cell costs more than staying."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """All that is known before anything starts."""

    question: SearchQuestion
    plan: SearchPlan
    subjects: Subjects
    cell: Cell
    """What all cells have in common."""
    notes: tuple[str, ...] = ()
    costs_source: str = ""
    noise_source: str = ""


def prepare(request: BisectRequest, ports: Ports) -> Known:
    """
    Look at the machine, the subject and the history; starts nothing but quick questions.

    Raises:
        UsageError: Good and bad are one cell here, or the range of commits cannot be searched.
    """
    experiment = Experiment(
        subject=request.subject, windows=request.windows, output=Output(reports=request.reports, run_id="bisect")
    )
    shared = known_before_launch(experiment, survey(experiment, ports.env, ports.cwd)).without("toggles")
    if request.kind is SearchKind.COMMITS:
        return _prepare_commits(request, ports, shared)
    return _prepare_toggles(request, ports, shared)


def _prepare_toggles(request: BisectRequest, ports: Ports, shared: Cell) -> Known:
    good, bad = request.good, request.bad
    assert good is not None, "a search among toggles has ends"
    assert bad is not None, "a search among toggles has ends"
    registry = _registry(ports)
    unmet = _unmet(registry, request.under_test, ports)
    names = tuple(toggle.name for toggle in registry if toggle.name in request.under_test and toggle.name not in unmet)
    if not names:
        raise UsageError(
            "good and bad are one cell on this machine",
            offered=f"--good {good.expression} --bad {bad.expression}",
            allowed="; ".join(f"{name} {why}" for name, why in unmet.items()) or "ends that differ",
            next_command="flashprof doctor",
        )
    # What the machine cannot honour is off in every cell.
    off = {toggle.name: toggle.default for toggle in registry if toggle.name in unmet}
    space = ToggleSpace(
        names=names,
        good_values={**good.values, **off},
        bad_values={**bad.values, **off},
        hot=frozenset(name for name in names if name not in request.cold_toggles),
        requires={toggle.name: toggle.requires for toggle in registry if toggle.requires},
    )
    question = SearchQuestion(
        kind=SearchKind.TOGGLES,
        good={**shared.facts, **toggle_facts(space.good_values)},
        bad={**shared.facts, **toggle_facts(space.bad_values)},
        seed=request.subject.seed,
        settings=_settings(request),
    )
    notes = tuple(f"{name} is left out: it {why}" for name, why in unmet.items())
    subjects = ToggleSubjects(subject=request.subject, space=space, registry=registry)
    return replace(_known(request, question, space, subjects, shared), notes=notes)


def _prepare_commits(request: BisectRequest, ports: Ports, shared: Cell) -> Known:
    commits = resolve_range(request.repo, request.commits)
    weights = path_weights(commits.commits)
    space = CommitSpace(
        commits=tuple(
            CommitInfo(
                id=each.id,
                parents=each.parents,
                weight=weights[each.id],
                subject=each.subject,
                words=commit_words(each),
            )
            for each in commits.commits
        ),
        good=commits.good,
        bad=commits.bad,
        revertible=frozenset(each.id for each in commits.commits),
    )
    common = shared.without("source")
    question = SearchQuestion(
        kind=SearchKind.COMMITS,
        good={**common.facts, "source.commit": commits.good},
        bad={**common.facts, "source.commit": commits.bad},
        seed=request.subject.seed,
        settings={
            **_settings(request),
            "setup": request.setup,
            "command": shlex.join(request.command),
            "toggles": request.subject.toggles,
        },
    )
    subjects = _commit_subjects(request, ports, commits, request.reports / search_id(question))
    known = _known(request, question, space, subjects, common)
    return replace(known, notes=tree_state(commits.repo).notes)


def _commit_subjects(request: BisectRequest, ports: Ports, commits: Range, folder: Path) -> CommitSubjects:
    declared = ports.launcher.subject if isinstance(ports.launcher, DeclaredLauncher) else None
    return CommitSubjects(
        subject=request.subject,
        commits=commits,
        good_label=ask_git(commits.repo, "log", "-1", "--format=%h %s", "--abbrev=12", commits.good).decode().strip(),
        command=request.command if declared is None else declared.command,
        declared=declared,
        worktrees=Worktrees(commits.repo, folder / WORKTREES),
        environments=Environments(folder / "environments", commits.repo, ports.env, setup=shlex.split(request.setup)),
        cwd=ports.cwd,
        env=ports.env,
    )


def _known(request: BisectRequest, question: SearchQuestion, space: Space, subjects: Subjects, cell: Cell) -> Known:
    good = Cell(question.good)
    earlier = find_earlier(request.reports, good)
    calibration = find_calibration(request.reports, good)
    is_hot = bool(subjects.switched(space.good))
    return Known(
        question=question,
        plan=SearchPlan(
            space=space,
            rule=request.rule,
            costs=_costs(request, earlier, is_hot=is_hot),
            noise=_noise(calibration),
            seed=request.subject.seed,
            is_hot=is_hot,
            confirm=request.confirm,
            num_windows_cold=request.windows.num_measure,
        ),
        subjects=subjects,
        cell=cell,
        costs_source="" if earlier is None else f"{earlier.num_runs} earlier runs of this cell",
        noise_source="" if calibration is None else f"flashprof calibrate, {calibration.date}",
    )


def _noise(calibration: Calibration | None) -> NoisePrior:
    noise = NoisePrior()
    if calibration is None:
        return noise
    launch = calibration.noise.launch
    noise = replace(noise, window_sd=calibration.noise.window.sd)
    return noise if launch is None else replace(noise, launch_sd=launch.sd)


def _costs(request: BisectRequest, earlier: Earlier | None, *, is_hot: bool) -> SearchCosts:
    costs = SearchCosts()
    if earlier is not None and earlier.startup_s is not None and earlier.warmup_s is not None:
        costs = replace(costs, start_s=earlier.startup_s + earlier.warmup_s)
    if request.kind is SearchKind.COMMITS:
        costs = replace(costs, build_s=SETUP_S if request.setup else BUILD_S)
    if not is_hot:
        return replace(costs, window_s=request.windows.measure_s, switch_s=0.0)
    visit_s = costs.window_s if earlier is None or earlier.step_s is None else VISIT_STEPS * earlier.step_s
    return replace(costs, window_s=visit_s, switch_s=HOT_SWITCH_SHARE * visit_s)


def _settings(request: BisectRequest) -> Mapping[str, str]:
    """What makes readings alike; how long to wait for what does not."""
    sites = " ".join(",".join(map(str, numbers)) for numbers in request.gpu_sets)
    windows = request.windows
    return {"num_measure": str(windows.num_measure), "measure_s": f"{windows.measure_s:g}", "gpu_sets": sites}


def _registry(ports: Ports) -> tuple[Toggle, ...]:
    launcher = ports.launcher
    if isinstance(launcher, DeclaredLauncher):
        return launcher.subject.registry()
    return read_toggles(ports.env, ports.cwd)


def _unmet(registry: Sequence[Toggle], under_test: Sequence[str], ports: Ports) -> dict[str, str]:
    """Toggles that this machine cannot honour, each with the reason: they would be off in both ends."""
    if isinstance(ports.launcher, DeclaredLauncher):
        # What a declaration asks for and cannot have was refused by the command line.
        return {}
    cuda = has_cuda(ports.env)
    compiler = cuda or any(shutil.which(name, path=ports.env.get("PATH")) for name in ("g++", "clang++"))
    missing = {
        "cuda": None if cuda else "needs a CUDA device",
        "compiler": None if compiler else "needs a C++ compiler (apt-get install g++)",
    }
    reasons = {
        toggle.name: "; ".join(why for need in toggle.needs if (why := missing.get(need)))
        for toggle in registry
        if toggle.name in under_test
    }
    return {name: why for name, why in reasons.items() if why}
