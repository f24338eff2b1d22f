"""Modules that stand in for what is not installed: importable for a while, and gone without a trace."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys

import pytest

from benchmarks.peers.stand_ins import stand_ins


def test_a_missing_package_can_be_imported_with_all_that_is_in_it() -> None:
    with stand_ins("no_such_client") as missing:
        inner = importlib.import_module("no_such_client.types.chat")

        class Derived(inner.Message):  # type: ignore[misc, name-defined]
            pass

    assert ("no_such_client",) == missing
    assert isinstance(Derived(), Derived)


def test_afterwards_it_is_missing_again() -> None:
    with stand_ins("no_such_client"):
        importlib.import_module("no_such_client.types")

    assert importlib.util.find_spec("no_such_client") is None
    assert not [name for name in sys.modules if name.startswith("no_such_client")]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_client")


def test_what_is_installed_stays_itself() -> None:
    with stand_ins("json") as missing:
        imported = importlib.import_module("json")

    assert () == missing
    assert json is imported


def test_other_missing_packages_stay_missing() -> None:
    with stand_ins("no_such_client"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_server")
