"""
Trace events as text: Chrome's trace event format, one JSON object each.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Perfetto ends a slice that
overlaps the one it lies on, so each lane's spans are laid on as many tracks as they need to nest.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LANES_PER_PROCESS = 1000
"""Thread ids are not used twice: some importers tell threads apart by them alone."""
MAX_TRACKS = 64
"""Of one lane; what does not nest on any of them goes to the last."""
NUM_REMEMBERED = 1024
"""Closed spans of a track that the next one may enclose or overlap; emitters close an outer one after a few dozen."""


class Track:
    """One row of a trace: which spans still nest on it."""

    def __init__(self) -> None:
        self._closed: deque[tuple[int, int]] = deque(maxlen=NUM_REMEMBERED)
        """Spans side by side, by time; those within one of them are forgotten."""

    def takes(self, start_ns: int, end_ns: int) -> bool:
        """Lay a span on the track unless it would cross one that is there; spans come as they close."""
        closed = self._closed
        num_inside = 0
        for start, end in reversed(closed):
            if start < start_ns or end > end_ns:
                if end > start_ns:
                    return False
                break
            num_inside += 1
        for _ in range(num_inside):
            closed.pop()
        closed.append((start_ns, end_ns))
        return True


@dataclass(kw_only=True)
class Process:
    """One process of a trace, with its rows."""

    pid: int
    name: str
    zero_ns: int
    """The moment from which its times count, on its host's clock."""
    label: str = ""
    """Beside the name."""
    _lanes: dict[str, list[tuple[int, Track]]] = field(default_factory=dict)
    _num_rows: int = 0

    def head(self) -> Iterator[str]:
        """Its name, and its place by its number."""
        yield _about("process_name", self.pid, {"name": self.name})
        yield _about("process_sort_index", self.pid, {"sort_index": self.pid})
        if self.label:
            yield _about("process_labels", self.pid, {"labels": self.label})

    def row(self, name: str, start_ns: int, end_ns: int) -> tuple[int, str]:
        """
        The row of a lane on which a span nests.

        Returns:
            Its thread id, and what introduces it where it is new, else nothing.
        """
        rows = self._lanes.setdefault(name, [])
        for tid, track in rows:
            if track.takes(start_ns, end_ns):
                return tid, ""
        if len(rows) == MAX_TRACKS:
            return rows[-1][0], ""
        track = Track()
        track.takes(start_ns, end_ns)
        self._num_rows += 1
        tid = self.pid * LANES_PER_PROCESS + self._num_rows
        rows.append((tid, track))
        shown = name if len(rows) == 1 else f"{name} ({len(rows)})"
        return tid, named_thread(self.pid, tid, shown)

    def at_us(self, at_ns: int) -> str:
        """A moment as the trace counts: µs, to the ns."""
        return us(at_ns - self.zero_ns)


def us(length_ns: int) -> str:
    """Nanoseconds as µs, exactly."""
    whole, rest = divmod(abs(length_ns), 1000)
    return f"{'-' if length_ns < 0 else ''}{whole}.{rest:03d}"


def named_thread(pid: int, tid: int, name: str) -> str:
    """Introduces a row; rows stand in the order of their numbers."""
    first = f'{{"ph":"M","name":"thread_name","pid":{pid},"tid":{tid},"args":{{"name":{text(name)}}}}}'
    return f'{first},\n{{"ph":"M","name":"thread_sort_index","pid":{pid},"tid":{tid},"args":{{"sort_index":{tid}}}}}'


def a_slice(
    process: Process, tid: int, name: str, category: str, *, start_ns: int, end_ns: int, args: Mapping[str, Any]
) -> str:
    """A stretch of time; *name* and *category* are JSON already, since spans of one phase share them."""
    more = f',"args":{json.dumps(args)}' if args else ""
    return (
        f'{{"ph":"X","name":{name},"cat":{category},"pid":{process.pid},"tid":{tid},'
        f'"ts":{process.at_us(start_ns)},"dur":{us(end_ns - start_ns)}{more}}}'
    )


def instant(process: Process, name: str, category: str, at_ns: int, args: Mapping[str, Any]) -> str:
    """Something that happened at a moment, to a whole process."""
    return (
        f'{{"ph":"i","s":"p","name":{text(name)},"cat":{text(category)},"pid":{process.pid},"tid":0,'
        f'"ts":{process.at_us(at_ns)},"args":{json.dumps(args)}}}'
    )


def counter(process: Process, name: str, at_ns: int, value: float) -> str:
    """A value from a moment on; *name* is JSON already."""
    return f'{{"ph":"C","name":{name},"pid":{process.pid},"ts":{process.at_us(at_ns)},"args":{{"value":{value!r}}}}}'


def flow_ends(process: Process, tid: int, at_ns: int, flows: Sequence[int], *, is_start: bool) -> Iterator[str]:
    """Starts or ends of arrows, at the slice that lies at a moment."""
    kind = '"ph":"s"' if is_start else '"ph":"f","bp":"e"'
    for flow in flows:
        yield (
            f'{{{kind},"id":{flow},"name":"hidden states","cat":"flow","pid":{process.pid},"tid":{tid},'
            f'"ts":{process.at_us(at_ns)}}}'
        )


def text(value: str) -> str:
    """A JSON string."""
    return json.dumps(value)


def _about(name: str, pid: int, args: Mapping[str, Any]) -> str:
    return f'{{"ph":"M","name":"{name}","pid":{pid},"tid":0,"args":{json.dumps(args)}}}'
