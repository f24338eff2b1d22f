"""The overhead study's command line: what is wrong is said before anything is measured, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.overhead import Part, main, show
from benchmarks.results_file import Measure


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--toggles", "nonsense"), "nonsense"),
        (("--train", "'open"), "--train is no command line"),
        (("--set", "windows.measure_s=0"), "windows.measure_s is out of range"),
        (("--sampler", "pyspy"), "no such sampler: pyspy; there are pyspy_nonblocking_10_hz, "),
    ],
)
def test_a_wrong_cell_ends_with_a_usage_error(options: tuple[str, str], said: str, tmp_path: Path) -> None:
    results = tmp_path / "results"
    done = CliRunner().invoke(main, [*options, "--results", str(results)])

    assert 2 == done.exit_code
    assert said in done.output
    assert "Traceback" not in done.output
    assert not results.exists()


def test_what_could_not_be_had_is_a_line_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    measure = Measure(name="pidstat", value=0.25, unit="% tok/s", note="95 %: 0.1 to 0.4")
    show(Part(measures=[measure], data={}, left_out={"nvml_1_hz": "NVML finds no GPU here"}))

    first, second = capsys.readouterr().out.splitlines()

    assert ["pidstat", "0.25"] == first.split()[:2]
    assert first.endswith("95 %: 0.1 to 0.4")
    assert ["nvml_1_hz", "left out: NVML finds no GPU here"] == second.split(maxsplit=1)
