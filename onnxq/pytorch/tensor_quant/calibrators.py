"""Calibrators: watch a tensor over many batches, and then say its amax.

The criteria are those of onnxq.observers, on HistogramObserver's histogram, which does not depend
on the order of the batches: amax differs from pytorch_quantization's by the bins.
"""

from typing import cast

import torch
from torch import Tensor

from onnxq.errors import QConfigError
from onnxq.observers import AmaxObserver
from onnxq.pytorch.tensor_quant.descriptor import (
    Axis,
    QuantTypeError,
    QuantValueError,
    as_num_bits,
    max_bound,
)

MAX_BINS = 1 << 16
METHODS = ("percentile", "mse", "entropy")


class MaxCalibrator:
    """amax is the largest absolute value, of the tensor or of each channel.

    Args:
        num_bits: 2 to 16; the answer does not depend on it.
        axis: the axes with values of their own; None: one value.
        unsigned: the answer does not depend on it.
        track_amax: keep each batch's amax in `amaxs`.
    Attributes:
        amaxs: float32 arrays, one for each batch that was collected; empty without track_amax.
    """

    def __init__(self, num_bits: int, axis: Axis, unsigned: bool, track_amax: bool = False) -> None:
        self.num_bits, self.axis, self.unsigned = as_num_bits(num_bits), axis, unsigned
        self.track_amax = track_amax
        self.amaxs: list[object] = []
        self._amax: Tensor | None = None

    def collect(self, x: Tensor) -> None:
        """Takes x into account; an empty tensor changes nothing.

        Raises:
            QuantValueError: NaN or Inf in x; x has no such axis, or another size on it.
        """
        if x.numel() == 0:
            return
        found = amax_of(x.detach().float(), self.axis)
        check_finite(found)
        if self._amax is not None and found.shape != self._amax.shape:
            raise QuantValueError(
                f"amax shape changed from {list(self._amax.shape)} to {list(found.shape)}: "
                f"is axis {self.axis} that of the channels?"
            )
        self._amax = found if self._amax is None else torch.maximum(self._amax, found)
        if self.track_amax:
            self.amaxs.append(found.cpu().numpy())

    def reset(self) -> None:
        """Forgets what was seen."""
        self._amax = None
        self.amaxs.clear()

    def compute_amax(self) -> Tensor | None:
        """float32, shape () or that of x with size 1 on the other axes; None before any data."""
        return None if self._amax is None else self._amax.clone()

    def __repr__(self) -> str:
        return f"MaxCalibrator(axis={self.axis}, amax={self._amax})"


class HistogramCalibrator:
    """amax by percentile, least squared error or least divergence, from one histogram of |x|.

    Args:
        num_bits: 2 to 16.
        axis: None: histograms are per tensor.
        unsigned: whether the integers begin at 0.
        num_bins: bins up to the power of two above the largest value, 64 to 65536.
        grow_method: documented as deprecated; without effect.
        torch_hist: documented; without effect: there is one histogram, counted on the CPU.
        skip_zeros: do not count zeros. (mse and entropy never do: zero is always a level.)
    Raises:
        NotImplementedError: an axis (the documented error).
    """

    def __init__(
        self,
        num_bits: int,
        axis: Axis,
        unsigned: bool,
        num_bins: int = 4096,
        grow_method: str | None = None,
        skip_zeros: bool = False,
        torch_hist: object = False,
    ) -> None:
        if axis is not None:
            raise NotImplementedError(
                f"axis {axis}: histograms are collected per tensor only. Use calib_method='max'."
            )
        self.num_bits, self.axis, self.unsigned = as_num_bits(num_bits), axis, unsigned
        self.num_bins, self.grow_method, self.skip_zeros = num_bins, grow_method, skip_zeros
        self.torch_hist = torch_hist
        self._bound = max_bound(num_bits, unsigned)
        self._observer, self._batches = self._fresh("mse"), 0

    def _fresh(self, method: str, percentile: float = 99.99) -> AmaxObserver:
        return AmaxObserver(
            quant_max=self._bound,
            dtype="int32",  # holds -65535..65535
            method=method,
            percentile=percentile,
            bins=self.num_bins,
        )

    def collect(self, x: Tensor) -> None:
        """Counts |x|; an empty tensor changes nothing.

        Raises:
            QuantValueError: NaN or Inf in x.
        """
        values = x.detach().float().abs()
        if self.skip_zeros:
            values = values[values != 0]
        if values.numel() == 0:
            return
        check_finite(values.max())
        self._observer.observe(values.cpu().numpy(), self._batches)
        self._batches += 1

    def reset(self) -> None:
        """Forgets what was seen."""
        self._observer, self._batches = self._fresh("mse"), 0

    def compute_amax(
        self,
        method: str,
        *,
        stride: int = 1,  # noqa: ARG002  # documented; the search chooses its own steps
        start_bin: int = 128,  # noqa: ARG002  # NVIDIA's signature
        percentile: float = 99.99,
    ) -> Tensor | None:
        """float32, shape (); None before any data.

        Args:
            method: "percentile", "mse" or "entropy".
            stride: documented; without effect.
            start_bin: documented; without effect.
            percentile: share of |x| to keep, in percent; in (0, 100].
        Raises:
            QuantTypeError: another method (the documented TypeError).
            QuantValueError: a percentile out of its range (the documented ValueError).
        """
        if method not in METHODS:
            raise QuantTypeError(f"method: got {method!r}; wanted {', '.join(METHODS)}.")
        try:
            chosen = self._fresh(method, percentile)
        except QConfigError as error:
            raise QuantValueError(str(error)) from error
        chosen.load_state(self._observer.state())
        return torch.as_tensor(chosen.amax()) if chosen.has_observed else None

    def __repr__(self) -> str:
        return f"HistogramCalibrator(num_bits={self.num_bits}, batches={self._batches})"


Calibrator = MaxCalibrator | HistogramCalibrator


def amax_of(x: Tensor, axis: Axis) -> Tensor:
    """Largest absolute value: shape (), or that of x with size 1 on all axes but `axis`."""
    if axis is None:
        return x.abs().amax()
    kept = {a % x.dim() for a in kept_axes(axis, x.dim())}
    reduced = [i for i in range(x.dim()) if i not in kept]
    return x.abs().amax(dim=reduced, keepdim=True) if reduced else x.abs()


def kept_axes(axis: Axis, rank: int) -> tuple[int, ...]:
    """The axes as a tuple of what lies in [0, rank)."""
    axes = axis if isinstance(axis, tuple) else (cast("int", axis),)
    for a in axes:
        if not -rank <= a < rank:
            raise QuantValueError(f"axis {axis}: the tensor has {rank} axes.")
    return tuple(a % rank for a in axes)


def check_finite(amax: Tensor) -> None:
    """Guards a calibrator's data."""
    if not bool(amax.isfinite().all()):
        raise QuantValueError(
            "calibration: the tensor holds NaN or Inf; correct the sample, or the model that "
            "computes it."
        )
