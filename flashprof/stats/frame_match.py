"""
Which frames of two arms are the same function, and whose code a frame is. Pure.

A function keeps its name and file; the line does not matter. What a compiler writes is called by serial numbers and
hashes, so it is given names that two launches share. What is left on either side is matched only by strong evidence:
a rename that is overlooked shows twice, as vanished and new, but one that is imagined hides the very change.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from flashprof.contracts.profiles import FrameId

# fmt: off
LIBRARIES = frozenset({
    "accelerate", "bitsandbytes", "click", "datasets", "deepspeed", "einops", "flash_attn", "flashprof", "fsspec",
    "functorch", "huggingface_hub", "lightning", "matplotlib", "megatron", "numpy", "pandas", "peft", "psutil",
    "pyarrow", "pytorch_lightning", "ray", "requests", "safetensors", "scipy", "sglang", "submitit", "sympy",
    "tensorboard", "tokenizers", "torch", "torchgen", "torchvision", "tqdm", "transformer_engine", "transformers",
    "triton", "typer", "urllib3", "vllm", "wandb", "xformers", "yaml",
})
"""Installed packages: samplers cut paths, and `site-packages/` with them. Others are taken for the user's own."""
_STDLIB_FOLDERS = frozenset({
    "asyncio", "collections", "concurrent", "ctypes", "email", "encodings", "html", "http", "importlib", "json",
    "logging", "multiprocessing", "pathlib", "re", "sqlite3", "sysconfig", "tomllib", "unittest", "urllib", "xml",
    "zipfile", "zoneinfo",
})
"""`code`, `platform` or `queue` would be folders of the user: in the standard library they are single files."""
# fmt: on
_INSTALLED = re.compile(r"(?:^|/)(?:(?:site|dist)-packages|lib/python3\.\d+)/")
_GENERATED_FILE = re.compile(r"(?:^|/)c[a-z2-7]{40,}\.py$|torchinductor_|^<eval_with_key>")
_GENERATED_NAME = re.compile(r"^(?:__compiled_fn|triton_|cpp_fused)")
_SERIAL = re.compile(r"_\d+(?:_\w+)?$")
_RESUMED = re.compile(r"^(?:.*\.)?torch_dynamo_resume_in_(?P<name>.+)_at_\d+(?:_\d+)?$")
_ANONYMOUS = re.compile(r"\.<locals>\.<(?:(?:list|set|dict)comp|genexpr|lambda)>")
_COMPILE_WRAPPER = "compile_wrapper"

GENERATED = "(generated)"
"""File of all code that a compiler wrote."""
MIN_SAMPLES = 5
"""In each arm, to be matched under two names: with fewer, it may well be there and have met no sample."""
MAX_UNMATCHED = 100
"""In each arm, the costliest: all pairs of 100 take 0.1 s."""
MIN_NAME_LIKENESS = 0.6
"""`build_mask` and `build_block_mask` have 0.77, `mask_tables` and `sample_anchors` 0.32."""
_PLAIN_NAMES = frozenset(
    {"forward", "backward", "main", "run", "call", "inner", "step", "wrapped", "wrapper", "__call__"}
)
_MAX_ROUNDS = 3
NO_FRAME = FrameId("", "")
"""What calls the outermost function."""


@dataclass(slots=True)
class Neighbours:
    """What surrounds one own-code frame in one arm, in samples."""

    num_samples: int = 0
    num_compiled: int = 0
    """Those in which compiled code runs for it, before the next own-code frame."""
    callers: Counter[FrameId] = field(default_factory=Counter)
    """Nearest own-code frame above."""
    callees: Counter[FrameId] = field(default_factory=Counter)
    """Nearest own-code frame below; where there is none, the library function that it calls."""

    @property
    def is_compiled(self) -> bool:
        """Whether most of its time is in compiled code."""
        return 2 * self.num_compiled > self.num_samples


Surroundings = Mapping[FrameId, Neighbours]
"""All own-code frames of one arm."""


def is_own_code(frame: FrameId) -> bool:
    """Whether a reader of the trainer can change it: not a library, a phase, native or generated code."""
    path = frame.file.replace("\\", "/").removeprefix("./")
    if frame.is_phase or not path.endswith((".py", ".pyx")) or _INSTALLED.search(path) or is_generated(frame):
        return False
    top, _, rest = path.partition("/")
    if rest:
        return top not in LIBRARIES and top not in _STDLIB_FOLDERS
    name = top.rpartition(".")[0]
    return name not in LIBRARIES and name not in sys.stdlib_module_names


def is_generated(frame: FrameId) -> bool:
    """Whether a compiler wrote it."""
    return frame.file == GENERATED or bool(_GENERATED_FILE.search(frame.file) or _GENERATED_NAME.match(frame.name))


def runs_compiled(frame: FrameId) -> bool:
    """Whether below this frame a compiled version of its caller runs."""
    return is_generated(frame) or (frame.name.endswith(_COMPILE_WRAPPER) and frame.file.startswith("torch/_dynamo/"))


def is_resumed(frame: FrameId) -> bool:
    """Whether dynamo wrote it to go on after a graph break."""
    return bool(_RESUMED.match(frame.name))


