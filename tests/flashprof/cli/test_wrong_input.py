"""Wrong input ends at once with status 2 (4 where the tool cannot), and says what is allowed or what to do next."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashprof.cli.main import main

RUN = ("run", "--reports", "{tmp}/reports")
COMPARE = ("compare", "--reports", "{tmp}/reports")
ARMS = (*COMPARE, "none", "swa")
RUNS = (*COMPARE, "{tmp}/monday", "{tmp}/tuesday")


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a file").write_text("no program")
    (tmp_path / "script.py").write_text("print(1)")
    (tmp_path / "reports" / "taken").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    for name in ("monday", "tuesday"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    return tmp_path


CASES: list[tuple[tuple[str, ...], int, tuple[str, ...]]] = [
    (("rnu",), 2, ("'rnu'", "Did you mean 'run'", "doctor")),
    (("",), 2, ("No such command", "run, compare, bisect, ")),
    (("run", "--togles", "swa"), 2, ("--togles", "--toggles")),
    (("run", "--toggles"), 2, ("requires an argument",)),
    (("doctor", "extra"), 2, ("extra",)),
    ((*RUN, "--toggles", "swaa"), 2, ("did you mean 'swa'", "allowed: compile", "try: flashprof run --list-toggles")),
    ((*RUN, "--reports", ""), 2, ("'--reports'", "an empty string is no path")),
    (("report", ""), 2, ("an empty string is no path",)),
    (("history", "add", ""), 2, ("an empty string is no path",)),
    ((*RUN, "--toggles", "queue=0"), 2, ("does not take '0'", "allowed: 1..64")),
    ((*RUN, "--toggles", "queue=x"), 2, ("does not take 'x'", "1..64")),
    ((*RUN, "--toggles", "swa=maybe"), 2, ("does not take 'maybe'", "on, off")),
    ((*RUN, "--toggles", "swa,,compile"), 2, ("empty item", "got: swa,,compile")),
    ((*RUN, "--toggles", "-swa=on"), 2, ("both switches off and sets",)),
    ((*RUN, "--preset", "tinny"), 2, ("did you mean 'tiny'", "allowed: tiny, smollm2")),
    ((*RUN, "--topology", "0+1"), 2, ("'0+1'", "1+1, 2+1", "try: --topology 1+1")),
    ((*RUN, "--topology", "1+0"), 2, ("'1+0'", "try:")),
    ((*RUN, "--topology", "x"), 2, ("'x'", "try:")),
    ((*RUN, "--topology", "100+1"), 2, ("'100+1'", "1..64")),
    ((*RUN, "--seed", "-1"), 2, ("--seed", "x>=0")),
    ((*RUN, "--seed", "one"), 2, ("'one'", "integer")),
    ((*RUN, "--set", "subject.seed=-1"), 2, ("the pipeline refuses", "--seed", "0<=x")),
    ((*RUN, "--train", "--lr 'x"), 2, ("no command line", "--train '--data")),
    ((*RUN, "--train", "--lr 1", "--", "true"), 2, ("--train is for our own", "after --")),
    ((*RUN, "--train", "--lr nought"), 2, ("the pipeline refuses", "--lr")),
    ((*RUN, "--train", "--fault typo"), 2, ("the pipeline refuses", "metrics-unordered")),
    ((*RUN, "--train", "--fault metrics-unordered"), 2, ("the pipeline refuses", "--toggles async-metrics")),
    ((*RUN, "--set", "windows"), 2, ("SECTION.FIELD=VALUE", "windows.measure_s=5")),
    ((*RUN, "--set", "window.measure_s=1"), 2, ("did you mean 'windows'", "sampling")),
    ((*RUN, "--set", "windows.measures_s=1"), 2, ("did you mean 'measure_s'", "num_measure")),
    ((*RUN, "--set", "windows.measure_s=long"), 2, ("'long'", "float")),
    ((*RUN, "--set", "windows.measure_s=0"), 2, ("windows.measure_s=0", "> 0 seconds")),
    ((*RUN, "--set", "windows.num_measure=1"), 2, (">= 2",)),
    ((*RUN, "--set", "sampling.rate_hz=5000"), 2, ("1..1000",)),
    ((*RUN, "--set", "sampling.stacks=perf"), 2, ("auto, pyspy, off",)),
    ((*RUN, "--set", "subject.kind=foreign"), 2, ("no command to measure", "-- CMD")),
    ((*RUN, "--set", "subject.kind=alien"), 2, ("'alien'", "foreign")),
    (("run", "--reports", "{tmp}/a file"), 2, ("cannot write to the reports folder", "try: --reports DIRECTORY")),
    (("run", "--reports", "/proc/none"), 2, ("cannot write to the reports folder", "/proc/none")),
    ((*RUN, "--run-id", "taken"), 2, ("a run of that name exists", "another --run-id")),
    ((*RUN, "--run-id", "a/b"), 2, ("'a/b'", "without slashes")),
    ((*RUN, "--run-id", ".x"), 2, ("'.x'", "not starting with a dot")),
    ((*RUN, "--run-id", ".."), 2, ("'..'",)),
    ((*RUN, "--run-id", "a\x1b[31mb"), 2, ("'a\\x1b[31mb'",)),
    ((*RUN, "--run-id", "x" * 300), 2, ("at most 200 bytes",)),
    ((*RUN, "--tok-per-s", "(", "--", "true"), 2, ("no regular expression", "got: (")),
    ((*RUN, "--tok-per-s", "tok", "--", "true"), 2, ("no group for the number", "try: --tok-per-s")),
    ((*RUN, "--tok-per-s", "(x)"), 2, ("for foreign trainers", "-- CMD")),
    ((*RUN, "--", "no-such-program"), 2, ("command not found: no-such-program", "try: command -v")),
    ((*RUN, "--", "{tmp}/a file"), 2, ("cannot be executed", "chmod +x")),
    ((*RUN, "--", "{tmp}/script.py"), 2, ("cannot be executed", "python {tmp}/script.py")),
    ((*RUN, "--", "{tmp}"), 2, ("cannot be executed",)),
    ((*RUN, "--toggles", "swa", "--", "true"), 2, ("--toggles is for our own pipeline",)),
    ((*RUN, "--preset", "smollm2", "--", "true"), 2, ("--preset is for our own pipeline",)),
    ((*RUN, "--seed", "1", "--", "true"), 2, ("--seed is for our own pipeline",)),
    ((*RUN, "--"), 2, ("no command behind --", "-- CMD")),
    (("compare",), 2, ("Missing argument 'BASE'",)),
    ((*COMPARE, "none"), 2, ("Missing argument 'CANDIDATE'",)),
    ((*ARMS, "compile"), 2, ("unexpected extra argument", "compile")),
    ((*COMPARE, "none", "swaa"), 2, ("did you mean 'swa'", "'swaa' is no folder with runs", "--list-toggles")),
    ((*COMPARE, "none", "{tmp}/nowhere"), 2, ("unknown toggle", "no folder with runs")),
    ((*COMPARE, "none", "queue=0"), 2, ("does not take '0'", "allowed: 1..64")),
    ((*COMPARE, "none", ""), 2, ("an arm is empty", "flashprof compare none compile")),
    ((*COMPARE, "none", "swa,,compile"), 2, ("empty item", "got: swa,,compile")),
    ((*COMPARE, "none", "x" * 5000), 2, ("unknown toggle",)),
    ((*COMPARE, "compile,swa", "swa,compile"), 2, ("both arms are the same cell: compile,swa", "flashprof calibrate")),
    ((*COMPARE, "none", "-swa"), 2, ("No such option",)),
    ((*COMPARE, "none", "{tmp}/empty"), 2, ("there is no finished run", "manifest.json", "try: flashprof run")),
    ((*COMPARE, "none", "{tmp}/a file"), 2, ("there is no finished run", "where: {tmp}/a file")),
    ((*COMPARE, "none", "{tmp}/monday"), 2, ("one side is a run, the other is none: 'none'", "ANOTHER_RUN")),
    ((*COMPARE, "{tmp}/monday", "swa"), 2, ("the other is none: 'swa'", "flashprof compare {tmp}/monday")),
    ((*COMPARE, "{tmp}/monday", "{tmp}/monday/"), 2, ("same run is on both sides: monday", "flashprof calibrate")),
    ((*COMPARE, "{tmp}", "{tmp}/tuesday"), 2, ("same run is on both sides: tuesday",)),
    ((*RUNS, "--preset", "tiny"), 2, ("--preset is for launches", "measured already", "--alpha")),
    ((*RUNS, "--budget", "3", "--screen"), 2, ("got: --screen --budget",)),
    ((*RUNS, "--dry-run"), 2, ("--dry-run is for launches",)),
    ((*ARMS, "--alpha", "1"), 2, ("--alpha does not take '1'", "written 1% or 0.01", "try: --alpha 1%")),
    ((*ARMS, "--alpha", "0"), 2, ("--alpha does not take '0'", "to 5 %")),
    ((*ARMS, "--alpha", "nan%"), 2, ("--alpha does not take 'nan%'",)),
    ((*ARMS, "--tolerance", "much"), 2, ("--tolerance does not take 'much'", "0 % to 50 %")),
    ((*ARMS, "--tolerance", "-1%"), 2, ("--tolerance does not take '-1%'",)),
    ((*ARMS, "--budget", "inf"), 2, ("--budget does not take 'inf'", "minutes above 0", "try: --budget 14")),
    ((*ARMS, "--budget", "0"), 2, ("--budget does not take '0'",)),
    ((*ARMS, "--budget", "10m"), 2, ("--budget does not take '10m'",)),
    ((*ARMS, "--method", "warm"), 2, ("'warm'", "'auto', 'hot', 'cold'")),
    ((*COMPARE, "none", "expandable", "--method", "hot"), 2, ("cannot be switched while", "expandable", "cold")),
    ((*COMPARE, "none", "expandable", "--screen"), 2, ("--screen leaves nothing to measure", "by a launch")),
    ((*ARMS, "--screen", "--method", "cold"), 2, ("--screen leaves nothing", "--method cold makes no hot blocks")),
    ((*ARMS, "--gpus", "0,x"), 2, ("'0,x' is no set of GPUs", "semicolon", "try: --gpus '0,1;2,3'")),
    ((*ARMS, "--gpus", ""), 2, ("'' is no set of GPUs",)),
    ((*ARMS, "--gpus", "0,1", "--gpus", "1,2"), 2, ("GPU 1 is named twice", "got: 0,1;1,2")),
    ((*ARMS, "--gpus", "0,1;2"), 2, ("differ in size", "as many GPUs in each")),
    ((*ARMS, "--set", "sampling.rate_hz=10"), 2, ("does nothing in a comparison", "windows.…")),
    ((*ARMS, "--set", "subject.toggles=swa"), 2, ("does nothing in a comparison",)),
    ((*ARMS, "--set", "windows.measure_s=0"), 2, ("windows.measure_s=0", "> 0 seconds")),
    ((*ARMS, "--train", "'x"), 2, ("no command line", "--train '--data")),
    ((*ARMS, "--inconclusive", "maybe"), 2, ("'maybe'", "'pass', 'fail'")),
    ((*ARMS, "--seed", "-1"), 2, ("--seed", "x>=0")),
]


@pytest.mark.parametrize(("args", "status", "words"), CASES, ids=[" ".join(case[0])[:60] for case in CASES])
def test_wrong_input(
    folder: Path, capfd: pytest.CaptureFixture[str], args: tuple[str, ...], status: int, words: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([arg.replace("{tmp}", str(folder)) for arg in args])
    said = capfd.readouterr()

    assert status == ended.value.code
    assert "" == said.out
    assert "Traceback" not in said.err
    assert [] == [word for word in words if word.replace("{tmp}", str(folder)) not in said.err], said.err
    assert ["taken"] == [path.name for path in (folder / "reports").iterdir()]
