"""Comparisons that measure: integers and types exactly, floats within a bound that is derived."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from onnxq.qtensor import QTensor
from scripts._documents.check import Difference

ULP = 2.0**-23
"""Relative distance of neighbouring float32 numbers: a rounded operation is off by half of it."""
SCALE = 2 * ULP
"""A scale is a difference and a quotient, each rounded; both sides: 4 halves."""


def integers_of(x: object) -> npt.NDArray[np.int64]:
    """The integers of a quantized tensor, or of an array of integers."""
    if isinstance(x, QTensor) or (isinstance(x, torch.Tensor) and x.is_quantized):
        x = x.int_repr()
    array = array_of(x)
    if array.dtype.kind == "f":
        raise Difference(f"floats ({array.dtype}) in place of integers")
    return array.astype(np.int64)


def array_of(x: object) -> npt.NDArray[Any]:
    """Values as an array; of quantized tensors the real ones."""
    if isinstance(x, QTensor) or (isinstance(x, torch.Tensor) and x.is_quantized):
        x = x.dequantize()
    return x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


def same(got: object, wanted: object, what: str = "value") -> None:
    """Two plain values are equal, and so are their types."""
    if got != wanted or type(got) is not type(wanted):
        raise Difference(f"{what}: {got!r}, wanted {wanted!r}")


def holds(claim: object, what: str) -> None:
    """The claim is true; `what` says what is wrong where it is not."""
    if not claim:
        raise Difference(what)


def same_shape(got: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> None:
    """The two shapes are equal."""
    if got.shape != wanted.shape:
        raise Difference(f"shape {got.shape}, wanted {wanted.shape}")


def same_integers(got: object, wanted: object) -> None:
    """All integers are equal, and the shapes."""
    mine, theirs = integers_of(got), integers_of(wanted)
    same_shape(mine, theirs)
    apart = np.abs(mine - theirs)
    if apart.any():
        count = np.count_nonzero(apart)
        raise Difference(f"{count} of {apart.size} integers differ, by {apart.max()} at most")


def same_array(got: object, wanted: object) -> None:
    """All values are equal bit for bit, and the shapes."""
    close(got, wanted, 0.0)


def close(got: object, wanted: object, relative: float, absolute: float = 0.0) -> None:
    """Values lie within relative * |wanted| + absolute of each other."""
    mine, theirs = (array_of(x).astype(np.float64) for x in (got, wanted))
    same_shape(mine, theirs)
    apart = np.abs(mine - theirs)
    if not (apart <= relative * np.abs(theirs) + absolute).all():
        largest = np.abs(theirs).max()
        raise Difference(f"{apart.max():.3g} apart, of values up to {largest:.3g}")


def same_quantized(got: Any, wanted: torch.Tensor) -> None:
    """Quantized tensors have the same integers and qparams (scales: equal in float32)."""
    same_integers(got, wanted)
    if wanted.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        close(np.float32(got.q_scale()), np.float32(wanted.q_scale()), 0.0)
        same(int(got.q_zero_point()), int(wanted.q_zero_point()), "zero point")
        return
    mine, torchs = (array_of(x.q_per_channel_scales()).astype(np.float32) for x in (got, wanted))
    close(mine, torchs, 0.0)
    same_integers(got.q_per_channel_zero_points(), wanted.q_per_channel_zero_points())
    same(int(got.q_per_channel_axis()), int(wanted.q_per_channel_axis()), "axis")


def steps_apart(got: object, wanted: object, scale: float) -> None:
    """Real values on a grid of that scale are the same levels: the integers behind them."""
    mine, theirs = (np.rint(array_of(x).astype(np.float64) / scale) for x in (got, wanted))
    same_integers(mine.astype(np.int64), theirs.astype(np.int64))
