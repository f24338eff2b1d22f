"""Cases of the regression suite, the histories that they are planted in, and how answers are judged."""

from __future__ import annotations

import ast
import json
import random
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.regressions.__main__ import main
from benchmarks.regressions.case import Case, Edit, PlantedCommit, Role, case_names, load_case
from benchmarks.regressions.check import compare, line
from benchmarks.regressions.history import Commit, make_history, plan_history
from benchmarks.regressions.launch import Rate, Slice, read_rate
from benchmarks.regressions.neutral import FILLERS, rename, typing
from benchmarks.regressions.suite import Question, Settings, judge, save_answer, saved_answer
from benchmarks.regressions.table import header, row, to_measures
from benchmarks.regressions.trees import bad_files, source_files
from flashprof.contracts.comparison import Verdict
from flashprof.contracts.events import Header, Span, SpanKind, Step, encode, encode_header
from flashprof.contracts.search import SearchKind

LOSS = PlantedCommit(
    subject="Slower",
    role=Role.LOSS,
    edits=(Edit(file="pipeline/work.py", old="return total\n", new="return +total\n"),),
)
CASE = Case(
    name="fake",
    title="A fake",
    scenario="own",
    kind=SearchKind.COMMITS,
    verdict=Verdict.REGRESSION,
    toggles="none",
    good="",
    bad="",
    workload="tiny",
    slow_down_pct=(8, 45),
    phases=("drafter mask",),
    frames=("build",),
    culprits=(),
    commits=(LOSS,),
)
WORK = """
def add(values):
    total = 0
    for value in values:
        total = total + value
    return total


def scale(values, by):
    known = {}
    scaled = [value * by for value in values]
    text = f"{by} of {len(scaled)}"
    try:
        known[by] = scaled
    except KeyError as error:
        text = str(error)
    return dict(known=known, text=text)
"""
SOURCE = {
    "pipeline/work.py": WORK,
    "pipeline/topology.py": "PARTS = 2\n",
    "pipeline/toggles.py": "NAMES = ()\n",
    "pipeline/cli/main.py": "def main():\n    return 0\n",
    "pyproject.toml": "[project]\n",
}


def trees(commits: list[Commit]) -> list[dict[str, str]]:
    """All files behind each commit, as git would have them."""
    found: list[dict[str, str]] = []
    for commit in commits:
        files = dict(found[commit.parents[0]]) if commit.parents else {}
        found.append(files | commit.change.files)
    return found


def starts(files: dict[str, str]) -> bool:
    try:
        for name, text in files.items():
            if name.endswith(".py"):
                ast.parse(text)
    except SyntaxError:
        return False
    return "not_there" not in files["pipeline/toggles.py"]


@pytest.mark.parametrize("name", case_names())
def test_each_case_fits_todays_source_and_parses(name: str) -> None:
    source = source_files()
    case = load_case(name)
    files = bad_files(case, source)
    changed = {file: text for file, text in files.items() if text != source[file]}

    assert starts({"pipeline/toggles.py": ""} | changed)
    assert bool(changed) == bool(case.before or case.commits)
    assert case.is_control == (not case.phases)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('title="x"\nscenario=1\nkind="commits"\ntoggles="none"\n', "a regression has a culprit"),
        ('title="x"\nscenario=1\nkind="toggles"\ngood="all"\nculprits=[["swa"]]\n', "good and bad"),
        (
            'title="x"\nscenario=1\nkind="commits"\ntoggles="none"\nworkload="huge"\nverdict="no regression"\n',
            "workload",
        ),
        ('title="x"\nscenario=1\nkind="commits"\ntoggles="none"\nculprit="a"\n', "culprit"),
    ],
)
def test_a_case_that_says_something_wrong_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "wrong.toml").write_text(text, encoding="utf-8")

    with pytest.raises(ValueError, match=message):
        load_case("wrong", tmp_path)


