"""The table shows both acceptance lengths and every difference; the JSON holds all and is JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flashprof.contracts.errors import ToolError
from pipeline.evaluate.evaluation import Effort, Evaluation, TextResult
from pipeline.evaluate.generate import Difference, Generation
from pipeline.evaluate.heldout import HeldOut
from pipeline.evaluate.report import evaluation_to_json, table_lines, write_json

HELD_OUT = HeldOut(
    num_right_K=(30, 20, 0),
    num_supervised_K=(40, 40, 0),
    num_blocks=40,
    num_accepted=44,
    weighted_loss=90.0,
    weight=45.0,
)
TIE = Difference(position=3, top2_gap=1.5e-5, said_gap=2.5e-5)
BUG = Difference(position=4, top2_gap=0.25, said_gap=float("inf"))


def text(sample: int, difference: Difference | None = None) -> TextResult:
    return TextResult(
        sample=sample,
        num_prompt_tokens=4,
        own=Generation(tokens=(1, 2, 3, 4), accepted_lengths=(), seconds=2.0),
        drafted=Generation(tokens=(1, 2, 3, 4), accepted_lengths=(2, 1), seconds=1.0),
        difference=difference,
    )


def evaluation(*texts: TextResult, held_out: HeldOut = HELD_OUT) -> Evaluation:
    return Evaluation(
        effort=Effort(),
        device="cpu",
        dtype="float32",
        tie_limit=1e-3,
        num_batches=2,
        held_out=held_out,
        texts=texts,
    )


def test_the_table_says_what_was_measured() -> None:
    lines = table_lines(evaluation(text(7), text(8)))

    assert [
        "held-out text: 40 blocks of 2 batches",
        "  slot                   1     2     3",
        "  accuracy           0.750 0.500   nan",
        "  loss               2.000",
        "  acceptance length  2.100 (1.0: a drafter that gets nothing right)",
        "generation: 8 tokens for 2 prompts, float32 on cpu",
        "  acceptance length  1.500 (1.0: a drafter that gets nothing right)",
        "  lossless           2 of 2 prompts",
        "  tok/s              2.0 the target alone, 4.0 with the drafter: × 2.00",
    ] == lines


def test_every_difference_is_named_with_both_gaps() -> None:
    lines = table_lines(evaluation(text(7, TIE), text(8), text(9, BUG)))
    named = [line for line in lines if "differs" in line]

    assert "  lossless           1 of 3 prompts" in lines
    assert 2 == len(named)
    assert "sample 7 differs from token 3 on, a rounding tie" in named[0]
    assert "1.5e-05" in named[0]
    assert "2.5e-05" in named[0]
    assert "sample 9 differs from token 4 on, NOT a rounding tie" in named[1]


def test_a_table_ends_where_the_evaluation_was_interrupted() -> None:
    assert [] == table_lines(evaluation(held_out=HeldOut()))
    assert not any("generation" in line for line in table_lines(evaluation()))


def test_long_blocks_take_two_lines_of_slots() -> None:
    slots = HeldOut(num_right_K=(1,) * 15, num_supervised_K=(2,) * 15, num_blocks=2, num_accepted=1)
    rows = [line.split()[1:] for line in table_lines(evaluation(held_out=slots)) if line.startswith("  slot")]

    assert [str(slot) for slot in range(1, 16)] == rows[0] + rows[1]


def test_json_holds_numbers_texts_and_versions_and_no_nan(tmp_path: Path) -> None:
    file = tmp_path / "evaluation.json"
    write_json(file, evaluation_to_json(evaluation(text(7, BUG)), {"step": 5}))
    read = json.loads(file.read_text(encoding="utf-8"), parse_constant=pytest.fail)

    assert 5 == read["step"]
    assert [0.75, 0.5, None] == read["held_out"]["accuracy"]
    assert pytest.approx(2.1) == read["held_out"]["acceptance_length"]
    assert (1.5, 0, 1) == tuple(read["generation"][name] for name in ("acceptance_length", "num_lossless", "num_wrong"))
    assert [1, 2, 3, 4] == read["generation"]["texts"][0]["drafted"]["tokens"]
    assert {"position": 4, "top2_gap": 0.25, "said_gap": None} == read["generation"]["texts"][0]["difference"]
    assert {"python", "torch", "transformers", "datasets", "device"} == set(read["versions"])
    assert [file] == list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ToolError, match="cannot write"):
        write_json(tmp_path / "file" / "evaluation.json", {})


def test_the_folder_of_the_file_is_made(tmp_path: Path) -> None:
    write_json(tmp_path / "new" / "evaluation.json", {})

    assert "{}\n" == (tmp_path / "new" / "evaluation.json").read_text(encoding="utf-8")


def test_the_named_device_is_the_one_that_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "some GPU")
    on_cpu, on_gpu = (evaluation_to_json(replace(evaluation(), device=device), {}) for device in ("cpu", "cuda"))

    assert "some GPU" != on_cpu["versions"]["device"]
    assert "some GPU" == on_gpu["versions"]["device"]
