"""Samples that somebody else has tokenised: checked one by one, and cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flashprof.contracts.errors import FormatError
from pipeline.data.arrow import Row


def to_row(fields: dict[str, Any], where: str, *, vocab_size: int, max_length: int) -> Row:
    """
    The sample in a record with `input_ids` and `loss_mask`.

    Args:
        fields: Of the record.
        where: The record's place, for messages.
        vocab_size: Of the target: ids are below it.
        max_length: Tokens; what lies beyond is checked and cut.

    Raises:
        FormatError: The lengths differ, an id is not in the vocabulary, or the mask is more than 0 and 1.
    """
    input_ids_S = _whole_numbers(fields["input_ids"], "input_ids", where)
    loss_mask_S = _whole_numbers(fields["loss_mask"], "loss_mask", where)
    if len(input_ids_S) != len(loss_mask_S) or not len(input_ids_S):
        raise FormatError(
            "input_ids and loss_mask are not of one length" if len(input_ids_S) else "the sample is empty",
            where=where,
            offered=f"{len(input_ids_S):,} ids, {len(loss_mask_S):,} mask values",
            allowed="one mask value a token, at least one token",
        )
    _check_range(input_ids_S, vocab_size, "a token id is not in the vocabulary", where)
    _check_range(loss_mask_S, 2, "the loss mask is not of 0 and 1", where)
    return Row(input_ids_S[:max_length].astype(np.int32), loss_mask_S[:max_length].astype(np.uint8), where)


def _whole_numbers(values: Any, column: str, where: str) -> NDArray[np.int64]:
    try:
        # Arrow would take a text for a list of its letters, and parse letters to numbers.
        array = pa.array(values if isinstance(values, list) else None)
        if not (pa.types.is_primitive(array.type) or pa.types.is_null(array.type)):
            raise TypeError
        numbers: NDArray[np.int64] = array.cast(pa.int64()).to_numpy(zero_copy_only=True)
    # Nulls in a list cannot be viewed (ValueError).
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise FormatError(
            f"{column} is not a list of whole numbers", where=where, offered=str(values)[:60], allowed="[1, 2, 3]"
        ) from error
    return numbers


def _check_range(values_S: NDArray[np.int64], end: int, what: str, where: str) -> None:
    wrong = np.flatnonzero((values_S < 0) | (values_S >= end))
    if len(wrong):
        raise FormatError(
            what,
            where=f"{where}, position {int(wrong[0])}",
            offered=str(int(values_S[wrong[0]])),
            allowed=f"0 to {end - 1:,}",
        )
