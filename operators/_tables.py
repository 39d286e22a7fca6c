"""Operators on 8-bit codes as tables: 256 entries for one operand, 65,536 for two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from onnxq.errors import ShapeError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.dtypes import QDType
    from onnxq.qparams import IntArray

Codes = npt.NDArray[np.int32]

TABLE_BITS = 8


def all_codes(dtype: QDType) -> Codes:
    """Every code of the type, ascending, as int32.

    Raises:
        UnsupportedError: wider than 8 bits.
    """
    if dtype.bits > TABLE_BITS:
        raise UnsupportedError(
            f"{dtype}: ONNX Runtime's element-wise kernels, and the tables that reproduce them, "
            "are for 8 bits; choose uint8 or int8."
        )
    return np.arange(dtype.qmin, dtype.qmax + 1, dtype=np.int32)


def look_up(table: IntArray, x: IntArray, dtype: QDType) -> IntArray:
    """table[x - qmin]; shape of x."""
    return np.asarray(table[x.astype(np.intp) - dtype.qmin])


def look_up_pairs(
    op: str,
    function: Callable[[Codes, Codes], IntArray],
    a: tuple[IntArray, QDType],
    b: tuple[IntArray, QDType],
) -> IntArray:
    """function(a, b) for arrays of codes that broadcast, from a table of all pairs of codes.

    Raises:
        ShapeError: the shapes do not broadcast.
    """
    try:
        np.broadcast_shapes(a[0].shape, b[0].shape)
    except ValueError as error:
        raise ShapeError(f"{op}: {error}") from error
    table = function(all_codes(a[1])[:, None], all_codes(b[1])[None, :]).ravel()
    row = (a[0].astype(np.intp) - a[1].qmin) << TABLE_BITS
    return np.asarray(table[row + (b[0].astype(np.intp) - b[1].qmin)])
