"""
The README's picture from a real run: `python docs/picture.py COMMAND …` runs it in colour and draws what it prints.

Only the newest output is drawn; nothing is edited.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 100
MAX_LINES = 46
PICTURE = Path(__file__).parent / "run.svg"


def main() -> None:
    """Run the command and write `docs/run.svg`."""
    command = sys.argv[1:]
    env = {**os.environ, "CLICOLOR_FORCE": "1"}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    lines = done.stdout.splitlines()
    console = Console(record=True, width=WIDTH, file=Path(os.devnull).open("w", encoding="utf-8"))
    console.print(Text.from_ansi("\n".join(lines[:MAX_LINES])), soft_wrap=True)
    if len(lines) > MAX_LINES:
        console.print("…", style="dim")
    shown = " ".join(Path(part).name if index == 0 else part for index, part in enumerate(command))
    console.save_svg(str(PICTURE), title=f"$ {shown}")


if __name__ == "__main__":
    main()
