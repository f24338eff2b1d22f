"""Peaks by the names that drivers give."""

from __future__ import annotations

import pytest

from flashprof.stats.device_peaks import peak_tflop_per_s


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", 989.5),
        ("NVIDIA H200 NVL", 835.5),
        ("NVIDIA H100 80GB HBM3", 989.5),
        ("NVIDIA H100 PCIe", 756.5),
        ("NVIDIA GH200 480GB", 989.5),
        ("NVIDIA B200", 2250.0),
        ("NVIDIA GB200", 2500.0),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA L40S", 362.0),
        ("NVIDIA L4", 121.0),
        ("AMD Instinct MI300X", 1307.4),
    ],
)
def test_known_devices(name: str, expected: float) -> None:
    assert expected == peak_tflop_per_s(name)


@pytest.mark.parametrize("name", ["", "NVIDIA GeForce RTX 4090", "NVIDIA L400", "AMD EPYC", "H2000"])
def test_others_have_none(name: str) -> None:
    assert peak_tflop_per_s(name) is None
