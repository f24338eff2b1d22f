"""
Our drafter step and target forward beside those of `speculators` and `specforge`, on one GPU in one run: `python -m
benchmarks.peers --wheels DIR`, under nine minutes. What is measured, what is not equal: docs/peers.md.
"""
