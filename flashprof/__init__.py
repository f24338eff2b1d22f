"""FlashProf: throughput profiling and regression bisection for DFlash drafter training."""

__version__ = "0.1.0"
