"""
Which lines of the subject's sources lie in which phase: `with emitter.span("mask"):` blocks, found in the sources.

py-spy names a file and a line for each frame, and no phase. The sources are read when a run is summarised, since a
bisected commit's worktree is gone later, and kept in `samples/phase_lines.json`.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import FormatError
from flashprof.sample.folded import file_names, is_library, shorten, with_short_names
from flashprof.sample.stack_files import find_stack_files, is_plain, read_lines

FILE_NAME = "phase_lines.json"
FORMAT, VERSION = "flashprof-phase-lines", 1
MAX_SOURCE_BYTES = 2_000_000
"""A larger file is generated, and parsing it takes seconds."""
_MARK = b"span("
_CHILDREN = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of one file, both ends included."""

    first_line: int
    last_line: int
    phase: str
    """Empty for a function that is defined within a block: it may run anywhere."""


@dataclass(frozen=True, slots=True)
class PhaseLines:
    """The blocks of each file, in source order: of two that hold a line, the later is the inner one."""

    blocks: Mapping[str, Sequence[Block]] = field(default_factory=dict)
    """By the file's name as frames have it, shortened."""

    def phase_of(self, file: str, line: int) -> str:
        """The innermost phase whose block holds the line; empty where there is none."""
        held = [block.phase for block in self.blocks.get(file, ()) if block.first_line <= line <= block.last_line]
        return held[-1] if held else ""


def find_blocks(source: str | bytes) -> tuple[Block, ...]:
    """The blocks of `with ….span("phase")` and `with span("phase")`; none where the text is not Python."""
    try:
        with warnings.catch_warnings():
            # An invalid escape in the subject's source is not our user's concern.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(_walk(tree.body, is_inside=False))


def keep_phase_lines(samples: Path, *, phases: Collection[str]) -> PhaseLines:
    """
    Find the blocks of the sources that a run's stacks name, and keep them.

    The full paths in the stack files are shortened on the way: they are of use only while the sources are there, and
    two machines, or two worktrees, must name a function alike.

    Args:
        samples: The run's samples, just taken.
        phases: Those that the run's events have: other libraries have a `span`, too.

    Returns:
        What `read_phase_lines` will read.

    Raises:
        OSError: The disk is full.
    """
    files = {file: read_lines(file) for file in find_stack_files(samples)}
    full = sorted({name for lines in files.values() for name in file_names(lines) if name.startswith("/")})
    if not full:
        return read_phase_lines(samples)
    short = {name: _short_name(name) for name in full}
    found = PhaseLines(_by_short_name(short, phases))
    for file, lines in files.items():
        _replace(file.path, "".join(f"{line}\n" for line in with_short_names(lines, short)))
    _replace(samples / FILE_NAME, _to_json(found))
    return found


def read_phase_lines(samples: Path) -> PhaseLines:
    """
    What `keep_phase_lines` left; no blocks where it left nothing.

    Raises:
        FormatError: Another format or version, or broken.
    """
    path = samples / FILE_NAME
    if not is_plain(path):
        return PhaseLines()
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if (document["format"], document["version"]) != (FORMAT, VERSION):
            raise FormatError(
                "phase lines of another version",
                where=str(path),
                offered=f"{document['format']} {document['version']}"[:200],
                allowed=f"{FORMAT} {VERSION}",
            )
        return PhaseLines({str(name): tuple(map(_block, rows)) for name, rows in document["files"].items()})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"broken phase lines: {type(error).__name__}", where=str(path)) from error


def _walk(nodes: Sequence[ast.AST], *, is_inside: bool) -> Iterator[Block]:
    # Statements only: an expression may be nested a thousand deep.
    for node in nodes:
        inside = is_inside
        if isinstance(node, ast.With | ast.AsyncWith):
            blocks = tuple(_opened(node))
            yield from blocks
            inside = inside or bool(blocks)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_inside:
            yield Block(node.body[0].lineno, node.end_lineno or node.lineno, "")
        for name in _CHILDREN:
            children = getattr(node, name, None)
            if isinstance(children, list):
                yield from _walk(children, is_inside=inside)


def _opened(node: ast.With | ast.AsyncWith) -> Iterator[Block]:
    for index, item in enumerate(node.items):
        phase = _phase(item.context_expr)
        if phase:
            # The `with` line itself enters and leaves; what further items do on it is within the phase.
            inner: Sequence[ast.expr | ast.stmt] = [later.context_expr for later in node.items[index + 1 :]]
            yield Block((inner or node.body)[0].lineno, node.end_lineno or node.lineno, phase)


def _phase(call: ast.expr) -> str:
    if not isinstance(call, ast.Call) or not call.args:
        return ""
    function, first = call.func, call.args[0]
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name == "span" and isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return ""


def _by_short_name(short: Mapping[str, str], phases: Collection[str]) -> dict[str, tuple[Block, ...]]:
    found: dict[str, tuple[Block, ...]] = {}
    unlike = set()
    for full, name in short.items():
        blocks = tuple(block for block in find_blocks(_read_source(Path(full))) if block.phase in {*phases, ""})
        if found.setdefault(name, blocks) != blocks:
            unlike.add(name)
    # Two files of one short name cannot be told apart in a stack: no phase rather than a wrong one.
    return {name: blocks for name, blocks in found.items() if blocks and name not in unlike}


def _read_source(path: Path) -> bytes:
    """Empty for what cannot hold a phase."""
    try:
        if path.suffix != ".py" or not path.is_file() or path.stat().st_size > MAX_SOURCE_BYTES:
            return b""
        source = path.read_bytes()
    except (OSError, ValueError):
        return b""
    return source if _MARK in source else b""


def _short_name(full: str) -> str:
    """From its outermost package on, as py-spy itself shortens; or by the path alone where the file is gone."""
    path = Path(full)
    if is_library(full) or not path.is_file():
        return shorten(full)
    root = next(parent for parent in path.parents if not (parent / "__init__.py").is_file() or parent == parent.parent)
    return path.relative_to(root).as_posix()


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _to_json(lines: PhaseLines) -> str:
    files = {
        name: [[block.first_line, block.last_line, block.phase] for block in blocks]
        for name, blocks in sorted(lines.blocks.items())
    }
    return json.dumps({"format": FORMAT, "version": VERSION, "files": files}, indent=1) + "\n"


def _block(row: Any) -> Block:
    first_line, last_line, phase = row
    if not (type(first_line) is type(last_line) is int and isinstance(phase, str)):
        raise TypeError(row)
    return Block(first_line, last_line, phase)
