"""Smallest and largest values of a tensor as an array, for observers that are NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from onnxq.errors import CalibrationError
from onnxq.pytorch.numerics.min_max import min_max_of

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor


def extremes(x: Tensor, axis: int | None) -> npt.NDArray[np.float32]:
    """A small array that has the min and max of x, and per channel where there is an axis.

    Args:
        x: floating point, not empty, any device; bfloat16 and float16 are exact in float32.
        axis: of the channels; None: none.

    Returns:
        float32, shape (2,); or the rank of x, with the channels along axis and 2 elements beside
        them. NaN stays NaN.

    Raises:
        CalibrationError: x has no such axis, or no values (meta device); NaN or Inf in x.
    """
    min_max = min_max_of(x, axis).to("cpu").numpy()
    if not np.isfinite(min_max).all():
        raise CalibrationError(_not_finite(x))
    both = np.stack([-min_max[0], min_max[1]])
    if axis is None:
        return both
    channels_second = [2, -1, *[1] * (x.ndim - 2)]
    return np.moveaxis(both.reshape(channels_second), 1, axis)


def _not_finite(x: Tensor) -> str:
    bad = ~torch.isfinite(x.to(torch.float32))
    first = bad.nonzero()[0].tolist()
    return (
        f"{int(bad.sum())} of {x.numel()} values are NaN or infinite in float32, the first, "
        f"{x[tuple(first)].item()}, at {first} of shape {list(x.shape)}; lower the learning rate, "
        "or correct the input; a mask of -inf has to be boolean, or a constant of the module."
    )
