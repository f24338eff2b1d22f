"""What devices could do: dense bfloat16 matrix products with float32 sums, 10^12 operations a second. Pure."""

from __future__ import annotations

PEAKS_TFLOP_PER_S = (
    ("GB200", 2500.0),
    ("B200", 2250.0),
    ("B100", 1750.0),
    ("H200 NVL", 835.5),
    ("H200", 989.5),
    ("GH200", 989.5),
    ("H100 NVL", 835.5),
    ("H100 PCIe", 756.5),
    ("H100", 989.5),
    ("A100", 312.0),
    ("A30", 165.0),
    ("L40S", 362.0),
    ("L4", 121.0),
    ("MI325X", 1307.4),
    ("MI300X", 1307.4),
)
"""
By a part of the name that the driver gives; the first that fits. Vendors' data sheets; where they tell the rate
with sparsity (NVIDIA from Ampere on), half of it. A chip holds these clocks only on idle data: a product of random
numbers on an H200 reaches 770 to 800.
"""


def peak_tflop_per_s(device_name: str) -> float | None:
    """Of the device, or None where it is not known; a processor's cores are not."""
    words = device_name.upper().replace("-", " ").split()
    for name, peak in PEAKS_TFLOP_PER_S:
        parts = name.upper().split()
        if any(words[at : at + len(parts)] == parts for at in range(len(words))):
            return peak
    return None
