"""Length buckets: batches hold samples of like length, so that little is padding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from flashprof.contracts.errors import UsageError


def assign_buckets(lengths_N: NDArray[np.integer], bounds: Sequence[int]) -> NDArray[np.int64]:
    """
    Each sample's bucket.

    Args:
        lengths_N: Tokens.
        bounds: Upper bounds, inclusive and rising: `(769, 1215)` makes 0–769 and 770–1215.

    Raises:
        UsageError: The bounds do not rise, or a sample is longer than the last one. Cutting samples is
            `open_samples`'s business: cut here, tokens would go missing that the log has counted.
    """
    if not bounds or bounds[0] < 1 or any(a >= b for a, b in pairwise(bounds)):
        raise UsageError(
            "bucket bounds must rise", offered=", ".join(map(str, bounds)) or "none", allowed="such as 128, 256, 512"
        )
    bucket_N = np.searchsorted(np.asarray(bounds), lengths_N, side="left")
    num_over = int((bucket_N == len(bounds)).sum())
    if num_over:
        raise UsageError(
            f"{num_over:,} samples are longer than the last length bucket",
            offered=f"{int(lengths_N.max()):,} tokens",
            allowed=f"at most {bounds[-1]:,}",
            next_command=f"set max_length to {bounds[-1]} or less, or raise the last bound",
        )
    return bucket_N
