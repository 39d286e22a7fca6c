"""Views by sizes and strides: one flat array of integers that several tensors share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxq.errors import ShapeError
from onnxq.qparams import IntArray


def offset_of(integers: IntArray, storage: IntArray) -> int:
    """Elements of the flat `storage` before the first one of its view `integers`."""
    if not integers.size:
        return 0
    start, first = (array.__array_interface__["data"][0] for array in (storage, integers))
    return int(first - start) // storage.itemsize


def strided(storage: IntArray, size: Sequence[int], stride: Sequence[int], offset: int) -> IntArray:
    """y[i, j, ...] = storage[offset + i * stride[0] + j * stride[1] + ...]; a view.

    Read-only where several places of the result are one element of storage (a stride of 0).
    """
    if len(size) != len(stride):
        raise ShapeError(
            f"as_strided: sizes {tuple(size)}, strides {tuple(stride)}; wanted as many of both."
        )
    if min((*size, *stride, offset), default=0) < 0:
        raise ShapeError(
            f"as_strided: sizes {tuple(size)}, strides {tuple(stride)}, offset {offset}; "
            "wanted no negative numbers."
        )
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if math.prod(size) and last >= storage.size:
        raise ShapeError(
            f"as_strided: sizes {tuple(size)}, strides {tuple(stride)}, offset {offset} reach "
            f"element {last}; the tensor's memory has {storage.size}."
        )
    if not math.prod(size):
        return np.empty(size, storage.dtype)
    distinct = all(step > 0 or n == 1 for n, step in zip(size, stride, strict=True))
    return np.lib.stride_tricks.as_strided(
        storage[offset:], size, [step * storage.itemsize for step in stride], writeable=distinct
    )


def expanded(shape: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that `sizes` means, -1 standing for a size that stays."""
    new = len(sizes) - len(shape)
    if new >= 0 and -1 not in sizes[:new]:
        wanted = tuple(
            old if n == -1 else n for n, old in zip(sizes, (1,) * new + shape, strict=True)
        )
        if all(n == old or old == 1 for n, old in zip(wanted[new:], shape, strict=True)):
            return wanted
    raise ShapeError(
        f"expand: a tensor of shape {shape} to {sizes}; wanted sizes as they are, or -1: only axes "
        "of size 1 grow, and new axes come first."
    )
