"""What is of a tree, and what else two launches differ in."""

from __future__ import annotations

from flashprof.app.gate_study import beside_source
from flashprof.contracts.cell import Cell


def test_where_a_tree_lies_and_the_files_in_it_are_its_own() -> None:
    base = Cell(
        {
            "workload.cwd": "/a",
            "workload.file.conf/train.yaml": "1",
            "workload.file./data/tokens.bin": "1",
            "workload.declaration": "1",
        }
    )
    head = Cell(dict.fromkeys(base.facts, "2"))

    assert ["workload.declaration", "workload.file./data/tokens.bin"] == [
        item.name for item in beside_source(base.differences(head))
    ]
