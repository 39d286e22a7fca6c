"""Maxima and means over windows, with the input's qparams."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.functional.calls import call, check_input, check_rank, per_axis
from onnxq.operator import AttributeValue
from onnxq.qtensor.checked import whole
from onnxq.qtensor.tensor import QTensor

PLANES = "(N, C, H, W) or (C, H, W)"
BITS = 8  # of ONNX Runtime's averages: sums in float32, or in int32


def max_pool1d(
    input: QTensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> QTensor:
    """The largest element of each window of (N, C, L) or (C, L). All else as `max_pool2d`."""
    x = check_input("max_pool1d", input)
    check_rank("max_pool1d", x, (2, 3), "(N, C, L) or (C, L)")
    windows = _windows("max_pool1d", 1, kernel_size, stride, padding)
    return _maxima("max_pool1d", x, windows, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: QTensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> QTensor:
    """The largest element of each window; ONNX MaxPool. Padding is never the largest.

    Args:
        input: (N, C, H, W) or (C, H, W), any integer type.
        kernel_size: of the windows, one number or (height, width).
        stride: between windows, likewise; None: kernel_size.
        padding: on both sides, at most half of kernel_size.
        dilation: between the taps of a window.
        ceil_mode: whether a last window may reach beyond the padding.
        return_indices: False; PyTorch has no indices of quantized maxima either.
    Raises:
        ShapeError: input is no QTensor, or has another rank or no room for a window.
        UnsupportedError: quantized per channel, or indices are asked for.
    """
    x = check_input("max_pool2d", input)
    check_rank("max_pool2d", x, (3, 4), PLANES)
    windows = _windows("max_pool2d", 2, kernel_size, stride, padding)
    return _maxima("max_pool2d", x, windows, dilation, ceil_mode, return_indices)


def avg_pool2d(
    input: QTensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> QTensor:
    """The mean of each window; com.microsoft QLinearAveragePool.

    Args:
        input: (N, C, H, W) or (C, H, W).
        kernel_size: of the windows, one number or (height, width).
        stride: between windows, likewise; None: kernel_size.
        padding: zeros on both sides, at most half of kernel_size.
        ceil_mode: whether a last window may reach beyond the padding.
        count_include_pad: whether padding counts as elements.
        divisor_override: divides the sums in place of the number of elements; 1 or more.
    Raises:
        ShapeError: input is no QTensor, or has another rank or no room for a window, or
            divisor_override is not positive.
        UnsupportedError: quantized per channel, or more than 8 bits.
    """
    x = check_input("avg_pool2d", input)
    check_rank("avg_pool2d", x, (3, 4), PLANES)
    windows = _windows("avg_pool2d", 2, kernel_size, stride, padding)
    return _average("avg_pool2d", x, windows, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: QTensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> QTensor:
    """The mean of each window of (N, C, D, H, W). Arguments and errors as `avg_pool2d`."""
    x = check_input("avg_pool3d", input)
    check_rank("avg_pool3d", x, (5,), "(N, C, D, H, W)")
    windows = _windows("avg_pool3d", 3, kernel_size, stride, padding)
    return _average("avg_pool3d", x, windows, ceil_mode, count_include_pad, divisor_override)


def adaptive_avg_pool2d(input: QTensor, output_size: int | Sequence[int | None] | None) -> QTensor:
    """Means over output_size windows that cover the input.

    Window i of n along an axis of size s has the elements from floor(i s / n) up to, and without,
    ceil((i + 1) s / n). Windows of one size are com.microsoft QLinearAveragePool; others, and a
    single one, QLinearGlobalAveragePool each.

    Args:
        input: (N, C, H, W) or (C, H, W).
        output_size: 1 or more, one number or (height, width); None: the input's.
    Raises:
        ShapeError: input is no QTensor, has another rank or nothing to average, or output_size is
            not one or two positive numbers.
        UnsupportedError: quantized per channel, or more than 8 bits.
    """
    x = check_input("adaptive_avg_pool2d", input)
    check_rank("adaptive_avg_pool2d", x, (3, 4), PLANES)
    return _adaptive("adaptive_avg_pool2d", x, 2, output_size)


def adaptive_avg_pool3d(input: QTensor, output_size: int | Sequence[int | None] | None) -> QTensor:
    """Means of (N, C, D, H, W) or (C, D, H, W). All else as `adaptive_avg_pool2d`."""
    x = check_input("adaptive_avg_pool3d", input)
    check_rank("adaptive_avg_pool3d", x, (4, 5), "(N, C, D, H, W) or (C, D, H, W)")
    return _adaptive("adaptive_avg_pool3d", x, 3, output_size)


def _adaptive(
    op: str, x: QTensor, rank: int, output_size: int | Sequence[int | None] | None
) -> QTensor:
    _check_bits(op, x)
    asked = [output_size] * rank if not isinstance(output_size, Iterable) else list(output_size)
    spatial = list(x.shape[-rank:])
    if len(asked) != rank or min(spatial) < 1:
        raise ShapeError(
            f"{op}: output_size {output_size} of {x.shape}; wanted one number or {rank}, and "
            "elements."
        )
    out = [
        size if n is None else whole(op, "output_size", n)
        for n, size in zip(asked, spatial, strict=True)
    ]
    if min(out) < 1:
        raise ShapeError(f"{op}: output_size is {output_size}; wanted 1 or more.")
    batched = _batched(x, rank + 2)
    if max(out) > 1 and all(size % n == 0 for size, n in zip(spatial, out, strict=True)):
        kernel = [size // n for size, n in zip(spatial, out, strict=True)]
        attributes: dict[str, AttributeValue] = {"kernel_shape": kernel, "strides": kernel}
        y = call("AveragePool", [batched], x.qparams, attributes)
        return y.view(*x.shape[:-rank], *out)
    integers = np.empty((*batched.shape[:2], *out), x.dtype.storage)
    windows = [enumerate(_parts(size, n)) for size, n in zip(spatial, out, strict=True)]
    for cell in itertools.product(*windows):
        at, parts = zip(*cell, strict=True)
        mean = call("GlobalAveragePool", [batched[(slice(None), slice(None), *parts)]], x.qparams)
        integers[(slice(None), slice(None), *at)] = mean.int_repr().reshape(integers.shape[:2])
    return QTensor(integers.reshape(*x.shape[:-rank], *out), x.qparams)


def _check_bits(op: str, x: QTensor) -> None:
    if x.dtype.bits > BITS:
        raise UnsupportedError(
            f"{op}: input is {x.dtype}; averages are of 8 bits, as ONNX Runtime's kernels. "
            "Call it on dequantize(), or use QTensor.mean."
        )


def _parts(size: int, count: int) -> list[slice]:
    return [slice(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _batched(x: QTensor, rank: int) -> QTensor:
    """The same with a batch axis of one in front where it has none."""
    return x if x.ndim == rank else x[None]


_Windows = tuple[list[int], list[int], list[int]]
"""Kernel, strides and padding: one entry per spatial axis."""


def _windows(
    op: str,
    rank: int,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None,
    padding: int | Sequence[int],
) -> _Windows:
    """Raises ShapeError: sizes below 1, or padding beyond half of the kernel."""
    kernel = per_axis(op, "kernel_size", kernel_size, rank)
    # an empty sequence is how PyTorch's own signatures say "as the kernel"
    given = kernel_size if stride is None or stride in ((), []) else stride
    strides = per_axis(op, "stride", given, rank)
    pads = per_axis(op, "padding", padding, rank)
    if min(kernel + strides) < 1:
        raise ShapeError(f"{op}: kernel_size {kernel}, stride {strides}; wanted 1 or more.")
    if any(not 0 <= 2 * pad <= size for pad, size in zip(pads, kernel, strict=True)):
        raise ShapeError(
            f"{op}: padding is {pads}, kernel_size {kernel}; wanted 0 to half of the kernel. "
            "Pad the input before."
        )
    return kernel, strides, pads


def _maxima(
    op: str,
    x: QTensor,
    windows: _Windows,
    dilation: int | Sequence[int],
    ceil_mode: bool,
    return_indices: bool,
) -> QTensor:
    if return_indices:
        raise UnsupportedError(
            f"{op}: return_indices is not there for quantized tensors. Take them of dequantize()."
        )
    kernel, strides, pads = windows
    rank = len(kernel)
    dilations = per_axis(op, "dilation", dilation, rank)
    if min(dilations) < 1:
        raise ShapeError(f"{op}: dilation is {dilation}; wanted 1 or more.")
    attributes: dict[str, AttributeValue] = {
        "kernel_shape": kernel,
        "strides": strides,
        "pads": pads * 2,
        "dilations": dilations,
        "ceil_mode": int(ceil_mode),
    }
    y = call("MaxPool", [_batched(x, rank + 2)], x.qparams, attributes)
    return y.view(*x.shape[:-rank], *y.shape[-rank:])


def _average(
    op: str,
    x: QTensor,
    windows: _Windows,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> QTensor:
    _check_bits(op, x)
    kernel, strides, pads = windows
    rank = len(kernel)
    spatial = x.shape[-rank:]
    out = [_count(*sizes, ceil_mode) for sizes in zip(spatial, kernel, strides, pads, strict=True)]
    if min(out) < 1:
        raise ShapeError(f"{op}: windows of {kernel} do not fit into {x.shape}, padded by {pads}.")
    batched = _batched(x, rank + 2)
    attributes: dict[str, AttributeValue] = {"kernel_shape": kernel, "strides": strides}
    if divisor_override is not None:
        ends = [(n - 1) * s + k - p for n, s, k, p in zip(out, strides, kernel, pads, strict=True)]
        behind = [max(end - size, 0) for end, size in zip(ends, spatial, strict=True)]
        batched = _rescaled(op, _padded(batched, pads, behind), math.prod(kernel), divisor_override)
    elif count_include_pad and any(pads):
        # as elements, so that what ceil_mode adds behind them is not counted
        batched = _padded(batched, pads, pads)
        attributes["ceil_mode"] = int(ceil_mode)
    else:
        attributes.update(pads=pads * 2, ceil_mode=int(ceil_mode))
    y = call("AveragePool", [batched], x.qparams, attributes)
    y = y[(slice(None), slice(None), *[slice(n) for n in out])].contiguous()
    return y.view(*x.shape[:-rank], *out)


def _count(size: int, kernel: int, stride: int, pad: int, ceil_mode: bool) -> int:
    """Windows along one axis; with ceil_mode, none starts in the padding behind."""
    room = size + 2 * pad - kernel
    count = room // stride + 1
    if ceil_mode and room % stride and count * stride < size + pad:
        return count + 1
    return count


def _padded(x: QTensor, before: Sequence[int], behind: Sequence[int]) -> QTensor:
    """Zeros around the spatial axes."""
    widths = [(0, 0), (0, 0), *zip(before, behind, strict=True)]
    return QTensor(np.pad(x.int_repr(), widths, constant_values=x.q_zero_point()), x.qparams)


def _rescaled(op: str, x: QTensor, count: int, divisor: int) -> QTensor:
    """Real values times count / divisor, so that a mean over count becomes a sum over divisor."""
    if whole(op, "divisor_override", divisor) < 1:
        raise ShapeError(f"{op}: divisor_override is {divisor}; wanted 1 or more.")
    scale = x.qparams.scale * np.float32(count) / np.float32(divisor)
    return QTensor(x.int_repr(), replace(x.qparams, scale=np.asarray(scale)))
