"""The samplers of one run: attached together, detached together; one that fails is left out and said so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flashprof.contracts.errors import ToolError
from flashprof.contracts.ports import Sampler, SampleTarget


class SamplerSet:
    """What runs beside the subject in profile windows."""

    def __init__(self, samplers: Sequence[Sampler]) -> None:
        self._samplers = list(samplers)
        self._started: list[Sampler] = []
        self.notes: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Whether a profile window would differ from a measure window at all."""
        return not self._samplers

    def start(self, targets: Sequence[SampleTarget], folder: Path) -> None:
        """Attach all; a sampler that cannot is dropped for the rest of the run, with a note."""
        folder.mkdir(parents=True, exist_ok=True)
        for sampler in list(self._samplers):
            # Before it starts: a Ctrl-C while it attaches must find it here.
            self._started.append(sampler)
            try:
                sampler.start(targets, folder)
            except ToolError as error:
                self._started.remove(sampler)
                self._leave_out(sampler, error)

    def stop(self) -> None:
        """Detach whatever is attached; safe at any time."""
        while self._started:
            sampler = self._started.pop()
            try:
                notes = sampler.stop()
            except ToolError as error:
                self._leave_out(sampler, error)
            except OSError as error:
                # A full disk takes this window's samples; the rest of the run says more about it.
                self.notes.append(f"{sampler.name} could not write its samples: {error.strerror or error}")
            else:
                self.notes += [note for note in notes if note not in self.notes]

    def _leave_out(self, sampler: Sampler, error: ToolError) -> None:
        if sampler in self._samplers:
            self._samplers.remove(sampler)
        remedy = f"; try: {error.next_command}" if error.next_command else ""
        self.notes.append(f"{sampler.name} was left out: {error.what}{remedy}")
