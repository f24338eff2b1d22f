"""Throughput is found in what trainers really print, and only where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.app.log_readings import LogReadings, compile_pattern
from flashprof.contracts.errors import UsageError


def read(tmp_path: Path, text: str, pattern: str = "") -> list[float]:
    log = tmp_path / "log"
    log.write_text(text + "\n", encoding="utf-8")
    readings = LogReadings(log, pattern)
    readings.poll(0)
    return [reading.tok_per_s for reading in readings.readings]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("step: 10  loss:  7.9  grad_norm:  1.2  memory: 25.8GiB(27%)  tps: 1,234  tflops: 5.02  mfu: 0.51%", 1234),
        ("\x1b[31mstep: 10  \x1b[32mloss:  7.9  \x1b[34mtps: 1,234  \x1b[36mtflops: 5.0\x1b[39m", 1234),
        ("{'loss': 2.3, 'grad_norm': 1.1, 'epoch': 0.1, 'train_tokens_per_second': 123.4}", 123.4),
        ('{"train_tokens_per_second": "123.4"}', 123.4),
        ("Step 5 | loss:2.1 lr:0.0003 tokens_per_second_per_gpu:831.2 peak_memory_active:3.1", 831.2),
        ("step=20 loss=4.311 acc=0.031 tok/s=12,345 queue=1", 12345),
        ("step 3: loss 2.1 | tokens_per_s=5e3", 5000),
        ("throughput/tokens_per_sec: 9.9e+04", 99000),
        ("tok/sec: 12,345 | mfu: 40", 12345),
        ("tokens/s: 900 MFU 40 %", 900),
        ("tokens/s: 1.5M, loss 2", 1.5e6),
        ("tokens per second: 77", 77),
        ("iter 5 | loss 3.2 | 1.2k tokens/s", 1200),
        ("speed 850 tokens per second", 850),
        ("train: 100%|██| 10/10 [00:01<00:00, 1.2ktok/s]", 1200),
        ("Epoch 0: 12%|█▏  | 10/80 [00:10<01:10, 1.00s/it, loss=2.1, tok/s=987]", 987),
        ("total_tokens_per_second = 5", 5),
    ],
)
def test_known_forms(tmp_path: Path, line: str, expected: float) -> None:
    assert [pytest.approx(expected)] == read(tmp_path, line)


@pytest.mark.parametrize(
    "line",
    [
        "step 5 loss 2.1 lr 3e-4",
        "elapsed time per iteration (ms): 812.3 | throughput per GPU (TFLOP/s/GPU): 101.2 | loss scale: 1.0",
        "12%|█▏  | 10/80 [00:10<01:10, 1.00s/it]",
        "tps: nan",
        "tok/s=0",
        "steps: 12",
        "https: 443",
        "tokens: 1234",
    ],
)
def test_lines_without_a_rate_give_none(tmp_path: Path, line: str) -> None:
    assert [] == read(tmp_path, line)


def test_carriage_returns_end_a_line_too(tmp_path: Path) -> None:
    assert [1, 2, 3] == read(tmp_path, "x tok/s=1\rx tok/s=2\r\nx tok/s=3")


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        (r"speed: ([\d.]+)", "speed: 12.5", [12.5]),
        (r"(\w+): (?P<value>\S+) (?P<unit>\w)", "speed: 1,5 k", [15_000]),
        (r"(\w+)=(?P<value>\d+)(?P<unit>\w*)", "speed=3furlongs", []),
        (r"speed (\S+)", "speed nan", []),
        (r"speed (\S+)", "speed inf", []),
        (r"speed (\S+)", "speed fast", []),
        (r"speed(?: (\d+))?", "speed", []),
    ],
)
def test_patterns_of_the_user(tmp_path: Path, pattern: str, line: str, expected: list[float]) -> None:
    assert expected == read(tmp_path, line, pattern)


@pytest.mark.parametrize("pattern", ["(", "[", "*", "(?P<value>", r"tok/s=\d+", "x"])
def test_patterns_that_cannot_work_are_usage_errors(pattern: str) -> None:
    with pytest.raises(UsageError, match="--tok-per-s") as caught:
        compile_pattern(pattern)

    assert pattern == caught.value.offered


@pytest.mark.parametrize("pattern", ["a{99999999999}(x)", f"{'(' * 3000}x{')' * 3000}"])
def test_patterns_that_are_too_large_to_be_read_are_usage_errors(pattern: str) -> None:
    with pytest.raises(UsageError, match="--tok-per-s is no regular expression") as caught:
        compile_pattern(pattern)

    assert pattern.startswith(caught.value.offered or "nothing")
    assert caught.value.next_command


def test_only_what_is_new_is_read_and_half_a_line_waits(tmp_path: Path) -> None:
    log = tmp_path / "log"
    readings = LogReadings(log, "")
    grown = [readings.poll(1)]
    for at_ns, text in ((2, "tok/s=1"), (3, "0\n"), (4, ""), (5, "tok/s=20\n")):
        with log.open("a") as file:
            file.write(text)
        grown.append(readings.poll(at_ns))

    assert [False, False, True, False, True] == grown
    assert [(3, 10), (5, 20)] == [(reading.at_ns, reading.tok_per_s) for reading in readings.readings]


@pytest.mark.parametrize("line", ["step=3 loss=nan acc=0", "{'loss': nan}", "train_loss: -inf", "Loss: NaN"])
def test_a_loss_that_is_no_number_is_noticed(tmp_path: Path, line: str) -> None:
    (tmp_path / "log").write_text(f"loss=1\n{line}\n")
    readings = LogReadings(tmp_path / "log", "")
    readings.poll(0)

    assert line in readings.wrong


def test_a_validation_loss_that_is_not_there_yet_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("val_loss=nan loss=2.1 closs=nano\n")
    readings = LogReadings(tmp_path / "log", "")
    readings.poll(0)

    assert "" == readings.wrong


@given(st.binary(max_size=200))
def test_no_output_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    log = tmp_path_factory.mktemp("log") / "log"
    log.write_bytes(content + b"\ntok/s=7\n")
    readings = LogReadings(log, "")
    readings.poll(0)

    assert 7 == readings.readings[-1].tok_per_s
