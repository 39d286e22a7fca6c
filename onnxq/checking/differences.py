"""Where two results differ, counted exactly: integers in LSB, floats in units in the last place."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxq.core.arrays import Array


class Unit(enum.StrEnum):
    """Unit that differences are counted in; a later member takes the place of an earlier one."""

    LSB = "LSB"
    """Integers and booleans: 1."""
    SCALE = "LSB of its scale"
    """Floats of a DequantizeLinear: its scale."""
    ULP = "ulps"
    """Other floats: one unit in the last place of the tensor's largest magnitude, so that what
    rounding leaves of a sum near 0 is not taken for millions of ulps."""
    ULP_BEYOND_BOUND = "ulps beyond the kernel's bound"
    """ULP, and what stays within the bound that the operator states does not count."""


BYTES = (np.dtype(np.uint8), np.dtype(np.int8))
SMALLEST = float(np.finfo(np.float32).tiny)
"""Least normal float32: smaller numbers are all alike, which kernels round otherwise or flush."""
FAR = 2.0**31
"""Units between a number and NaN or Inf."""


@dataclass(slots=True)
class Differences:
    """Running counts over batches.

    Attributes:
        largest: difference, in `unit`.
        problem: of shape or dtype, where nothing could be compared.
        error: the largest finite difference of floats, as it is.
        size: the largest finite magnitude of the floats that were wanted, where one differed.
    """

    unit: Unit = Unit.LSB
    scale: float = 1.0
    elements: int = 0
    differing: int = 0
    largest: int = 0
    problem: str = ""
    error: float = 0.0
    size: float = 0.0

    def same(self, x: Array) -> None:
        """Counts one batch in which nothing differs."""
        self.elements += x.size
        if "float" in x.dtype.name and self.unit is Unit.LSB:
            self.unit = Unit.ULP

    def update(self, got: object, wanted: Array, bound: Array | None = None) -> None:
        """Counts one batch.

        `bound`: absolute differences up to this are no differences; broadcasts with wanted.
        """
        self.elements += wanted.size
        if wanted.dtype.kind in "OSUT":  # texts, of whatever NumPy type
            got, wanted = np.asarray(got).astype(str), wanted.astype(str)
            self.differing += int(np.count_nonzero(got != wanted))
            self.largest = max(self.largest, int(self.differing > 0))
            return
        kind = f"{wanted.dtype} {wanted.shape}"
        if (
            not isinstance(got, np.ndarray)
            or got.shape != wanted.shape
            or got.dtype != wanted.dtype
        ):
            got_kind = f"{got.dtype} {got.shape}" if isinstance(got, np.ndarray) else str(type(got))
            self.problem = f"the reference gives {got_kind}, ONNX Runtime {kind}"
            self.differing += wanted.size
            return
        if wanted.dtype in BYTES and self.unit is Unit.LSB and bound is None:
            self._update_bytes(got, wanted)
            return
        floats = "float" in wanted.dtype.name  # bfloat16 and float8 have no kind of their own
        if floats and self.unit is Unit.LSB:
            self.unit = Unit.ULP
        differ = got != wanted
        if floats and differ.any():
            differ &= ~(np.isnan(got) & np.isnan(wanted))
            differ &= ~((np.abs(got) < SMALLEST) & (np.abs(wanted) < SMALLEST))
        if not differ.any():
            self.unit = Unit.ULP_BEYOND_BOUND if bound is not None else self.unit
            return
        if bound is not None:
            self.unit = Unit.ULP_BEYOND_BOUND
            with np.errstate(invalid="ignore"):  # Inf - Inf: NaN, which is within no bound
                distance = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
            differ &= ~(distance <= bound)
        self.differing += int(np.count_nonzero(differ))
        ulp = self._ulp(wanted) if floats else 0.0
        lsb = self._lsb(got[differ], wanted[differ], ulp)
        self.largest = max(self.largest, int(lsb.max(initial=0)))

    def add(self, other: Differences) -> None:
        """Adds the counts of later batches."""
        self.elements += other.elements
        self.differing += other.differing
        self.largest = max(self.largest, other.largest)
        self.problem = other.problem or self.problem
        self.error, self.size = max(self.error, other.error), max(self.size, other.size)
        self.unit = max(self.unit, other.unit, key=list(Unit).index)

    def unit_size(self, wanted: Array) -> float:
        """Size of `unit` among these numbers: 1 for integers, else a scale or an ulp."""
        if self.unit is Unit.LSB:
            return 1.0
        return self.scale if self.unit is Unit.SCALE else self._ulp(wanted)

    def _update_bytes(self, got: Array, wanted: Array) -> None:
        """Integers of 8 bits, with no array that is wider."""
        lsb = np.maximum(got, wanted) - np.minimum(got, wanted)  # modulo 2^8, as uint8 is
        self.differing += int(np.count_nonzero(lsb))
        self.largest = max(self.largest, int(lsb.view(np.uint8).max(initial=0)))

    def _lsb(self, got: Array, wanted: Array, ulp: float) -> npt.NDArray[np.int64]:
        if self.unit is Unit.LSB:
            return np.asarray(np.abs(got.astype(np.int64) - wanted.astype(np.int64)))
        size = self.scale if self.unit is Unit.SCALE else ulp
        with np.errstate(invalid="ignore"):
            distance = np.abs(got.astype(np.float64) - wanted.astype(np.float64)) / size
        error = distance * size
        self.error = max(self.error, float(error.max(initial=0, where=np.isfinite(error))))
        whole = np.nan_to_num(np.rint(distance), nan=FAR, posinf=FAR)
        return np.asarray(np.clip(whole, 1, FAR), np.int64)  # it differs

    def _ulp(self, x: Array) -> float:
        """Unit in the last place of the largest finite |x|, or of 1 where there is none."""
        sizes = np.abs(x.astype(np.float64))
        top = float(sizes.max(initial=0, where=np.isfinite(sizes)))
        self.size = max(self.size, top)
        return float(np.spacing(x.dtype.type(top or 1.0)))
