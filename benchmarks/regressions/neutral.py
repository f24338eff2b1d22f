"""Commits that change nothing of the speed: documents, comments, renames of a local name, and what else is usual."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from benchmarks.regressions.case import Files

NOTES = "docs/notes.md"
CI = ".github/workflows/check.yml"
TOPICS = (
    "batches",
    "masks",
    "the queue",
    "checkpoints",
    "metrics",
    "topologies",
    "the cache",
    "seeds",
    "buckets",
    "taps",
)
SUFFIXES = ("now", "here", "found", "made", "given")

Functions = ast.FunctionDef | ast.AsyncFunctionDef
Place = tuple[int, int, int]
"""Line from 0, first and end byte within it."""


@dataclass(frozen=True)
class Change:
    """What a commit does."""

    subject: str
    files: Files
    """New text of each file that it touches."""


Filler = Callable[[random.Random, Mapping[str, str], int], Change | None]
"""(randomness, all files, the commit's number) → a change; None where this draw found no place for one."""


def docs(rng: random.Random, files: Mapping[str, str], number: int) -> Change:
    """A line more in the notes."""
    topic = rng.choice(TOPICS)
    return Change(f"Docs: a note on {topic}", {NOTES: f"{files.get(NOTES, '')}- {number}: more on {topic}.\n"})


def test(rng: random.Random, files: Mapping[str, str], number: int) -> Change:
    """A test more."""
    del files
    text = f'"""A sum."""\n\n\ndef test_sum_{number}() -> None:\n    assert {number} == sum([{number - 1}, 1])\n'
    return Change(f"Tests: one more on {rng.choice(TOPICS)}", {f"tests/test_sum_{number}.py": text})


def ci(rng: random.Random, files: Mapping[str, str], number: int) -> Change:
    """Another time limit in the CI's file."""
    del files
    minutes = rng.randrange(10, 60)
    text = f"# {number}\non: [push]\njobs:\n  check:\n    runs-on: ubuntu-latest\n    timeout-minutes: {minutes}\n"
    return Change(f"CI: {minutes} minutes", {CI: text})


def comment(rng: random.Random, files: Mapping[str, str], number: int) -> Change | None:
    """A comment above a function or class."""
    name = _pick(rng, files)
    defined = [node for node in ast.parse(files[name]).body if isinstance(node, Functions | ast.ClassDef)]
    if not defined:
        return None
    node = rng.choice(defined)
    line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
    lines = files[name].splitlines(keepends=True)
    lines.insert(line, f"# Note {number}: see {rng.choice(TOPICS)}.\n")
    return Change(f"{_title(name)}: say where {node.name} is explained", {name: "".join(lines)})


def helper(rng: random.Random, files: Mapping[str, str], number: int) -> Change:
    """A function that nobody calls yet."""
    name = _pick(rng, files)
    bound = rng.randrange(2, 1000)
    text = f"\n\ndef _is_over_{number}(value: float) -> bool:\n    return value > {bound}\n"
    return Change(f"{_title(name)}: a helper for what follows", {name: files[name] + text})


def rename(rng: random.Random, files: Mapping[str, str], number: int) -> Change | None:
    """Another word for a local name."""
    del number
    name = _pick(rng, files)
    function = _pick_function(rng, files[name])
    locals_ = _renameable(function) if function else []
    if function is None or not locals_:
        return None
    old = rng.choice(locals_)
    new = f"{old}_{rng.choice(SUFFIXES)}"
    if new in files[name]:
        return None
    places = [_place(node) for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == old]
    text = _replace(files[name], places, new)
    return Change(f"{_title(name)}: {new} instead of {old} in {function.name}", {name: text})


def typing(rng: random.Random, files: Mapping[str, str], number: int) -> Change | None:
    """A type for a local name that is set once."""
    del number
    name = _pick(rng, files)
    function = _pick_function(rng, files[name])
    names = [] if function is None else [*_set_once(function)]
    if function is None or not names:
        return None
    node = rng.choice(names)
    text = _replace(files[name], [_place(node)], f"{node.id}: object")
    return Change(f"{_title(name)}: a type for {node.id} in {function.name}", {name: text})


FILLERS: Mapping[str, Filler] = MappingProxyType(
    {
        "docs": docs,
        "comment": comment,
        "rename": rename,
        "helper": helper,
        "test": test,
        "typing": typing,
        "ci": ci,
    }
)


def _pick(rng: random.Random, files: Mapping[str, str]) -> str:
    return rng.choice(sorted(name for name in files if name.startswith("pipeline/") and name.endswith(".py")))


def _title(name: str) -> str:
    return name.removeprefix("pipeline/").removesuffix(".py").replace("/", ": ").replace("_", " ")


def _pick_function(rng: random.Random, text: str) -> Functions | None:
    """One whose names all belong to one scope."""
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Global, ast.Nonlocal)
    functions = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Functions) and not any(isinstance(x, inner) for x in ast.walk(node) if x is not node)
    ]
    return rng.choice(functions) if functions else None


def _renameable(function: Functions) -> list[str]:
    """Names that are set in it, as nothing but names."""
    nodes = list(ast.walk(function))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    # These bind a name without an `ast.Name`; inside an f-string, Python 3.11 says wrong places.
    bound = {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {
        node.name for node in nodes if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name
    }
    bound |= {(alias.asname or alias.name).partition(".")[0] for alias in nodes if isinstance(alias, ast.alias)}
    strings = (part for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node))
    bound |= {part.id for part in strings if isinstance(part, ast.Name)}
    return sorted(stored - bound)


def _set_once(function: Functions) -> Iterator[ast.Name]:
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    targets = [node.targets for node in ast.walk(function) if isinstance(node, ast.Assign)]
    for target in (names_[0] for names_ in targets if len(names_) == 1):
        if isinstance(target, ast.Name) and sum(name.id == target.id for name in names) == 1:
            yield target


def _place(node: ast.Name) -> Place:
    assert node.end_col_offset is not None
    return node.lineno - 1, node.col_offset, node.end_col_offset


def _replace(text: str, places: list[Place], new: str) -> str:
    """Offsets of `ast` count bytes."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for line, start, end in sorted(places, reverse=True):
        lines[line] = lines[line][:start] + new.encode() + lines[line][end:]
    return b"".join(lines).decode()