@given(seed=st.integers(0, 10_000), num_commits=st.integers(8, 80))
@settings(max_examples=20, deadline=None)
def test_a_history_has_the_loss_once_and_says_what_does_not_start(seed: int, num_commits: int) -> None:
    commits = plan_history(CASE, SOURCE, num_commits=num_commits, seed=seed)
    found = trees(commits)

    assert num_commits + 1 == len(commits)
    assert [commit.is_broken for commit in commits] == [not starts(files) for files in found]
    (loss,) = [place for place, commit in enumerate(commits) if commit.role is Role.LOSS]
    assert not commits[loss].is_broken
    assert not commits[commits[loss].parents[0]].is_broken
    assert not commits[-1].is_broken
    assert found[loss]["pipeline/work.py"].count("return +total") == 1
    assert "return +total" not in found[commits[loss].parents[0]]["pipeline/work.py"]
    assert "return +total" in found[-1]["pipeline/work.py"]


def test_long_histories_have_merges_and_stretches_that_do_not_start() -> None:
    commits = plan_history(CASE, SOURCE, num_commits=128, seed=3)

    assert sum(len(commit.parents) == 2 for commit in commits) >= 4
    assert 1 <= sum(commit.is_broken for commit in commits) <= 32


def test_a_control_of_documents_alone_leaves_the_pipeline_alone() -> None:
    case = replace(CASE, verdict=Verdict.NO_REGRESSION, commits=(), fillers=("docs", "test", "ci"))
    commits = plan_history(case, SOURCE, num_commits=40, seed=1)

    assert not any(name.startswith("pipeline/") for commit in commits[1:] for name in commit.change.files)


