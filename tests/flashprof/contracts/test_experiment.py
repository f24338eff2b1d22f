"""Settings: each field takes its own type and range, and says so when it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.experiment import Experiment, SubjectKind, apply_settings

DEFAULT = Experiment()


@pytest.mark.parametrize(
    ("setting", "section", "field", "value"),
    [
        ("windows.measure_s=2.5", "windows", "measure_s", 2.5),
        ("windows.measure_s=3", "windows", "measure_s", 3.0),
        ("windows.num_profile=0", "windows", "num_profile", 0),
        ("sampling.blocking=true", "sampling", "blocking", True),
        ("sampling.blocking=OFF", "sampling", "blocking", False),
        ("sampling.rate_hz=100", "sampling", "rate_hz", 100),
        ("subject.preset=smollm2", "subject", "preset", "smollm2"),
        ("subject.kind=foreign", "subject", "kind", SubjectKind.FOREIGN),
        (r"subject.tok_per_s_pattern=tok/s=(?P<value>\d+)", "subject", "tok_per_s_pattern", r"tok/s=(?P<value>\d+)"),
        ("output.reports=/tmp/x", "output", "reports", Path("/tmp/x")),
        ("output.run_id=", "output", "run_id", ""),
    ],
)
def test_a_setting_has_the_type_of_its_field(setting: str, section: str, field: str, value: object) -> None:
    set_value = getattr(getattr(apply_settings(DEFAULT, (setting,)), section), field)

    assert value == set_value
    assert type(value) is type(set_value)


def test_later_settings_win_and_the_rest_stays() -> None:
    changed = apply_settings(DEFAULT, ("windows.measure_s=2", "sampling.rate_hz=9", "windows.measure_s=4"))

    assert changed.windows.measure_s == 4.0
    assert changed.sampling.rate_hz == 9
    assert DEFAULT.subject == changed.subject
    assert DEFAULT.windows.num_measure == changed.windows.num_measure


@pytest.mark.parametrize(
    ("setting", "field", "allowed"),
    [
        ("windows.num_measure=1", "windows.num_measure", ">= 2"),
        ("windows.num_profile=-1", "windows.num_profile", ">= 0"),
        ("windows.measure_s=0", "windows.measure_s", "> 0 seconds"),
        ("windows.measure_s=nan", "windows.measure_s", "> 0 seconds"),
        ("windows.profile_s=inf", "windows.profile_s", "> 0 seconds"),
        ("windows.hang_timeout_s=-3", "windows.hang_timeout_s", "> 0 seconds"),
        ("windows.settle_steps=-1", "windows.settle_steps", ">= 0"),
        ("sampling.rate_hz=0", "sampling.rate_hz", "1..1000"),
        ("sampling.rate_hz=1001", "sampling.rate_hz", "1..1000"),
        ("sampling.stacks=perf", "sampling.stacks", "auto, pyspy, off"),
        ("sampling.resources=top", "sampling.resources", "auto, pidstat, schedstat, off"),
        ("sampling.blocking=maybe", "sampling.blocking", "true, false"),
        ("windows.num_measure=two", "windows.num_measure", "int"),
        ("windows.num_measure=2.5", "windows.num_measure", "int"),
        ("windows.measure_s=", "windows.measure_s", "float"),
        ("subject.kind=alien", "subject.kind", "pipeline, foreign"),
        ("subject.command=ls", "subject.command", "a number, a word"),
    ],
)
def test_a_wrong_value_names_the_field_and_what_it_takes(setting: str, field: str, allowed: str) -> None:
    with pytest.raises(UsageError) as raised:
        apply_settings(DEFAULT, (setting,))

    assert field in raised.value.what
    assert allowed in str(raised.value.allowed)


@pytest.mark.parametrize(
    ("setting", "nearest"), [("window.measure_s=1", "windows"), ("windows.mesure_s=1", "measure_s")]
)
def test_an_unknown_name_offers_the_nearest(setting: str, nearest: str) -> None:
    with pytest.raises(UnknownNameError, match=f"did you mean '{nearest}'"):
        apply_settings(DEFAULT, (setting,))


@pytest.mark.parametrize("setting", ["", "=", ".", "windows", "windows.measure_s", "measure_s=3", ".=", "windows.=1"])
def test_a_setting_of_another_form_is_a_usage_error(setting: str) -> None:
    with pytest.raises(UsageError):
        apply_settings(DEFAULT, (setting,))


@given(setting=st.text(max_size=40))
def test_any_text_is_a_setting_or_a_usage_error(setting: str) -> None:
    with pytest.raises(UsageError):
        apply_settings(DEFAULT, (setting,))
