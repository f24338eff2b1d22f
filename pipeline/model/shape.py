"""The widths of a drafter; without torch, so that a checkpoint's description is read at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DrafterShape:
    """Widths of a drafter."""

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    num_layers: int
    num_taps: int
    """Target layers whose hidden states are concatenated."""
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