def git(repo: Path, *words: str) -> str:
    done = subprocess.run(("git", "-C", str(repo), *words), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_repository_is_what_was_planned_and_its_ids_come_again(tmp_path: Path) -> None:
    planted = make_history(CASE, tmp_path / "a", num_commits=48, seed=5, source=SOURCE)
    again = make_history(CASE, tmp_path / "b", num_commits=48, seed=5, source=SOURCE)
    other = make_history(CASE, tmp_path / "c", num_commits=48, seed=6, source=SOURCE)
    found = trees(plan_history(CASE, SOURCE, num_commits=48, seed=5))

    assert (planted.good, planted.bad, planted.losses) == (again.good, again.bad, again.losses)
    assert planted.bad != other.bad
    assert "48" == git(planted.repo, "rev-list", "--count", f"{planted.good}..{planted.bad}")
    assert "main" == git(planted.repo, "branch", "--format=%(refname:short)")
    assert "" == git(planted.repo, "status", "--porcelain")
    assert found[-1]["pipeline/work.py"] == (planted.repo / "pipeline/work.py").read_text(encoding="utf-8")
    diff = git(planted.repo, "diff-tree", "-p", f"{planted.losses[0]}^", planted.losses[0])
    assert "+    return +total" in diff


@given(seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_neutral_commits_do_not_change_what_the_code_does(seed: int) -> None:
    rng = random.Random(seed)
    files = dict(SOURCE)
    for number in range(6):
        change = FILLERS[rng.choice(sorted(FILLERS))](rng, files, number)
        files.update(change.files if change else {})
    space: dict[str, Any] = {}
    exec(files["pipeline/work.py"], space)

    assert 6 == space["add"]([1, 2, 3])
    assert {"known": {2: [2, 4]}, "text": "2 of 2"} == space["scale"]([1, 2], 2)


def test_names_that_more_than_a_name_binds_are_not_renamed() -> None:
    drawn = [rename(random.Random(seed), {"pipeline/work.py": WORK}, 1) for seed in range(200)]
    words = {change.subject.split(" instead of ")[1] for change in drawn if change}

    assert {"total in add", "value in add", "known in scale", "text in scale", "value in scale"} == words


def test_only_names_that_are_set_once_get_a_type() -> None:
    drawn = [typing(random.Random(seed), {"pipeline/work.py": WORK}, 1) for seed in range(200)]

    assert {"known", "scaled"} == {change.subject.split(" for ")[1].split(" in ")[0] for change in drawn if change}


def found(verdict: str, culprits: list[list[str]], *beliefs: list[list[str]], gains: Any = ()) -> str:
    document = {
        "verdict": verdict,
        "culprits": culprits,
        "gains": list(gains),
        "beliefs": [{"causes": causes} for causes in beliefs],
        "num_readings": 40,
        "num_launches": 7,
        "num_builds": 3,
        "reason": "shown",
    }
    return json.dumps(document)


QUESTION = Question(arguments=(), env={}, expected=(("b" * 40,),))


def test_the_right_culprit_counts_as_named_and_as_first() -> None:
    answer = judge(CASE, QUESTION, 1, found("regression", [["b" * 40]], [["b" * 40]], []), 2.0)

    assert answer.is_right
    assert 1 == answer.rank
    assert 0 == answer.num_false
    assert "ok" in row(answer)
    assert "bbbbbbb " in row(answer)


def test_a_gain_beside_the_culprit_does_not_spoil_its_rank() -> None:
    printed = found("regression", [["b" * 40]], [], [["a" * 40], ["b" * 40]], gains=[["a" * 40]])

    assert 2 == judge(CASE, QUESTION, 1, printed, 2.0).rank


def test_a_wrong_culprit_is_false_only_where_it_is_called_proved() -> None:
    wrong = judge(CASE, QUESTION, 1, found("regression", [["c" * 40]], [["c" * 40]]), 2.0)
    open_ = judge(CASE, QUESTION, 3, found("inconclusive", [["c" * 40]], [["c" * 40]]), 2.0)

    assert (1, None, False) == (wrong.num_false, wrong.rank, wrong.is_right)
    assert (0, None, False) == (open_.num_false, open_.rank, open_.is_right)


def test_a_search_that_failed_gives_no_verdict() -> None:
    answer = judge(CASE, QUESTION, 4, "", 0.1)

    assert not answer.is_right
    assert "failed (4)" in row(answer)


def test_measures_hold_positives_and_controls_apart() -> None:
    right = judge(CASE, QUESTION, 1, found("regression", [["b" * 40]], [["b" * 40]]), 2.0)
    missed = judge(CASE, QUESTION, 3, found("inconclusive", [], []), 4.0)
    control = replace(CASE, verdict=Verdict.NO_REGRESSION, commits=())
    alarm = judge(control, replace(QUESTION, expected=()), 1, found("regression", [["d" * 40]], [["d" * 40]]), 6.0)
    measures = {measure.name: measure for measure in to_measures([right, missed, alarm])}

    assert (50.0, False) == (measures["culprit_ranked_first"].value, measures["culprit_ranked_first"].met)
    assert (1, False) == (measures["false_culprits_on_controls"].value, measures["false_culprits_on_controls"].met)
    assert (0, True) == (measures["false_culprits_on_positives"].value, measures["false_culprits_on_positives"].met)
    assert 4.0 == measures["case_minutes_median"].value
    assert "phase_ranked_first" not in measures
    assert header().startswith("case")


def test_phases_and_frames_count_once_a_search_names_them() -> None:
    document = json.loads(found("regression", [["b" * 40]], [["b" * 40]]))
    frames = [{"name": name} for name in ("elsewhere", "Step.other", "third", "build")]
    document["localisation"] = {"parts": [{"role": "drafter", "phase": "mask"}], "frames": frames}
    answer = judge(CASE, QUESTION, 1, json.dumps(document), 2.0)
    measures = {measure.name: measure.value for measure in to_measures([answer])}

    assert (100.0, 0.0) == (measures["phase_ranked_first"], measures["frame_in_top_three"])
    assert "✓ drafter mask" in row(answer)
    assert ("elsewhere", "other", "third") == answer.frames


def test_an_answer_is_kept_for_the_same_settings_only(tmp_path: Path) -> None:
    answer = judge(CASE, QUESTION, 1, found("regression", [["b" * 40]], [["b" * 40]]), 2.0)
    chosen = Settings(num_commits=64, budget_s=360.0, seed=0)
    save_answer(answer, chosen, tmp_path)

    assert answer == saved_answer(chosen, tmp_path)
    assert saved_answer(replace(chosen, seed=1), tmp_path) is None
    assert saved_answer(chosen, tmp_path / "other") is None


def test_answers_of_unlike_settings_are_judged_together(tmp_path: Path) -> None:
    name, other = case_names()[:2]
    for number, case in enumerate((name, other)):
        answer = judge(load_case(case), QUESTION, 1, found("regression", [["b" * 40]], [["b" * 40]]), 2.0)
        (tmp_path / "out" / case).mkdir(parents=True)
        save_answer(answer, Settings(num_commits=64, budget_s=100.0 * number, seed=0), tmp_path / "out" / case)
    asked = ["--kept", "--out", str(tmp_path / "out"), "--results", str(tmp_path)]
    done = CliRunner().invoke(main, asked, catch_exceptions=False)
    (path,) = tmp_path.glob("regressions_*.json")
    kept = json.loads(path.read_text())["data"]["answers"]

    assert 0 == done.exit_code
    assert [(name, 0.0), (other, 100.0)] == [(answer["case"], answer["settings"]["budget_s"]) for answer in kept]


def write_events(folder: Path, role: str, records: list[Any]) -> None:
    head = Header(role=role, rank=0, host="h", pid=1, trains=role == "drafter", wall_ns=0, monotonic_ns=0)
    (folder / "events").mkdir(exist_ok=True)
    lines = [encode_header(head), *(encode(record) for record in records)]
    (folder / "events" / f"{role}-0.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_a_rate_counts_whole_steps_of_its_own_slices(tmp_path: Path) -> None:
    write_events(tmp_path, "dispatcher", [])
    write_events(
        tmp_path,
        "drafter",
        [
            record
            for number in range(1, 21)
            for record in (
                Span("inner", SpanKind.WORK, "main", number * 100 - 60, number * 100 - 40, 1, True),
                Span("outer", SpanKind.WORK, "main", number * 100 - 90, number * 100 - 30, 0, True),
                Step(number, number * 100, 10 * number, 0, 0),
            )
        ],
    )
    rate = read_rate(tmp_path, [Slice("good", 250, 650, {"drafter-0": 0.004}), Slice("good", 1050, 1250, {})])

    # Steps 3 to 6 end in the first slice: 4, 5 and 6 are whole, 150 tokens in 300 ns.
    assert pytest.approx((0.5e9, 1.2e9)) == rate.tok_per_s
    assert pytest.approx(4 / 6) == rate.cpu_ms["drafter-0"]
    # Spans of steps 4, 5, 6 and 12 lie inside; six steps end there.
    assert pytest.approx(4 * 20 / 6 / 1e6) == rate.phase_ms["drafter inner"]


def test_slices_without_whole_steps_are_refused(tmp_path: Path) -> None:
    write_events(tmp_path, "dispatcher", [])
    write_events(tmp_path, "drafter", [Step(0, 100, 10, 0, 0)])

    with pytest.raises(RuntimeError, match="--slice"):
        read_rate(tmp_path, [Slice("good", 50, 150, {})])


def rate(*tok_per_s: float, mask_ms: float) -> Rate:
    cpu_ms = {"drafter-0": 20.0 + mask_ms, "target-0": 10.0, "dispatcher-0": 1.0}
    phase_ms = {"drafter mask": mask_ms, "drafter loss": 3.0}
    return Rate(tok_per_s=tok_per_s, cpu_ms=cpu_ms, phase_ms=phase_ms, ready_s=5.0)


def test_one_spoilt_pair_does_not_move_what_a_check_shows() -> None:
    shown = compare(rate(100, 110, 100, 90, mask_ms=1.0), rate(80, 88, 30, 72, mask_ms=4.0))

    assert pytest.approx(20.0) == shown.slow_down_pct
    assert {"drafter mask": 3.0} == shown.grown_ms()
    assert "drafter 21.0 → 24.0" in line("fake", shown, "")
