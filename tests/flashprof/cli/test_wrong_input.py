"""Wrong input ends at once with status 2 (4 where the tool cannot), and says what is allowed or what to do next."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashprof.cli.main import main

RUN = ("run", "--reports", "{tmp}/reports")


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
    return tmp_path


CASES: list[tuple[tuple[str, ...], int, tuple[str, ...]]] = [
    (("rnu",), 2, ("'rnu'", "Did you mean 'run'", "doctor")),
    (("",), 2, ("No such command", "run, doctor")),
    (("run", "--togles", "swa"), 2, ("--togles", "--toggles")),
    (("run", "--toggles"), 2, ("requires an argument",)),
    (("doctor", "extra"), 2, ("extra",)),
    ((*RUN, "--toggles", "swaa"), 2, ("did you mean 'swa'", "allowed: compile", "try: flashprof run --list-toggles")),
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
