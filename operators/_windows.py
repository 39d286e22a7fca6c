"""Sliding windows over the spatial axes of (batch, channels, *spatial), by ONNX's padding rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from onnxq.operator import NodeCall

BLOCK = 1 << 16  # elements: 256 KiB of float32

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Windows:
    """Geometry of a convolution or pool; one entry per spatial axis.

    Attributes:
        begin: padding before the first element.
        out: number of windows.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    out: tuple[int, ...]

    def only(self, axis: int, spatial: Sequence[int]) -> Windows:
        """The windows along one axis; single elements along the others, of those sizes."""

        def pick(there: Sequence[int], elsewhere: Sequence[int]) -> tuple[int, ...]:
            return tuple(
                t if i == axis else e for i, (t, e) in enumerate(zip(there, elsewhere, strict=True))
            )

        ones, zeros = [1] * len(spatial), [0] * len(spatial)
        return Windows(
            pick(self.kernel, ones),
            pick(self.strides, ones),
            pick(self.dilations, ones),
            pick(self.begin, zeros),
            pick(self.out, spatial),
        )


def geometry(call: NodeCall, spatial: Sequence[int], kernel: Sequence[int]) -> Windows:
    """Windows of an input with those spatial sizes.

    out = floor or ceil((size + pads - dilation * (kernel - 1) - 1) / stride) + 1
    """
    pads = call.ints("pads", [])
    if min(pads, default=0) < 0:
        raise call.shape_error(f"pads {pads}; wanted numbers from 0, as ONNX Runtime takes them.")
    return _geometry(call, spatial, kernel)


def _geometry(call: NodeCall, spatial: Sequence[int], kernel: Sequence[int]) -> Windows:
    """Windows as by `geometry`; pads below 0 skip elements."""
    rank = len(spatial)
    strides = call.ints("strides", [1] * rank)
    dilations = call.ints("dilations", [1] * rank)
    pads = call.ints("pads", [0] * 2 * rank)
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise call.shape_error(
            f"{rank} spatial axes; got kernel {list(kernel)}, strides {strides}, "
            f"dilations {dilations}, pads {pads}."
        )
    check_positive(call, kernel=kernel, strides=strides, dilations=dilations)
    span = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    begin, end = _padding(call, spatial, span, strides, pads)
    out = []
    for size, width, stride, before, after in zip(spatial, span, strides, begin, end, strict=True):
        room = size + before + after - width
        ceil = call.integer("ceil_mode", 0) != 0
        if room < 0 and not (ceil and -room < stride):  # rounded up, there is a window all the same
            raise call.shape_error(
                f"windows of {span} do not fit into an input of {list(spatial)}, "
                f"padded by {begin} and {end}."
            )
        steps = room // stride
        if ceil and room % stride:
            # ONNX: windows that would start in the padding behind the input are left out
            steps += (steps + 1) * stride < size + before
        out.append(steps + 1)
    return Windows(tuple(kernel), tuple(strides), tuple(dilations), tuple(begin), tuple(out))


def check_positive(call: NodeCall, **sizes: Sequence[int]) -> None:
    """Raises ShapeError where a size is less than 1; their names stand in the message."""
    for name, values in sizes.items():
        if min(values, default=1) < 1:
            raise call.shape_error(f"{name} {list(values)}; wanted numbers from 1.")


