"""Text that every machine has: the sources of Python's own library, in pieces of varied length."""

from __future__ import annotations

import os
import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

SKIPPED_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "encodings"}
)
"""`encodings` is 1.3 MB of code tables, which a byte-level BPE turns into the longest and dullest samples."""
SMALLEST_FILE_BYTES = 512
SMALLEST_PIECE_BYTES = 128
SHORTEST_TARGET_SHARE = 0.04
LONGEST_TARGET_SHARE = 1.1
TARGET_SKEW = 1.5
"""1 would draw evenly. 1.5 gives the bounds 128, 256, 384, 512, 768, 1024 about 3, 6, 8, 9, 23, 52 % of the tokens."""
OVERSHOOT = 1.25
"""A piece that finds no definition to end at is cut at any line once it is this much longer than meant."""

_DEFINITION = re.compile(r"(?: {4})?(?:def |class |async def |@)")


def stdlib_documents(max_bytes: int, *, longest_bytes: int = 4096) -> Iterator[str]:
    """
    The standard library's sources, cut into documents: the same in every process of one Python version.

    Args:
        max_bytes: Bound on the sum of all documents.
        longest_bytes: Bytes of a document that just fills the longest sample; lengths spread up to there so
            that a length bucket's share of the tokens grows with its bounds, as in real completions.
    """
    yield from documents_in(Path(sysconfig.get_path("stdlib")), max_bytes, longest_bytes=longest_bytes)


def documents_in(root: Path, max_bytes: int, *, longest_bytes: int = 4096) -> Iterator[str]:
    """Like `stdlib_documents`, for the Python sources below *root*."""
    rng = random.Random(0)  # noqa: S311
    num_bytes_left = max_bytes
    for path in _source_files(root):
        for piece in _pieces(_read(path), rng, longest_bytes):
            num_bytes_left -= len(piece.encode())
            if num_bytes_left < 0:
                return
            yield piece


def _source_files(root: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(root):
        # Changed in place: os.walk then neither enters them nor takes the file system's order.
        subfolders[:] = sorted(set(subfolders) - SKIPPED_FOLDERS)
        # _sysconfigdata holds paths and flags of the machine that built Python.
        yield from (Path(folder, n) for n in sorted(names) if n.endswith(".py") and not n.startswith("_sysconfigdata"))


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    return text if len(text) >= SMALLEST_FILE_BYTES else ""


def _pieces(text: str, rng: random.Random, longest_bytes: int) -> Iterator[str]:
    """Join lines until a drawn length is reached and a definition begins."""
    lines: list[str] = []
    num_bytes = 0
    target_bytes = _draw_target(rng, longest_bytes)
    for line in text.splitlines(keepends=True):
        ends_here = _DEFINITION.match(line) is not None or num_bytes >= OVERSHOOT * target_bytes
        if num_bytes >= target_bytes and ends_here:
            yield "".join(lines)
            lines.clear()
            num_bytes = 0
            target_bytes = _draw_target(rng, longest_bytes)
        lines.append(line)
        num_bytes += len(line.encode())
    if num_bytes >= SMALLEST_PIECE_BYTES:
        yield "".join(lines)


def _draw_target(rng: random.Random, longest_bytes: int) -> int:
    share = SHORTEST_TARGET_SHARE + (LONGEST_TARGET_SHARE - SHORTEST_TARGET_SHARE) * rng.random() ** TARGET_SKEW
    return max(SMALLEST_PIECE_BYTES, int(share * longest_bytes))
