"""What a measuring process leaves behind: a line a part as soon as it is known, so that a killed one still tells."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Parts = dict[str, dict[str, Any]]
"""Part name to what it found, or to `{"error": …}`."""


class Record:
    """Appends parts to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start_s = time.monotonic()

    def part(self, name: str, measure: Callable[[], Mapping[str, Any]]) -> bool:
        """
        Measure one part; a failure is its result, and the next part goes on.

        Returns:
            Whether it succeeded.
        """
        try:
            found = dict(measure())
        # Out of memory, a compiler's error, a library that moved: whatever it is, it belongs into the part's row.
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            found = {"error": f"{type(error).__name__}: {error}"[:500]}
        line = {"part": name, "at_s": round(time.monotonic() - self._start_s, 1), "found": found}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return "error" not in found


def read_parts(path: Path) -> Parts:
    """Whatever whole lines there are; none where the process died before its first."""
    if not path.exists():
        return {}
    parts: Parts = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        # A killed process can leave half a line, only at the end.
        try:
            whole = json.loads(line)
        except json.JSONDecodeError:
            break
        parts[whole["part"]] = whole["found"] | {"at_s": whole["at_s"]}
    return parts
