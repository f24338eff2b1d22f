"""
Empty modules for packages that a peer imports on the way to its model and never calls there.

speculators imports its data loader with its models, and with it HTTP clients and a data set library, which a machine
without a network does not have. Only what is missing is stood in for, and the results say what that was.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


@contextmanager
def stand_ins(*packages: str) -> Iterator[tuple[str, ...]]:
    """
    While it lasts, those of *packages* that are not installed can be imported, with all that is in them.

    Whatever is taken from one is an empty class: enough to annotate with and to derive from. Afterwards they are gone
    again: a library that asks later whether one is installed must hear no.

    Returns:
        Those that are stood in for.
    """
    missing = tuple(name for name in packages if importlib.util.find_spec(name) is None)
    finder = _Finder(missing)
    sys.meta_path.append(finder)
    try:
        yield missing
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] in missing]:
            del sys.modules[name]


class _StandIn(ModuleType):
    """Has whatever is asked of it."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(MetaPathFinder, Loader):
    """Finds every module of some packages."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        del path, target
        known = fullname.partition(".")[0] in self._packages
        return ModuleSpec(fullname, self, is_package=True) if known else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is in it."""
