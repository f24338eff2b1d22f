"""
Which way a phase's code goes, told in the trace: `mark("path", phase=…, way=…, step=…)`.

A phase keeps its name whatever the toggles are, since FlashProf compares phase by phase. Nor is a way a nested span:
time belongs to the innermost span, so the phase would lose it to a row that only one side of a comparison has.
"""

from __future__ import annotations

from flashprof.emit import Emitter


class Ways:
    """
    The way of each phase of one process; marked when it is first gone and whenever it changes.

    A way is words joined by ", ", the name of a function or class where one is chosen. The mark's step is the first
    that goes it; None: before the first step.
    """

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._by_phase: dict[str, str] = {}
        self.step: int | None = None
        """The step that is under way; None while loading."""

    def note(self, phase: str, way: str) -> None:
        """*phase* goes *way* now. 0.1 µs where that is not new: every step says it."""
        if self._by_phase.get(phase) != way:
            self._by_phase[phase] = way
            self._emitter.mark("path", phase=phase, way=way, step=self.step)
