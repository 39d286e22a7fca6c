"""Convolutions and linear layers as matrix products, for PTQ algorithms on weights."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import EllipsisType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from onnxq.operator import Array, NodeCall, Singles, Unfolded
from onnxq.operators._transposed import transposed_axes
from onnxq.operators._windows import Windows, geometry, sliding

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class UnfoldedWindows(Unfolded):
    """A convolution: a place per image and window; inputs are (channel, tap), the last fastest.

    Attributes:
        shape: of the weight, (outputs, channels / groups, *kernel).
    """

    shape: tuple[int, ...]
    groups: int
    windows: Callable[[Array], Windows]

    def places(self, x: Array) -> int:
        """Images times windows."""
        return len(x) * math.prod(self.windows(x).out)

    def rows(self, x: Singles, places: slice) -> Singles:
        """Windows of x, each unfolded."""
        windows = self.windows(x)
        index = _places((len(x), *windows.out), places)
        seen = sliding(self.spread(x), windows, 0)[index]  # (places, channels, *kernel)
        return _by_group(seen, self.groups)

    def results(self, y: Singles, places: slice) -> Singles:
        """Pixels of y, each with its channels."""
        return _by_group(y[_places((len(y), *y.shape[2:]), places)], self.groups)

    def spread(self, x: Singles) -> Singles:
        """The activation that the windows are of."""
        return x

    def matrix(self, weight: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Outputs of each group by (channel, tap)."""
        outputs, inputs = self.shape[0] // self.groups, math.prod(self.shape[1:])
        return weight.reshape(self.groups, outputs, inputs)

    def weight(self, matrix: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """The matrices, one group after the other."""
        return matrix.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class UnfoldedTransposed(UnfoldedWindows):
    """A transposed convolution: one of x with zeros between its elements, the kernel backwards.

    Attributes:
        shape: of the weight, (channels, outputs / groups, *kernel).
        strides: distance of neighbouring elements, with the zeros between them.
    """

    strides: tuple[int, ...]

    def spread(self, x: Singles) -> Singles:
        """The activation with its zeros."""
        wide = [max((n - 1) * s + 1, 0) for n, s in zip(x.shape[2:], self.strides, strict=True)]
        spread = np.zeros((*x.shape[:2], *wide), np.float32)
        index: list[EllipsisType | slice] = [..., *(slice(None, None, s) for s in self.strides)]
        spread[tuple(index)] = x
        return spread

    def matrix(self, weight: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Outputs of each group by (channel, tap from the last)."""
        channels, outputs, *kernel = self.shape
        split = weight.reshape(self.groups, channels // self.groups, outputs, *kernel)
        turned = _backwards(split, len(kernel)).swapaxes(1, 2)
        return turned.reshape(self.groups, outputs, -1)

    def weight(self, matrix: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Channels by outputs of a group, taps from the first."""
        channels, outputs, *kernel = self.shape
        split = matrix.reshape(self.groups, outputs, channels // self.groups, *kernel)
        turned = _backwards(split, len(kernel)).swapaxes(1, 2)
        return np.ascontiguousarray(turned).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class UnfoldedLinear(Unfolded):
    """MatMul or Gemm by a constant matrix B' (K, N) on the right: a place per row of A'.

    Attributes:
        trans_a: whether the activation is A'^T.
        trans_b: whether the weight is B'^T.
    """

    trans_a: bool = False
    trans_b: bool = False
    alpha: float = 1.0

    def places(self, x: Array) -> int:
        """Rows of A'."""
        return math.prod(x.shape[1:]) if self.trans_a else math.prod(x.shape[:-1])

    def rows(self, x: Singles, places: slice) -> Singles:
        """Rows of A' at these places, times alpha."""
        flat = x.T if self.trans_a else x.reshape(-1, x.shape[-1])
        return flat[np.newaxis, places] * np.float32(self.alpha)

    def results(self, y: Singles, places: slice) -> Singles:
        """Rows of Y at these places."""
        return y.reshape(1, -1, y.shape[-1])[:, places]

    def matrix(self, weight: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """B'^T."""
        return weight[np.newaxis] if self.trans_b else weight.T[np.newaxis]

    def weight(self, matrix: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """B' or B'^T."""
        return np.ascontiguousarray(matrix[0] if self.trans_b else matrix[0].T)


def unfolded_conv(call: NodeCall, shape: tuple[int, ...]) -> UnfoldedWindows:
    """The matrix product that a convolution with a weight of that shape is."""
    return UnfoldedWindows(
        shape, call.integer("group", 1), lambda x: geometry(call, x.shape[2:], shape[2:])
    )


def unfolded_transposed(call: NodeCall, shape: tuple[int, ...]) -> UnfoldedTransposed:
    """The matrix product that a transposed convolution with a weight of that shape is."""
    kernel, ones = shape[2:], (1,) * len(shape[2:])

    def windows(x: Array) -> Windows:
        axes = transposed_axes(call, x.shape[2:], kernel)
        return Windows(
            kernel,
            ones,
            tuple(a.dilation for a in axes),
            tuple(a.dilation * (a.taps - 1) - a.begin for a in axes),
            tuple(a.out(size) for a, size in zip(axes, x.shape[2:], strict=True)),
        )

    strides = call.ints("strides", ones)
    return UnfoldedTransposed(shape, call.integer("group", 1), windows, tuple(strides))


def _by_group(seen: Singles, groups: int) -> Singles:
    """(groups, places, channels and what is behind them) of (places, channels, ...)."""
    wide = seen.reshape(len(seen), groups, math.prod(seen.shape[1:]) // groups)
    return np.ascontiguousarray(wide.swapaxes(0, 1))


def _backwards(weight: npt.NDArray[Number], axes: int) -> npt.NDArray[Number]:
    """The array with its last axes reversed."""
    return np.flip(weight, tuple(range(-axes, 0)))


def _places(shape: tuple[int, ...], places: slice) -> tuple[slice | npt.NDArray[np.intp], ...]:
    """Index of these of the (images, *spatial) places, in the order of memory, all channels."""
    image, *spatial = np.unravel_index(np.arange(math.prod(shape))[places], shape)
    return (image, slice(None), *spatial)
