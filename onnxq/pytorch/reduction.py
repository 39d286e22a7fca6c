"""What a tensor's smallest and largest values are, found on the device that holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from onnxq.errors import CalibrationError

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
        CalibrationError: x has no such axis; NaN or Inf in x.
    """
    if axis is None:
        ends = torch.stack(torch.aminmax(x)).to("cpu", torch.float32).numpy()
    else:
        if not -x.ndim <= axis < x.ndim:
            raise CalibrationError(f"shape {list(x.shape)} has no ch_axis {axis}.")
        rows = x.movedim(axis, 0).reshape(x.shape[axis], -1)
        ends = torch.stack(torch.aminmax(rows, dim=1)).to("cpu", torch.float32).numpy()
    if not np.isfinite(ends).all():
        raise CalibrationError(_not_finite(x))
    if axis is None:
        return ends
    shape = [1] * max(x.ndim, 2)
    shape[0] = 2
    shape[1] = -1
    # channels second, then where the observer looks for them
    return np.moveaxis(ends.reshape(shape), 1, axis)


def _not_finite(x: Tensor) -> str:
    bad = ~torch.isfinite(x)
    first = bad.nonzero()[0].tolist()
    return (
        f"{int(bad.sum())} of {x.numel()} values are NaN or infinite, the first, "
        f"{x[tuple(first)].item()}, at {first} of shape {list(x.shape)}; lower the learning rate, "
        "or correct the input."
    )
