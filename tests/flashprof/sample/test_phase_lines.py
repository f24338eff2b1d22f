"""`with emitter.span(…)` blocks become line ranges, which outlive the sources."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError
from flashprof.sample.phase_lines import (
    FILE_NAME,
    MAX_SOURCE_BYTES,
    Block,
    PhaseLines,
    find_blocks,
    keep_phase_lines,
    read_phase_lines,
)

SOURCE = """\
def step(self, span):
    prepare()
    with self._emitter.span("mask", device=True):
        build(
            1,
        )
        with span("inner"):
            deep()
        after()
    with span("one line"): here()
    done()
"""
PHASES = ("mask", "inner", "one line")


@pytest.mark.parametrize(
    ("line", "phase"),
    [(2, ""), (3, ""), (4, "mask"), (5, "mask"), (6, "mask"), (7, "mask"), (8, "inner"), (9, "mask"),
     (10, "one line"), (11, "")],
)  # fmt: skip
def test_each_line_is_in_the_innermost_block_that_holds_it(line: int, phase: str) -> None:
    assert phase == _lines(SOURCE).phase_of("a.py", line)


def test_further_items_of_a_with_are_within_the_phase() -> None:
    lines = _lines("""\
        with emitter.span("room"), room:
            take()
        with (
            room,
            emitter.span("a"),
            span("b"),
        ):
            work()
    """)

    assert ["room", "room", "", "", "", "a", "a", "b"] == [lines.phase_of("a.py", line) for line in range(1, 9)]


def test_blocks_are_found_in_every_kind_of_statement() -> None:
    lines = _lines("""\
        class C:
            async def f(self):
                try:
                    for x in y:
                        async with lane.span("p"):
                            work()
                except E:
                    match x:
                        case 1:
                            with span("q"):
                                work()
                finally:
                    with span("r"):
                        work()
    """)

    assert ["p", "q", "r"] == [lines.phase_of("a.py", line) for line in (6, 11, 14)]


def test_a_function_defined_in_a_block_may_run_anywhere() -> None:
    lines = _lines("""\
        with span("outer"):
            def later():
                work()
                with span("own"):
                    work()
            now()
    """)

    assert ["", "own", "outer"] == [lines.phase_of("a.py", line) for line in (3, 5, 6)]


@pytest.mark.parametrize(
    "line",
    ["with span(name):", "with span(f'{x}'):", "with span():", "with span(3):", "with other('x'):", "with span:",
     "with a.span.x('p'):", "with span(phase='x'):"],
)  # fmt: skip
def test_only_a_span_with_a_literal_name_is_a_phase(line: str) -> None:
    assert () == find_blocks(f"{line}\n    work()\n")


@pytest.mark.parametrize("source", ["with span('x'", "print 'two'", b"\xff\xfe\x00span(", "\0", "(" * 5_000, "'\\q'"])
def test_what_is_not_python_has_no_phases(source: str | bytes) -> None:
    assert () == find_blocks(source)


def test_an_expression_of_any_depth_is_read_past() -> None:
    deep = "x = " + "+".join(["1"] * 800)

    assert (Block(3, 3, "p"),) == find_blocks(f"{deep}\nwith span('p'):\n    work()\n")


def test_the_lines_of_a_run_outlive_its_sources(tmp_path: Path) -> None:
    tree, samples = _tree(tmp_path), tmp_path / "samples"
    path = _stack(
        samples, f"thread (1): MainThread;run ({tree}/pipeline/train/step.py:4);get (/usr/lib/python3.11/queue.py:9) 7"
    )
    kept = keep_phase_lines(samples, phases=PHASES)
    (tree / "pipeline/train/step.py").unlink()

    assert "mask" == kept.phase_of("pipeline/train/step.py", 4)
    assert kept == read_phase_lines(samples) == keep_phase_lines(samples, phases=())
    assert "thread (1): MainThread;run (pipeline/train/step.py:4);get (queue.py:9) 7\n" == path.read_text()
    assert {FILE_NAME, "profile-1"} == {path.name for path in samples.iterdir()}


def test_a_span_that_the_run_never_emitted_is_another_librarys(tmp_path: Path) -> None:
    _stack(tmp_path / "samples", f"run ({_tree(tmp_path)}/pipeline/train/step.py:4) 7")
    kept = keep_phase_lines(tmp_path / "samples", phases=["inner"])

    assert ["", "inner"] == [kept.phase_of("pipeline/train/step.py", line) for line in (4, 8)]


def test_two_files_of_one_short_name_have_phases_only_where_they_agree(tmp_path: Path) -> None:
    stacks = []
    for name, source in (("a", SOURCE), ("b", SOURCE), ("c", "# moved\n" + SOURCE)):
        (tmp_path / name).mkdir()
        for file in ("same.py", "train.py"):
            (tmp_path / name / file).write_text(SOURCE if file == "same.py" else source)
            stacks.append(f"run ({tmp_path / name / file}:4) 1")
    _stack(tmp_path / "samples", *stacks)
    kept = keep_phase_lines(tmp_path / "samples", phases=PHASES)

    assert ["mask", ""] == [kept.phase_of(file, 4) for file in ("same.py", "train.py")]


def test_sources_that_cannot_be_read_have_no_phases(tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(SOURCE + "#" * MAX_SOURCE_BYTES)
    (tmp_path / "notes.txt").write_text(SOURCE)
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "broken.py").write_text(SOURCE + "(")
    names = ("large.py", "notes.txt", "folder.py", "broken.py", "gone.py")
    path = _stack(tmp_path / "samples", *(f"run ({tmp_path / name}:4) 1" for name in names))
    kept = keep_phase_lines(tmp_path / "samples", phases=PHASES)

    assert PhaseLines() == kept
    assert len(names) == len(path.read_text().splitlines())


def test_a_run_without_stacks_has_no_phases(tmp_path: Path) -> None:
    assert PhaseLines() == keep_phase_lines(tmp_path, phases=PHASES)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        [], {}, {"format": "flashprof-phase-lines", "version": 1}, {"format": "x", "version": 1, "files": {}},
        {"format": "flashprof-phase-lines", "version": 2, "files": {}},
        {"format": "flashprof-phase-lines", "version": 1, "files": []},
        {"format": "flashprof-phase-lines", "version": 1, "files": {"a.py": [[1, 2]]}},
        {"format": "flashprof-phase-lines", "version": 1, "files": {"a.py": [[1, "2", "p"]]}},
    ],
)  # fmt: skip
def test_another_file_is_refused_with_its_place(tmp_path: Path, content: object) -> None:
    (tmp_path / FILE_NAME).write_text(json.dumps(content))

    with pytest.raises(FormatError) as caught:
        read_phase_lines(tmp_path)
    assert str(tmp_path / FILE_NAME) == caught.value.where


@given(st.lists(st.sampled_from(["nest", "work", "leave"]), max_size=12))
def test_nesting_is_followed_whatever_its_shape(moves: list[str]) -> None:
    source, expected, depth = ["top()"], [""], 0
    for move in moves:
        indent = "    " * depth
        if move == "nest":
            source += [f"{indent}with span('p{depth + 1}'):", f"{indent}    work()"]
            expected += [f"p{depth}" if depth else "", f"p{depth + 1}"]
            depth += 1
        elif move == "leave":
            depth = max(0, depth - 1)
        else:
            source.append(f"{indent}work()")
            expected.append(f"p{depth}" if depth else "")
    lines = PhaseLines({"a.py": find_blocks("\n".join(source))})

    assert expected == [lines.phase_of("a.py", line) for line in range(1, len(source) + 1)]


def _lines(source: str) -> PhaseLines:
    return PhaseLines({"a.py": find_blocks(textwrap.dedent(source))})


def _tree(folder: Path) -> Path:
    package = folder / "worktree" / "pipeline" / "train"
    package.mkdir(parents=True)
    for path in (package, package.parent):
        (path / "__init__.py").touch()
    (package / "step.py").write_text(SOURCE)
    return folder / "worktree"


def _stack(samples: Path, *lines: str) -> Path:
    path = samples / "profile-1" / "drafter-0.folded"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
