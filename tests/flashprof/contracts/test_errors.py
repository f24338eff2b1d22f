"""Errors: one line a fact, the exit code of their kind, the nearest name."""

from __future__ import annotations

import pytest

from flashprof.contracts.errors import (
    FlashProfError,
    FormatError,
    SubjectError,
    ToolError,
    UnknownNameError,
    UsageError,
)
from flashprof.contracts.outcome import Outcome


def test_a_message_holds_its_facts_in_order() -> None:
    error = UsageError("no such preset", where="--preset", offered="huge", allowed="tiny", next_command="--preset tiny")

    assert str(error).splitlines() == [
        "error: no such preset",
        "  where: --preset",
        "  got: huge",
        "  allowed: tiny",
        "  try: --preset tiny",
    ]


def test_facts_that_are_not_given_take_no_line() -> None:
    assert ToolError("the disk is full").lines() == ["error: the disk is full"]


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (FlashProfError("x"), 4),
        (ToolError("x"), 4),
        (SubjectError("x", outcome=Outcome.CRASHED), 4),
        (UsageError("x"), 2),
        (FormatError("x"), 2),
        (UnknownNameError("preset", "x", ["tiny"]), 2),
    ],
)
def test_exit_codes_are_those_of_the_design(error: FlashProfError, exit_code: int) -> None:
    assert exit_code == error.exit_code


def test_an_unknown_name_offers_the_nearest_and_lists_all() -> None:
    error = UnknownNameError("preset", "tinny", iter(["tiny", "smollm2"]), next_command="flashprof run --help")

    assert error.what == "unknown preset 'tinny' (did you mean 'tiny'?)"
    assert error.allowed == "tiny, smollm2"
    assert ("tiny", "smollm2") == error.known


def test_a_name_is_no_hint_at_itself() -> None:
    assert "unknown revision 'HEAD'" == UnknownNameError("revision", "HEAD", ["HEAD"]).what
    assert (
        "unknown revision 'HEAD' (did you mean 'HEADS'?)"
        == UnknownNameError("revision", "HEAD", ["HEAD", "HEADS"]).what
    )


@pytest.mark.parametrize(("known", "allowed"), [(["tiny"], "tiny"), ([], "none")])
def test_a_name_like_no_other_gets_no_hint(known: list[str], allowed: str) -> None:
    error = UnknownNameError("preset", "zzz", known)

    assert error.what == "unknown preset 'zzz'"
    assert allowed == error.allowed


def test_a_subject_error_carries_its_outcome() -> None:
    assert SubjectError("killed", outcome=Outcome.KILLED).outcome is Outcome.KILLED


def test_only_a_completed_launch_is_a_measurement() -> None:
    assert [Outcome.COMPLETED] == [outcome for outcome in Outcome if outcome.is_measurement]
