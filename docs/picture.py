"""
The README's picture from a real run: `python docs/picture.py COMMAND …` runs it in colour and draws what it prints.

Only the newest output is drawn; nothing is edited.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from io import StringIO
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
    console = Console(record=True, width=WIDTH, file=StringIO())
    console.print(Text.from_ansi("\n".join(lines[:MAX_LINES])), soft_wrap=True)
    if len(lines) > MAX_LINES:
        console.print("…", style="dim")
    shown = " ".join(Path(part).name if index == 0 else part for index, part in enumerate(command))
    svg = console.export_svg(title=f"$ {shown}")
    # The picture opens without a network: rich would load its font from one.
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main()
