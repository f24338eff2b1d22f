"""Who is to blame when several workers ended, and that none is left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from processes import own_children
from trainer_config import some_config

from flashprof.contracts.errors import FlashProfError, SubjectError, UsageError
from flashprof.contracts.outcome import Outcome
from pipeline import crew as crew_module
from pipeline.config import TrainConfig
from pipeline.crew import Crew
from pipeline.roles.worker import LEFT_ALONE, READY
from pipeline.topology import Topology

BEHAVIOURS = {
    "works": lambda: time.sleep(60),
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "crashes": lambda: os._exit(1),
    "refuses": lambda: (os.write(2, b"error: no weights\n  try: another folder\n"), os._exit(2)),
    "is left alone": lambda: os._exit(LEFT_ALONE),
    "is killed later": lambda: (time.sleep(0.3), os.kill(os.getpid(), signal.SIGKILL)),
    "ends": lambda: os._exit(0),
}


class FakeContext:
    """A fork context whose processes behave as told, by worker name."""

    def __init__(self, behaviour: dict[str, str]) -> None:
        self._context = get_context("fork")
        self._behaviour = behaviour

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Process(self, *, name: str, args: tuple[Any, ...], **_: Any) -> Any:
        """Stands in for the worker's real body."""
        return self._context.Process(target=_behave, args=(self._behaviour[name], args[0]), daemon=True)


def _fill_the_pipe(seat: Any) -> None:
    for _ in range(20):
        seat.queues[0].writer.send_bytes(bytes(8_192))
    os._exit(0)


def _behave(behaviour: str, seat: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(seat.stderr.fileno(), 2)
    os.write(2, f"last words of {seat.name}\n".encode())
    seat.status.send(READY)
    if behaviour == "fills the pipe":
        _fill_the_pipe(seat)
    BEHAVIOURS[behaviour]()


def config(topology: Topology) -> TrainConfig:
    return some_config(topology=topology)


def make(target: str, *drafters: str) -> Crew:
    behaviour = {"target-0": target} | {f"drafter-{rank}": way for rank, way in enumerate(drafters)}
    return Crew(config(Topology(1, len(drafters))), FakeContext(behaviour), 2, ())


@pytest.fixture(autouse=True)
def no_child_left() -> Iterator[None]:
    yield

    assert [] == own_children()


def wait_for_death(crew: Crew) -> FlashProfError:
    for _ in range(500):
        try:
            crew.check()
        except FlashProfError as error:
            return error
        time.sleep(0.01)
    raise AssertionError("no worker's end was noticed")


@pytest.mark.parametrize(
    ("ways", "name", "how", "outcome"),
    [
        (("works", "works", "is killed"), "drafter-1", "killed by SIGKILL", Outcome.KILLED),
        (("is killed", "works"), "target-0", "killed by SIGKILL", Outcome.KILLED),
        (("works", "crashes"), "drafter-0", "ended with status 1", Outcome.CRASHED),
        # A quiet end is one too early.
        (("ends", "works"), "target-0", "ended with status 0", Outcome.CRASHED),
        # The survivors' own ends come first or later: they are not to blame.
        (("is left alone", "is left alone", "is killed later"), "drafter-1", "killed by SIGKILL", Outcome.KILLED),
        (("is left alone", "is left alone"), "target-0", f"status {LEFT_ALONE}", Outcome.CRASHED),
    ],
)
def test_the_one_that_ended_of_itself_is_named(
    ways: tuple[str, ...], name: str, how: str, outcome: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    with make(*ways) as crew:
        error = wait_for_death(crew)

    assert error.what.startswith(name)
    assert how in error.what
    assert isinstance(error, SubjectError)
    assert outcome == error.outcome
    assert f"last words of {name}" in str(error.where)


def test_a_worker_that_refuses_what_it_was_given_makes_it_a_usage_error() -> None:
    with make("works", "refuses") as crew:
        error = wait_for_death(crew)

    assert isinstance(error, UsageError)
    assert "no weights" == error.what
    assert "drafter-0" in str(error.where)


def test_readiness_is_told_worker_by_worker(capsys: pytest.CaptureFixture[str]) -> None:
    with make("works", "works", "works") as crew:
        crew.wait_ready()

    said = capsys.readouterr().out
    assert {"target-0", "drafter-0", "drafter-1"} == {line.split()[0] for line in said.splitlines()}


def test_finishing_with_a_dead_worker_names_it_and_does_not_hang() -> None:
    with make("works", "is killed later") as crew, pytest.raises(SubjectError, match="drafter-0 was killed"):
        crew.finish()


def test_workers_that_end_quietly_after_the_end_are_no_failure() -> None:
    with make("ends", "ends") as crew:
        crew.finish()


def test_a_target_whose_queue_was_closed_while_it_waited_is_no_failure() -> None:
    with make("is left alone", "ends") as crew:
        crew.finish()


def test_a_target_that_found_the_pipe_full_when_the_drafter_ended_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "END_TIMEOUT_S", 5.0)

    with make("fills the pipe", "ends") as crew:
        crew.finish()


def test_a_worker_that_does_not_end_is_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "END_TIMEOUT_S", 0.2)

    with make("works", "works") as crew, pytest.raises(SubjectError, match="did not end") as caught:
        crew.finish()

    assert Outcome.HUNG == caught.value.outcome


def test_an_error_inside_leaves_no_process_and_no_folder() -> None:
    crew = make("works", "works")
    folder = Path(crew._folder.name)

    with pytest.raises(ZeroDivisionError), crew:
        _ = 1 / 0

    assert not folder.exists()


def test_a_start_that_fails_half_way_ends_those_that_started() -> None:
    crew = make("works", "works")
    crew._workers[1].process.start = lambda: 1 / 0

    with pytest.raises(ZeroDivisionError), crew:
        pass
