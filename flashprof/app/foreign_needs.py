"""What a declared subject needs of this machine, looked for before anything is started."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from flashprof.contracts.errors import UsageError
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.toggles import Value
from flashprof.sample.nvml import open_nvml

COMPILERS = ("cc", "gcc", "clang")


def has_cuda(env: Mapping[str, str]) -> bool:
    """Whether there is a GPU that the subject may use; torch is not asked, which takes seconds."""
    return env.get("CUDA_VISIBLE_DEVICES") not in ("", "-1") and open_nvml() is not None


def refuse_unmet(
    subject: ForeignSubject,
    cells: Sequence[Mapping[str, Value]],
    env: Mapping[str, str],
    *,
    has_cuda: Callable[[Mapping[str, str]], bool] = has_cuda,
) -> None:
    """
    Make sure that the machine has what the subject, and each toggle that is set, needs.

    Args:
        subject: As declared.
        cells: Toggle values that are going to be launched.
        env: FlashProf's own environment.
        has_cuda: Looks for a GPU; replaced in tests.

    Raises:
        UsageError: Something is missing: names it, and who needs it.
    """
    env = {**env, **dict(subject.env)}
    wanted = [(word, "the subject") for word in subject.needs]
    for item in subject.toggles:
        toggle = item.toggle
        if any(toggle.is_on(values[toggle.name]) for values in cells):
            wanted += [(word, f"toggle {toggle.name!r}") for word in toggle.needs]
    for word, who in wanted:
        if word == "cuda" and not has_cuda(env):
            raise _missing(subject, f"{who} needs a CUDA GPU; none is to be seen here", word, "nvidia-smi")
        if word == "compiler" and not _has_compiler(env):
            raise _missing(subject, f"{who} needs a C compiler", word, "apt-get install gcc")
    for name in subject.files:
        if not (subject.cwd / name).exists():
            raise _missing(subject, f"a file that the subject needs is missing: {name}", name, f"ls {subject.cwd}")
    for name in subject.packages:
        if not _has_package(name, subject, env):
            program = subject.command[0]
            raise _missing(subject, f"the Python of {program} has no {name}", name, f"pip install {name}, there")


def _missing(subject: ForeignSubject, what: str, word: str, remedy: str) -> UsageError:
    return UsageError(
        what,
        where=str(subject.path),
        offered=word,
        allowed="a machine that has it, or a declaration that does not ask for it",
        next_command=remedy,
    )


def _has_compiler(env: Mapping[str, str]) -> bool:
    names = (env.get("CC", ""), *COMPILERS)
    return any(shutil.which(name.split()[0], path=env.get("PATH")) for name in names if name.strip())


def _has_package(name: str, subject: ForeignSubject, env: Mapping[str, str]) -> bool:
    """Whether the environment that its program lies in has it; yes where that cannot be told from outside."""
    program = Path(subject.command[0])
    found = subject.cwd / program if program.parent != Path() else shutil.which(program, path=env.get("PATH"))
    if found is None:
        return True
    # Not resolved: a virtual environment's python is a link out of it.
    prefix = Path(found).absolute().parent.parent
    is_ours = prefix.exists() and prefix.samefile(sys.prefix)
    paths = sys.path if is_ours else [str(path) for path in prefix.glob("lib/python3*/site-packages")]
    return not paths or any(metadata.distributions(name=name, path=paths))
