"""The processes of the study: limits are kept, and whatever happens to one system, the others get their turn."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import MappingProxyType

from benchmarks.peers.session import Plan, run_systems, unpack_wheels

AT_ONCE = MappingProxyType({"flashprof": 0.05, "specforge": 0.05})


def plan(tmp_path: Path, limit_s: float) -> Plan:
    return Plan(
        systems=("flashprof", "specforge"), device="cpu", tiny=True, site=tmp_path, out=tmp_path, limit_s=limit_s
    )


def test_a_system_over_its_limit_is_killed_and_the_next_one_starts(tmp_path: Path) -> None:
    found = run_systems(plan(tmp_path, limit_s=60), limits_s=AT_ONCE)

    assert ["flashprof", "specforge"] == list(found)
    for parts in found.values():
        assert "killed after" in parts["lost"]["error"]
        assert parts["process"]["wall_s"] < 10


def test_without_time_left_a_system_is_not_started(tmp_path: Path) -> None:
    found = run_systems(plan(tmp_path, limit_s=1), limits_s=AT_ONCE)

    assert {"lost": {"error": "no time was left"}} == found["specforge"]
    assert not (tmp_path / "specforge.log").exists()


def test_wheels_are_laid_out_as_they_are(tmp_path: Path) -> None:
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "thing-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("thing/__init__.py", "")
        archive.writestr("thing-1.0.dist-info/METADATA", "Name: thing\nVersion: 1.0\n")

    assert ["thing-1.0-py3-none-any.whl"] == unpack_wheels(wheels, site)
    assert (site / "thing" / "__init__.py").exists()
    assert (site / "thing-1.0.dist-info" / "METADATA").exists()