def pool_geometry(call: NodeCall, spatial: Sequence[int], kernel: Sequence[int]) -> Windows:
    """Windows of ONNX Runtime's pools, whose SAME padding is not that of its convolutions.

    It leaves dilations out of account, and is negative where strides skip elements at the ends.
    """
    pads = call.ints("pads", [])
    if 0 in spatial or any(pad >= taps for pad, taps in zip(pads, [*kernel] * 2, strict=False)):
        raise call.shape_error(
            f"kernel {list(kernel)}, pads {pads}, input of {list(spatial)}; wanted "
            "elements, and pads smaller than the kernel."
        )
    mode, strides = call.text("auto_pad", "NOTSET"), call.ints("strides", [])
    strides = strides or [1] * len(spatial)
    check_positive(call, strides=strides)
    fits = len(strides) == len(kernel) == len(spatial)
    if mode not in ("SAME_UPPER", "SAME_LOWER") or not fits:
        return geometry(call, spatial, kernel)
    total = [
        (-(-size // stride) - 1) * stride + taps - size
        for size, stride, taps in zip(spatial, strides, kernel, strict=True)
    ]
    lower = mode == "SAME_LOWER"
    begin = [int((pad + lower) / 2) for pad in total]  # C++ divides toward 0
    end = [pad - before for pad, before in zip(total, begin, strict=True)]
    given = {**call.attributes, "auto_pad": "NOTSET", "pads": [*begin, *end]}
    return _geometry(replace(call, attributes=given), spatial, kernel)


def _padding(
    call: NodeCall,
    spatial: Sequence[int],
    span: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Padding before and behind, one entry per axis."""
    rank = len(spatial)
    mode = call.text("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return list(pads[:rank]), list(pads[rank:])
    if mode == "VALID":
        return [0] * rank, [0] * rank
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise call.shape_error(
            f"auto_pad is '{mode}'; ONNX knows NOTSET, SAME_UPPER, SAME_LOWER, VALID."
        )
    total = [
        max((-(-size // stride) - 1) * stride + width - size, 0)
        for size, width, stride in zip(spatial, span, strides, strict=True)
    ]
    less, more = [n // 2 for n in total], [n - n // 2 for n in total]
    return (less, more) if mode == "SAME_UPPER" else (more, less)


def sliding(x: npt.NDArray[Number], windows: Windows, fill: int) -> npt.NDArray[Number]:
    """A view (batch, channels, *out, *kernel) of x padded with `fill`."""
    rank = len(windows.out)
    span = [d * (k - 1) + 1 for k, d in zip(windows.kernel, windows.dilations, strict=True)]
    widths = [(0, 0), (0, 0)]
    cut = [slice(None), slice(None)]
    for size, width, stride, before, out in zip(
        x.shape[2:], span, windows.strides, windows.begin, windows.out, strict=True
    ):
        needed = (out - 1) * stride + width
        widths.append((max(before, 0), max(needed - before - size, 0)))
        cut.append(slice(max(-before, 0), max(-before, 0) + needed))
    padded = np.pad(x, widths, constant_values=fill) if any(map(any, widths)) else x
    view = np.lib.stride_tricks.sliding_window_view(
        padded[tuple(cut)], span, axis=tuple(range(2, 2 + rank))
    )
    steps = [slice(None), slice(None)]
    steps += [slice(None, None, stride) for stride in windows.strides]
    steps += [slice(None, None, dilation) for dilation in windows.dilations]
    return view[tuple(steps)]


def tap(view: npt.NDArray[Number], index: Iterable[int]) -> npt.NDArray[Number]:
    """(batch, channels, *out): what the tap at `index` of each window of a view sees."""
    place: tuple[EllipsisType | int, ...] = (..., *index)
    seen: npt.NDArray[Number] = view[place]
    return seen


def blocks(x: npt.NDArray[Number], windows: Windows) -> Iterator[tuple[slice, npt.NDArray[Number]]]:
    """(place among the batch * channels planes, those planes), few enough to stay in a cache.

    Args:
        x: (batch, channels, *spatial).
        windows: their number bounds what a pool keeps of each plane.
    Yields:
        slices of the first axis of the result, and arrays (1, planes, *spatial).
    """
    spatial = x.shape[2:]
    planes = x.reshape(1, math.prod(x.shape[:2]), *spatial)
    step = max(1, BLOCK // max(math.prod(spatial), math.prod(windows.out), 1))
    for start in range(0, planes.shape[1], step):
        place = slice(start, start + step)
        yield place, planes[:, place]
