"""
Compiling late, and for varying lengths.

`torch.compile(dynamic=True)` makes every size a symbol, widths too, and takes sizes that are equal at first to be equal
for ever: a first row of 4,096 tokens at a width of 4,096 compiles again for the second. So lengths are named instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class LazyCompile:
    """
    A function that is compiled at its first call.

    Args:
        function: What to compile.
        options: Of `torch.compile`.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self._function = function
        self._options = options
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Call it."""
        if self._compiled is None:
            # Not before it is needed: it imports inductor, 1.9 s in every drafter.
            self._compiled = torch.compile(self._function, **self._options)
        return self._compiled(*arguments)


def vary(*tensors: Tensor) -> None:
    """The first size of these varies from call to call: one compilation serves all; 1 µs each."""
    # Not at import: inductor's front end comes with it.
    from torch._dynamo import maybe_mark_dynamic

    for tensor in tensors:
        maybe_mark_dynamic(tensor, 0)
