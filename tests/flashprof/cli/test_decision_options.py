"""Options and statuses that commands with a verdict share: in the order of the help, with the same defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from flashprof.cli.bisect import command as bisect
from flashprof.cli.calibrate import command as calibrate
from flashprof.cli.compare import command as compare
from flashprof.cli.decision_options import (
    allow_option,
    answer_options,
    dry_run_option,
    fresh_option,
    gpus_option,
    reports_option,
    rule_options,
    verdict_status,
)
from flashprof.cli.run import command as measure
from flashprof.contracts.comparison import Verdict
from flashprof.contracts.errors import UsageError


@click.command()
@rule_options("Of mistakes.")
@allow_option
@gpus_option
@fresh_option
@dry_run_option
@answer_options
def decide(**params: Any) -> dict[str, Any]:
    return params


@click.command()
@reports_option
def look(**params: Any) -> dict[str, Any]:
    return params


def run(command: click.Command, *args: str) -> Any:
    done = CliRunner().invoke(command, args, standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.return_value


def test_what_is_not_said_has_its_default() -> None:
    assert {
        "alpha": 0.01,
        "tolerance": 0.01,
        "allow": (),
        "gpu_texts": (),
        "fresh": False,
        "dry_run": False,
        "inconclusive": None,
        "reports": Path("reports"),
        "as_json": False,
    } == run(decide)
    assert {"reports": Path("reports")} == run(look)


def test_options_are_helped_in_the_order_in_which_they_are_named() -> None:
    assert [
        *("--alpha", "--tolerance", "--allow", "--gpus", "--fresh", "--dry-run"),
        *("--inconclusive", "--reports", "--json"),
    ] == [parameter.opts[0] for parameter in decide.params]
    assert "Of mistakes." in CliRunner().invoke(decide, ["--help"]).stdout


def test_values_are_read_and_wrong_ones_refused() -> None:
    found = run(decide, "--alpha", "0.5%", "--allow", "a", "--allow", "b", "--gpus", "0", "--inconclusive", "fail")

    assert (0.005, ("a", "b"), ("0",), "fail") == tuple(
        found[name] for name in ("alpha", "allow", "gpu_texts", "inconclusive")
    )
    for wrong in (("--alpha", "6%"), ("--tolerance", "51%")):
        with pytest.raises(UsageError, match=f"{wrong[0]} does not take"):
            run(decide, *wrong)


def test_commands_share_the_very_options() -> None:
    helps = [
        {parameter.opts[0]: (parameter.default, getattr(parameter, "help", "")) for parameter in command.params}
        for command in (bisect, compare, calibrate, measure)
    ]
    shared = ("--reports", "--dry-run", "--fresh", "--tolerance", "--allow", "--gpus", "--inconclusive", "--json")

    assert [helps[0][name] for name in shared] == [helps[1][name] for name in shared]
    assert [helps[0][name] for name in shared[:3]] == [helps[2][name] for name in shared[:3]]
    assert helps[0]["--reports"] == helps[3]["--reports"]


@pytest.mark.parametrize(
    ("verdict", "inconclusive", "has_failures", "expected"),
    [
        (Verdict.NO_REGRESSION, "fail", True, 0),
        (Verdict.REGRESSION, "pass", False, 1),
        (Verdict.INCONCLUSIVE, None, False, 3),
        (Verdict.INCONCLUSIVE, "fail", False, 1),
        (Verdict.INCONCLUSIVE, "pass", False, 0),
        (Verdict.INCONCLUSIVE, "pass", True, 3),
    ],
)
def test_only_what_is_inconclusive_is_taken_as_one_likes(
    verdict: Verdict, inconclusive: str | None, *, has_failures: bool, expected: int
) -> None:
    assert expected == verdict_status(verdict, inconclusive, has_failures=has_failures)
