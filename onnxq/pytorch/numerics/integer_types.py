"""The torch dtypes that hold integers, and the types of onnxq that they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from onnxq import dtypes
from onnxq.errors import UnsupportedError

if TYPE_CHECKING:
    from onnxq.dtypes import QDType

_TORCH = {
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.int8): torch.int8,
    np.dtype(np.uint16): torch.uint16,
    np.dtype(np.int16): torch.int16,
    np.dtype(np.int32): torch.int32,
}


def torch_dtype(dtype: QDType) -> torch.dtype:
    """The torch dtype that holds the integers of a type, one element per integer."""
    try:
        return _TORCH[np.dtype(dtype.storage)]
    except KeyError:
        known = ", ".join(str(t).removeprefix("torch.") for t in _TORCH.values())
        raise UnsupportedError(
            f"dtype {dtype} has no torch type for its integers; wanted one stored as {known}."
        ) from None


def qdtype_of(dtype: torch.dtype | QDType | str) -> QDType:
    """The type that torch.uint8, torch.quint8, "quint8" or the type itself names."""
    return dtypes.find(str(dtype) if isinstance(dtype, torch.dtype) else dtype)
