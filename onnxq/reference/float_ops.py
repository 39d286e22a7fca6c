"""Float operators of com.microsoft that ONNX Runtime writes into its optimized graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx.reference.op_run import OpRun

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

MICROSOFT = "com.microsoft"
GELU_SLOPE = 1.702  # QuickGelu's default alpha


class QuickGelu(OpRun):
    """Y = X * sigmoid(alpha * X)."""

    op_domain = MICROSOFT

    def _run(self, x: Floats, alpha: float | None = None, **_: Any) -> tuple[Floats, ...]:
        with np.errstate(over="ignore"):
            slope = np.float32(GELU_SLOPE if alpha is None else alpha)
            return (np.asarray(x / (1 + np.exp(-slope * x)), x.dtype),)


class FusedMatMul(OpRun):
    """Y = alpha * A B; transA and transB exchange the last two axes."""

    op_domain = MICROSOFT

    def _run(
        self,
        a: Floats,
        b: Floats,
        alpha: float | None = None,
        transA: int | None = None,  # noqa: N803  # names of the attributes
        transB: int | None = None,  # noqa: N803
        **_: Any,
    ) -> tuple[Floats, ...]:
        a = np.swapaxes(a, -1, -2) if transA else a
        b = np.swapaxes(b, -1, -2) if transB else b
        product = np.matmul(a, b)
        return (np.asarray(product * np.float32(1 if alpha is None else alpha), a.dtype),)


FLOAT_OPS: tuple[type[OpRun], ...] = (FusedMatMul, QuickGelu)
