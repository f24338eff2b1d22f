"""
Reading py-spy's raw output: folded stacks, one line a stack, `root;…;leaf count`. Pure.

A frame is `name (file:line)`. Roots may be `process PID:"command"` and `thread (TID): name`; they are no functions
and become fields. Paths are shortened, so that two machines name the same function alike.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from flashprof.contracts.results import Frame

_FRAME = re.compile(r"^(?P<name>.+) \((?P<file>[^()]*?)(?::(?P<line>\d{1,9}))?\)$")
_THREAD = re.compile(r"^thread \((?P<id>\w+)\)(?:: (?P<name>.*))?$")
_PROCESS = re.compile(r"^process \d+:")
_LIBRARY = re.compile(r"^.*/(?:(?:site|dist)-packages|lib/python3\.\d+)/")
_SHARED_OBJECT = re.compile(r"\.so(?:\.\d+)*$")

MAIN_THREAD = "MainThread"
WRAPPER_SHARE = 0.98
"""A function that hands on at least this share of its samples explains nothing by itself."""
MAX_COUNT_DIGITS = 15
_PLUMBING_NAMES = frozenset({"<module>", "_bootstrap", "_bootstrap_inner", "run", "spawn_main", "_main", "_serve_one"})
_PLUMBING_FILES = ("<frozen runpy>", "runpy.py", "multiprocessing/spawn.py", "multiprocessing/forkserver.py")
_STARTUP_FILES = ("<frozen runpy>", "runpy.py", "<string>", "multiprocessing/", "threading.py", "click/", "typer/")
_WAITING_NAMES = frozenset({"wait", "_wait_for_tstate_lock", "get", "accept", "select", "poll", "_recv"})
# The last three: inductor's pool of compile workers, and threads without a Python frame.
_PARKED_NAMES = _WAITING_NAMES | {"sleep", "_recv_msg", "check", ""}
_WAITING_CALLS = _WAITING_NAMES | {
    "__enter__", "_poll", "_try_wait", "acquire", "barrier", "communicate", "join", "readinto", "recv", "recv_bytes",
    "result", "synchronize", "wait_for",
}  # fmt: skip
_WAITING_FILES = (
    "threading.py", "queue.py", "selectors.py", "socket.py", "ssl.py", "subprocess.py",
    "multiprocessing/connection.py", "multiprocessing/popen_", "multiprocessing/queues.py",
    "multiprocessing/synchronize.py", "asyncio/", "concurrent/futures/", "torch/cuda/", "torch/distributed/",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FrameRef:
    """One function at one line."""

    name: str
    file: str
    """Shortened path, or empty where py-spy gave none."""
    line: int
    """From 1; 0 where there is none."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One distinct stack of one thread, outermost frame first."""

    frames: tuple[FrameRef, ...]
    num_samples: int
    thread: str = ""
    """Python's name for it, or its id where it has none; empty where threads were not recorded."""
    process: str = ""
    """py-spy's `process …` root, where there was one."""


def parse_folded(lines: Iterable[str]) -> list[Stack]:
    """The stacks of a raw file; a line without a count (a torn last one) is dropped."""
    stacks = []
    for line in lines:
        parts, count = _parts(line)
        if count:
            stacks.append(_parse_stack(parts, int(count)))
    return stacks


