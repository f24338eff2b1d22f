"""What a gate says: verdicts, roundings, costs, and the next command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import gate_results
import localisations
import pytest
from gate_results import cold, gate, metric
from study_results import interval

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.gate import MEMORY, TOK_PER_S, GateMode, GateResult
from flashprof.report import gate_sentences as sentences
from flashprof.report.gate_sentences import Ending


@pytest.mark.parametrize(
    ("make", "ending"),
    [
        (gate_results.passed, Ending.PASS),
        (gate_results.failed, Ending.FAIL),
        (gate_results.inconclusive, Ending.INCONCLUSIVE),
        (gate_results.broken, Ending.FAILED),
        (gate_results.interrupted, Ending.INTERRUPTED),
    ],
)
def test_each_gate_ends_in_one_word(make: Callable[[], GateResult], ending: Ending) -> None:
    result = make()

    assert ending is sentences.ending(result)
    assert sentences.answer(result).startswith(f"{ending}  ")


def test_a_failure_of_the_machinery_is_never_told_as_a_regression() -> None:
    broken = replace(gate_results.failed(), is_failed=True)

    assert sentences.ending(broken) is Ending.FAILED
    assert "which is no regression" in sentences.answer(broken)
    assert "−17.2 %" not in sentences.answer(broken)


def test_the_answer_is_about_the_metric_that_failed_and_names_the_others() -> None:
    good, *rest = gate_results.passed().metrics
    bad = [replace(item, verdict=Verdict.REGRESSION) for item in rest]
    result = gate(Verdict.REGRESSION, good, *bad, metric(MEMORY, "bytes", 1e9, bad[0].change, Verdict.REGRESSION))

    assert "start-up −2.0 % (95 %: −5.0 to +1.0 %), allowed +10 %; memory too" == sentences.essence(result)


@pytest.mark.parametrize(
    ("name", "estimate", "low", "told"),
    [
        (TOK_PER_S, -0.0302, -0.05, "−3.02"),
        (TOK_PER_S, -0.0298, -0.05, "−2.98"),
        (TOK_PER_S, -0.04, -0.05, "−4.0"),
        (MEMORY, 0.1004, 0.02, "+10.04"),
        (MEMORY, 0.0996, 0.02, "+9.96"),
        # What may grow by 10 % may shrink by 10 % without more decimals.
        (MEMORY, -0.1004, -0.2, "−10.0"),
    ],
)
def test_no_rounding_moves_a_change_onto_what_is_allowed(name: str, estimate: float, low: float, told: str) -> None:
    item = metric(name, "x", 100.0, interval(estimate, low, estimate + 0.001), Verdict.REGRESSION)

    assert told == sentences.metric_row(item)[2]


def test_levels_have_the_unit_that_suits() -> None:
    levels = [(12_230.4, "tok/s"), (61.4e9, "bytes"), (3e6, "bytes"), (2_400.0, "ns a token"), (41.23, "s")]
    told = ["12,230 tok/s", "57.2 GiB", "2.86 MiB", "2.40 µs a token", "41.2 s"]

    assert told == [sentences.level(value, unit) for value, unit in levels]
    assert "–" == sentences.level(float("nan"), "s")


def test_a_verdict_is_told_with_the_interval_that_it_was_read_from() -> None:
    assert sentences.reason(gate_results.failed()).endswith("(judged by 99 %: −19.9 to −14.5 %)")
    assert ["drafter mask: 1,620 % more time a token, where 10 % is allowed"] == sentences.other_reasons(
        gate_results.failed()
    )


def test_the_cost_of_the_answer_and_of_what_followed_are_told_apart() -> None:
    found = sentences.cost(gate_results.bisected())

    assert found == "measured for 9.3 min of 20.0 min allowed: 8 launches, 4 blocks; 40.3 min in all"
    assert sentences.cost(gate_results.passed()) == "measured for 9.3 min of 20.0 min allowed: 8 launches, 4 blocks"


def test_an_open_answer_says_what_it_still_costs() -> None:
    item = cold(-0.029, 0.02, Verdict.INCONCLUSIVE, to_resolve_s=None)
    unknown = replace(gate_results.inconclusive().metrics[0], comparison=item)

    # 1,190 s are spent, 640 s are to come: 30.5 min.
    assert "--budget 31m continues" in sentences.to_resolve(gate_results.inconclusive())
    assert "cannot be told" in sentences.to_resolve(gate(Verdict.INCONCLUSIVE, unknown))
    assert "" == sentences.to_resolve(gate_results.passed())
    assert "" == sentences.to_resolve(gate_results.broken())


def test_the_next_command_follows_from_what_is_known() -> None:
    failed = gate_results.failed()

    assert "flashprof bisect --commits 3f9a1c0d5b7e..b81e44f60c2d" == sentences.next_step(failed)[0]
    assert "git show 77ab01c9d2e3" == sentences.next_step(gate_results.bisected())[0]
    assert "flashprof doctor" == sentences.next_step(gate_results.broken())[0]
    assert ("", "") == sentences.next_step(gate_results.passed())
    assert ("", "") == sentences.next_step(replace(failed, mode=GateMode.STORED))
    assert ("", "") == sentences.next_step(replace(failed, base_commit=failed.head_commit))


@pytest.mark.parametrize("text", ["$(reboot)", "deadbeef; rm -rf .", "HEAD", "abc"])
def test_what_is_no_commit_becomes_no_part_of_a_command(text: str) -> None:
    assert ("", "") == sentences.next_step(replace(gate_results.failed(), base_commit=text))
    assert text not in sentences.next_step(replace(gate_results.failed(), culprit=text))[0]


def test_frames_of_the_headline_come_first_and_each_once() -> None:
    found = localisations.localisation(
        localisations.interval(41_500.0, 5_200.0),
        localisations.part("mask", 39_000.0, 3_000.0, 41_500.0),
        frames=(
            localisations.frame("loud", 90_000.0, role="target", phase="forward"),
            localisations.frame("unclear", 400.0),
            localisations.frame("faster", -9_000.0),
            localisations.frame("build", 38_000.0),
        ),
    )

    assert ["build", "loud"] == [frame.name for frame in sentences.frames(found, 5)]
    assert ["build"] == [frame.name for frame in sentences.frames(found, 1)]
    assert [] == sentences.frames(None, 5)


def test_a_regression_without_a_localisation_says_so() -> None:
    assert "not known" in sentences.where(replace(gate_results.failed(), localisation=None))
    assert "" == sentences.where(gate_results.passed())
