"""Where a process stands among hosts."""

from __future__ import annotations

import pytest

from flashprof.contracts.errors import UsageError
from pipeline.config import HostPlace
from pipeline.hosts import TORCHRUN, find_host

SECOND = {TORCHRUN: "none", "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}


def test_torchruns_variables_give_the_place() -> None:
    assert HostPlace(rank=1, num_hosts=2, address="node0", port=29500) == find_host(SECOND)


def test_without_torchrun_left_over_variables_mean_nothing() -> None:
    assert HostPlace() == find_host({"RANK": "3", "WORLD_SIZE": "4"})


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_a_variable_that_is_missing_is_named(missing: str) -> None:
    with pytest.raises(UsageError, match=missing):
        find_host({name: value for name, value in SECOND.items() if name != missing})
