"""Rules for all tests."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings


def pytest_configure() -> None:
    """
    What holds for all.

    A shell that starts us in the background makes SIGINT ignored, also in what we start: tests send it. hypothesis's
    deadline of 200 ms an example times the machine: beside other work any property would fail now and then.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.register_profile("flashprof", deadline=None)
    settings.load_profile("flashprof")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip GPU tests, visibly, where there is no GPU; torch is only imported if there are any."""
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
