"""What `flashprof calibrate` prints: the page, short."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashprof.contracts.calibration import Calibration
from flashprof.report import calibration_sentences as sentences
from flashprof.report.page import heading, make_console, plain_table, print_lines, print_paths, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console


def render_calibration(calibration: Calibration, *, color: bool, width: int) -> str:
    """
    Draw a calibration for a terminal.

    Args:
        calibration: What was found.
        color: Whether to write ANSI sequences.
        width: Columns; longer text wraps, longer names are cut.
    """
    console = make_console(color=color, width=width)
    print_lines(console, [sentences.headline(calibration)], style="bold")
    print_lines(console, [sentences.finds(calibration)], style="bold")
    print_lines(console, [sentences.cell(calibration), sentences.run(calibration)], style="dim")
    titles = (("equal cells compared", "left"), ("false alarms", "right"), ("interval held the truth", "right"))
    heading(console, "Errors", "looked at after every block; with 95 % intervals")
    _print_table(console, titles, (row[:3] for row in sentences.trial_rows(calibration)))
    heading(console, "Power", "smallest slow-down found in 90 % of trials")
    columns = (("within", "left"), ("hot", "right"), ("cold", "right"))
    _print_table(console, columns, sentences.smallest_rows(calibration))
    heading(console, "Noise", "standard deviation of tok/s by source, with 95 % interval")
    columns = (("source", "left"), ("sd", "right"), ("interval", "right"))
    _print_table(console, columns, (row[:3] for row in sentences.noise_rows(calibration)))
    heading(console, "Settings", "recommended; the page says why")
    _print_table(
        console, (("setting", "left"), ("value", "right")), (row[:2] for row in sentences.setting_rows(calibration))
    )
    console.print()
    print_lines(console, (f"note: {note}" for note in calibration.notes), style="yellow")
    print_paths(console, calibration.paths)
    return text_of(console)


def _print_table(console: Console, columns: tuple[tuple[str, str], ...], rows: Iterable[tuple[str, ...]]) -> None:
    table = plain_table(*columns)
    for row in rows:
        table.add_row(*row)
    console.print(table)