def common_names(frames: Collection[FrameId]) -> dict[FrameId, FrameId]:
    """
    Give each frame the name that it has in every launch and under every compiler.

    Generated code loses its serial numbers, and what dynamo resumes after a graph break is the function that it broke.
    A comprehension is the function that holds it, as it is from Python 3.12 on (PEP 709); so are a generator expression
    and a lambda, which have no name that a reader could look for.
    """
    written: dict[tuple[str, str], set[str]] = {}
    for frame in frames:
        if not is_resumed(frame):
            written.setdefault((frame.file, _last(frame.name)), set()).add(frame.name)
    return {frame: _common_name(frame, written) for frame in frames}


def match_renamed(base: Surroundings, candidate: Surroundings) -> dict[FrameId, FrameId]:
    """
    Pair functions that are called otherwise in the candidate, or lie in another file.

    A pair has a caller in common, and never callees that contradict it. It has a like name in the same file, or the
    same telling name in another, or in the same file the same callers and callees at a like cost. Each is in at most
    one pair, and the pairs are the most alike in sum. What calls a renamed function, or is called by it, is then
    looked at again.

    Returns:
        Base → candidate, of frames that only one arm has.
    """
    pairs: dict[FrameId, FrameId] = {}
    for _ in range(_MAX_ROUNDS):
        found = _assign(base, candidate, pairs)
        if not found:
            break
        pairs |= found
    return pairs


def _common_name(frame: FrameId, written: Mapping[tuple[str, str], set[str]]) -> FrameId:
    if is_generated(frame):
        return FrameId(_SERIAL.sub("", frame.name), GENERATED)
    if resumed := _RESUMED.match(frame.name):
        names = written.get((frame.file, resumed["name"]), set())
        return FrameId(min(names) if len(names) == 1 else resumed["name"], frame.file)
    return FrameId(_ANONYMOUS.sub("", frame.name), frame.file) if ".<" in frame.name else frame


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _assign(base: Surroundings, candidate: Surroundings, pairs: Mapping[FrameId, FrameId]) -> dict[FrameId, FrameId]:
    old = _unmatched(base, candidate, pairs)
    new = _unmatched(candidate, base, pairs.values())
    known = {frame: frame for frame in base if frame in candidate} | dict(pairs)
    scores = [[_likeness(one, other, base[one], candidate[other], known) for other in new] for one in old]
    if not any(map(any, scores)):
        return {}
    # scipy.optimize takes 0.2 s to load, and most comparisons have nothing to match.
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(scores, maximize=True)
    return {old[row]: new[column] for row, column in zip(rows, columns, strict=True) if scores[row][column]}


def _unmatched(own: Surroundings, other: Surroundings, matched: Iterable[FrameId]) -> list[FrameId]:
    taken = set(matched)
    left = [
        frame
        for frame, around in own.items()
        if frame not in other and frame not in taken and around.num_samples >= MIN_SAMPLES and is_own_code(frame)
    ]
    return sorted(left, key=lambda frame: (-own[frame].num_samples, frame))[:MAX_UNMATCHED]


def _likeness(
    old: FrameId, new: FrameId, before: Neighbours, after: Neighbours, known: Mapping[FrameId, FrameId]
) -> float:
    """0 where they are not the same function, else the more the likelier."""
    is_same_file = old.file == new.file
    if not is_same_file and _last(old.name) != _last(new.name):
        return 0.0
    callers = _overlap(_renamed(before.callers, known), _renamed(after.callers, {new: new for new in known.values()}))
    callees = _common_callees(before, after, known)
    if callers < 0.1 or (callees is not None and callees < 0.3):
        return 0.0
    name = SequenceMatcher(None, old.name, new.name, autojunk=False).ratio()
    context = min(callers, callees or 0.0)
    if is_same_file:
        cost = before.num_samples / after.num_samples
        is_strong = name >= MIN_NAME_LIKENESS or (context >= 0.7 and 1 / 3 <= cost <= 3)
    else:
        is_plain = old.name.startswith("<") or old.name in _PLAIN_NAMES
        is_strong = context >= 0.5 if is_plain else old.name == new.name
    return name + callers + (callees or 0.0) if is_strong else 0.0


def _renamed(frames: Counter[FrameId], known: Mapping[FrameId, FrameId]) -> Counter[FrameId]:
    """Callers under the candidate's names; those without a counterpart may be each other's."""
    renamed: Counter[FrameId] = Counter()
    for frame, num in frames.items():
        renamed[known.get(frame, NO_FRAME)] += num
    return renamed


def _common_callees(before: Neighbours, after: Neighbours, known: Mapping[FrameId, FrameId]) -> float | None:
    """How alike the callees are that both arms could have; None where an arm has none of them."""
    there = set(known.values())
    old = Counter(
        {
            known.get(frame, frame): num
            for frame, num in before.callees.items()
            if frame in known or not is_own_code(frame)
        }
    )
    new = Counter({frame: num for frame, num in after.callees.items() if frame in there or not is_own_code(frame)})
    return _overlap(old, new) if old and new else None


def _overlap(one: Counter[FrameId], other: Counter[FrameId]) -> float:
    """What two distributions have in common, 0 to 1."""
    return sum(min(num / one.total(), other[frame] / other.total()) for frame, num in one.items())