def hottest_frames(stacks_by_role: Mapping[str, Sequence[Stack]], *, top: int) -> tuple[Frame, ...]:
    """
    The functions where the samples are, at most *top* of them.

    Half of them by the samples in which they are innermost, the others by those in which they appear at all. Left out
    of the second half: functions that are in nearly every sample of their role, and those that hand nearly all their
    samples to one callee. Left out altogether: start-up plumbing, and helper threads that only ever stood waiting.

    Args:
        stacks_by_role: All stacks of a role's processes.
        top: How many functions, over all roles.

    Returns:
        Frames, the highest self share first; `where` has the line that was seen most.
    """
    tallies = [_tally(role, stacks) for role, stacks in stacks_by_role.items()]
    by_self = _ranked((frame for tally in tallies for frame in tally.frames()), by_total=False)
    by_total = _ranked((frame for tally in tallies for frame in tally.inner_frames()), by_total=True)
    chosen = by_self[: (top + 1) // 2]
    chosen += [frame for frame in by_total if frame not in chosen][: top - len(chosen)]
    chosen += [frame for frame in by_self if frame not in chosen][: top - len(chosen)]
    return tuple(_ranked(chosen, by_total=False))


_Function = tuple[str, str]


@dataclass(slots=True)
class _Tally:
    role: str
    num_samples: int = 0
    self_samples: Counter[_Function] = field(default_factory=Counter)
    total_samples: Counter[_Function] = field(default_factory=Counter)
    edges: dict[_Function, Counter[_Function]] = field(default_factory=lambda: defaultdict(Counter))
    lines: dict[_Function, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def frames(self) -> list[Frame]:
        return [self._frame(function) for function in self.total_samples if not _is_plumbing(function)]

    def inner_frames(self) -> list[Frame]:
        return [frame for frame in map(self._frame_unless_wrapper, self.total_samples) if frame is not None]

    def _frame_unless_wrapper(self, function: _Function) -> Frame | None:
        total = self.total_samples[function]
        handed_on = max(self.edges[function].values(), default=0)
        if _is_plumbing(function) or max(total / self.num_samples, handed_on / total) >= WRAPPER_SHARE:
            return None
        return self._frame(function)

    def _frame(self, function: _Function) -> Frame:
        name, file = function
        line = self.lines[function].most_common(1)[0][0]
        return Frame(
            name=name,
            where=f"{file}:{line}" if line else file,
            role=self.role,
            self_share=self.self_samples[function] / self.num_samples,
            total_share=self.total_samples[function] / self.num_samples,
        )


def _tally(role: str, stacks: Sequence[Stack]) -> _Tally:
    tally = _Tally(role)
    for stack in without_parked_threads(stacks):
        num = stack.num_samples
        tally.num_samples += num
        functions = [(frame.name, frame.file) for frame in stack.frames]
        for function in set(functions):
            tally.total_samples[function] += num
        for edge in set(pairwise(functions)):
            tally.edges[edge[0]][edge[1]] += num
        for frame in stack.frames:
            tally.lines[frame.name, frame.file][frame.line] += num
        if functions:
            tally.self_samples[functions[-1]] += num
    return tally


def without_parked_threads(stacks: Iterable[Stack]) -> list[Stack]:
    """
    Drop helper threads that stood in one waiting call all the time.

    Idle threads are sampled too, or a starved lane would look empty; but a queue's feeder thread would halve the
    share of everything its process does.
    """
    kept = list(stacks)
    parked = parked_threads(kept)
    return [stack for stack in kept if (stack.process, stack.thread) not in parked]


def parked_threads(stacks: Iterable[Stack]) -> set[tuple[str, str]]:
    """Process and thread of each helper thread that stood in one waiting call all the time."""
    leaves: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for stack in stacks:
        leaf = stack.frames[-1].name.rpartition(".")[2] if stack.frames else ""
        leaves[stack.process, stack.thread][leaf] += stack.num_samples
    parked = set()
    for key, counts in leaves.items():
        num_waiting = sum(num for name, num in counts.items() if name in _PARKED_NAMES)
        if key[1] not in ("", MAIN_THREAD) and num_waiting >= WRAPPER_SHARE * counts.total():
            parked.add(key)
    return parked


def is_waiting(frames: Sequence[FrameRef]) -> bool:
    """
    Whether the innermost frame is a call of the standard library or of torch that waits.

    py-spy's `--idle` does not say which threads ran, so this is a lower bound: a `time.sleep`, or a C function that
    waits, has no frame of its own.
    """
    leaf = frames[-1] if frames else FrameRef("", "", 0)
    return leaf.name.rpartition(".")[2] in _WAITING_CALLS and leaf.file.startswith(_WAITING_FILES)


def without_startup(frames: Sequence[FrameRef]) -> tuple[FrameRef, ...]:
    """
    Drop the outermost frames that only started the program: runpy, multiprocessing, the command-line library.

    They are the same ten rows above every stack. A stack that is nothing else is left as it is.
    """
    first = next((index for index, frame in enumerate(frames) if not _is_startup(frame)), 0)
    return tuple(frames[first:])


def _is_startup(frame: FrameRef) -> bool:
    return frame.name == "<module>" or frame.file.startswith(_STARTUP_FILES)


def _ranked(frames: Iterable[Frame], *, by_total: bool) -> list[Frame]:
    def key(frame: Frame) -> tuple[float, float, str, str, str]:
        first, second = frame.self_share, frame.total_share
        if by_total:
            first, second = second, first
        return -first, -second, frame.role, frame.name, frame.where

    return sorted(frames, key=key)


def _is_plumbing(function: _Function) -> bool:
    name, file = function
    return name.rpartition(".")[2] in _PLUMBING_NAMES or file.endswith(_PLUMBING_FILES)


def _parse_stack(parts: Sequence[str], num_samples: int) -> Stack:
    thread = process = ""
    frames: list[FrameRef] = []
    for part in parts:
        if not frames and _PROCESS.match(part):
            process = part
        elif not frames and (found := _THREAD.match(part)):
            thread = found["name"] or found["id"]
        else:
            frames.append(_parse_frame(part))
    return Stack(tuple(frames), num_samples, thread, process)


def _parse_frame(text: str) -> FrameRef:
    found = _FRAME.match(text)
    if found is None:
        return FrameRef(text, "", 0)
    return FrameRef(found["name"], shorten(found["file"]), int(found["line"] or 0))


def file_names(lines: Iterable[str]) -> set[str]:
    """The files that frames name, as the sampler wrote them."""
    return {found["file"] for line in lines for part in _parts(line)[0] if (found := _FRAME.match(part))}


def with_short_names(lines: Iterable[str], short: Mapping[str, str]) -> list[str]:
    """The same stacks, with other names for these files; torn lines are dropped."""
    kept = []
    for line in lines:
        parts, count = _parts(line)
        if count:
            kept.append(f"{';'.join(_renamed(part, short) for part in parts)} {count}")
    return kept


def _parts(line: str) -> tuple[list[str], str]:
    """Roots and frames, and the count; none where the line is torn."""
    text, _, count = line.rstrip("\n").rpartition(" ")
    # A count of more digits is none: Python refuses to convert some thousand of them.
    return (text.split(";"), count) if text and count.isdecimal() and len(count) <= MAX_COUNT_DIGITS else ([], "")


def _renamed(part: str, short: Mapping[str, str]) -> str:
    found = _FRAME.match(part)
    if found is None or found["file"] not in short:
        return part
    line = f":{found['line']}" if found["line"] else ""
    return f"{found['name']} ({short[found['file']]}{line})"


def is_library(path: str) -> bool:
    """Whether a full path is of the standard library or of an installed package."""
    return _LIBRARY.match(path) is not None


def shorten(path: str) -> str:
    """A full path from its package on, as far as the path alone tells; any other as it is."""
    if not path.startswith("/"):
        return path
    if _SHARED_OBJECT.search(path):
        return path.rpartition("/")[2]
    if _LIBRARY.match(path):
        return _LIBRARY.sub("", path)
    return "/".join(path.rsplit("/", 2)[-2:]).lstrip("/")
