"""Progress of a search: a panel with the leading hypotheses on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flashprof.app.search_progress import SearchProgress
from flashprof.cli.terminal import BarProgress, LineProgress, make_bars
from flashprof.contracts.search import SearchLook

if TYPE_CHECKING:
    import rich.console
    import rich.progress


@contextmanager
def search_progress_on_stderr() -> Iterator[SearchProgress]:
    """As `progress_on_stderr`, with what is believed."""
    if not sys.stderr.isatty():
        yield LookLines()
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    shown = LookBars(make_bars(console))
    with Live(console=console, get_renderable=shown.draw, transient=True, refresh_per_second=4):
        yield shown


class LookLines(LineProgress):
    """For files and CI: stages, and what is believed after readings 1, 2, 4, 8 and every 16th."""

    def look(self, look: SearchLook) -> None:
        """One line, where one is due."""
        from flashprof.report.bisect_live import is_due, line

        if is_due(look.num_readings):
            self.note(line(look))


class LookBars(BarProgress):
    """For people: a panel that stays, and the bar of the stage below it."""

    def __init__(self, bars: rich.progress.Progress) -> None:
        super().__init__(bars)
        self._look: SearchLook | None = None

    def look(self, look: SearchLook) -> None:
        """Replace the panel."""
        self._look = look

    def draw(self) -> rich.console.RenderableType:
        """The panel, then the bar."""
        from rich.console import Group
        from rich.text import Text

        from flashprof.report.bisect_live import panel
        from flashprof.report.bisect_rows import UNICODE

        bars = self._bars.get_renderable()
        if self._look is None:
            return bars
        # `Text` knows no markup: what comes next may be called like a tag.
        lines = panel(self._look, width=self._bars.console.width, marks=UNICODE)
        return Group(*map(Text, lines), bars)
