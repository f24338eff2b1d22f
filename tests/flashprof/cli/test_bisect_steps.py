"""`flashprof bisect status`, `log`, `undo` and `skip`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import search_results
from click.testing import CliRunner, Result

from flashprof.cli.main import flashprof
from flashprof.contracts.errors import FlashProfError
from flashprof.contracts.search import Reading, SearchKind, SearchResult, Stage
from flashprof.decide.search_observations import Measured, Undone
from flashprof.store.search_folder import SearchFolder, SearchQuestion, open_search

Call = tuple[object, ...]


@dataclass
class FakeEngine:
    """Remembers what it was asked."""

    make: Callable[[], SearchResult] = search_results.undecided
    calls: list[Call] = field(default_factory=list)

    def status(self, reports: Path, name: str) -> SearchResult:
        return self._answer("status", reports, name)

    def undo(self, reports: Path, name: str, num: int) -> SearchResult:
        return self._answer("undo", reports, name, num)

    def skip(self, reports: Path, name: str, cell: str) -> SearchResult:
        return self._answer("skip", reports, name, cell)

    def _answer(self, *call: object) -> SearchResult:
        self.calls.append(call)
        return self.make()


def step(engine: FakeEngine, *args: str) -> Result:
    return CliRunner().invoke(flashprof, ["bisect", *args], obj=engine, standalone_mode=False)


def search(reports: Path, seed: int = 0) -> str:
    """A search with two readings, one taken back; the name of its folder."""
    question = SearchQuestion(kind=SearchKind.TOGGLES, good={"a": "1"}, bad={"a": "2"}, seed=seed)
    with open_search(reports, question, plan={}, request={}) as folder:
        for number, cell in enumerate(("good", "swa")):
            _measure(folder, cell, float(number))
        folder.append(Undone(num=1))
        return folder.name


def _measure(folder: SearchFolder, cell: str, at_s: float) -> None:
    rate = math.log(12_060.0)
    folder.append(
        Measured(
            reading=Reading(
                cell=cell,
                launch="hot-1",
                stage=Stage.SEARCH,
                at_s=at_s,
                length_s=3.0,
                log_tok_per_s=rate,
                num_tokens=9,
            )
        )
    )


@pytest.mark.parametrize(
    ("args", "call"),
    [
        (("status",), ("status",)),
        (("undo",), ("undo", 1)),
        (("undo", "3"), ("undo", 3)),
        (("skip", "compile+swa"), ("skip", "compile+swa")),
    ],
)
def test_a_step_is_about_the_latest_search(tmp_path: Path, args: tuple[str, ...], call: Call) -> None:
    search(tmp_path, seed=1)
    name = search(tmp_path, seed=2)
    engine = FakeEngine()
    done = step(engine, *args, "--reports", str(tmp_path))

    assert [(call[0], tmp_path, name, *call[1:])] == engine.calls
    assert done.stdout.startswith("inconclusive: swa (on → off) leads with 71 %")
    assert 0 == done.return_value


def test_a_step_may_be_about_another_search(tmp_path: Path) -> None:
    name = search(tmp_path, seed=1)
    search(tmp_path, seed=2)
    engine = FakeEngine()
    step(engine, "status", "--search", name, "--reports", str(tmp_path))
    step(engine, "status", "--search", str(tmp_path / name))

    assert [("status", tmp_path, name)] * 2 == engine.calls


def test_a_step_prints_the_result_for_programs(tmp_path: Path) -> None:
    search(tmp_path)
    done = step(FakeEngine(make=search_results.one_culprit), "status", "--json", "--reports", str(tmp_path))

    assert [["swa"]] == json.loads(done.stdout)["culprits"]


def test_the_log_is_read_from_the_folder(tmp_path: Path) -> None:
    search(tmp_path)
    done = step(FakeEngine(), "log", "--reports", str(tmp_path))

    assert done.stdout.splitlines() == [
        "    1  good  12,060 tok/s in hot-1",
        "    2  swa  12,060 tok/s in hot-1   (undone)",
        "       the user takes back 1 entry",
    ]


def test_the_log_for_programs_is_one_document_a_line(tmp_path: Path) -> None:
    search(tmp_path)
    lines = step(FakeEngine(), "log", "--json", "--reports", str(tmp_path)).stdout.splitlines()

    assert ["measured", "measured", "undone"] == [json.loads(line)["kind"] for line in lines]


@pytest.mark.parametrize("args", [("status",), ("log",), ("undo",), ("skip", "swa")])
def test_a_step_without_a_search_says_how_to_begin(tmp_path: Path, args: tuple[str, ...]) -> None:
    engine = FakeEngine()
    done = step(engine, *args, "--reports", str(tmp_path / "none"))

    assert isinstance(done.exception, FlashProfError)
    assert "try: flashprof bisect --good all --bad none" in str(done.exception)
    assert [] == engine.calls


@pytest.mark.parametrize("args", [("undo", "0"), ("undo", "x"), ("skip",), ("status", "extra")])
def test_wrong_arguments_are_usage_errors(tmp_path: Path, args: tuple[str, ...]) -> None:
    search(tmp_path)
    engine = FakeEngine()
    done = CliRunner().invoke(flashprof, ["bisect", *args, "--reports", str(tmp_path)], obj=engine)

    assert (2, []) == (done.exit_code, engine.calls)
