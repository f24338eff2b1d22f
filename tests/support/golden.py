"""Texts against files that were read and found good."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "flashprof" / "report" / "golden"


def check_golden(name: str, text: str) -> None:
    """Compare *text* with a golden file, or write it, where `FLASHPROF_UPDATE_GOLDEN` is set."""
    path = GOLDEN / name
    if os.environ.get("FLASHPROF_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")

    assert path.read_text(encoding="utf-8") == text
