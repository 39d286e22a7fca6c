"""How a quantized tensor prints: its real values, then what they are quantized with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from onnxq.qparams import PerBlock, PerChannel

if TYPE_CHECKING:
    from onnxq.qparams import QParams

START = "QTensor("
WIDTH = 80  # columns, as PyTorch prints
DIGITS = 4


def text_of(values: npt.NDArray[np.float32], qparams: QParams) -> str:
    """QTensor([real values], size=(2, 3), dtype=quint8, quantization_scheme=..., scale=...).

    Args:
        values: float32, any shape: what the tensor stands for.
        qparams: of the tensor.
    """
    fields = [f"size={values.shape}", f"dtype=q{qparams.dtype}", *_scheme(qparams)]
    lines = [START + _body(values)]
    for field in fields:
        lines[-1] += ","
        if len(lines[-1].rsplit("\n", 1)[-1]) + len(field) + 2 <= WIDTH:
            lines[-1] += f" {field}"
        else:
            lines.append(" " * len(START) + field)
    return "\n".join(lines) + ")"


def _body(values: npt.NDArray[np.float32]) -> str:
    """The values with four digits after the point, or none where all are whole numbers."""
    if not values.size:
        return "[]"
    whole = bool((values == np.rint(values)).all())
    return np.array2string(
        values,
        max_line_width=WIDTH,
        precision=DIGITS,
        separator=", ",
        prefix=START,
        floatmode="maxprec" if whole else "fixed",
        threshold=1000,
        edgeitems=3,
    )


def _scheme(qparams: QParams) -> list[str]:
    numbers = [f"scale={_list(qparams.scale)}", f"zero_point={_list(qparams.zero_point)}"]
    match qparams.granularity:
        case PerChannel(axis):
            return ["quantization_scheme=per_channel_affine", *numbers, f"axis={axis}"]
        case PerBlock(axis, size):
            blocks = [f"axis={axis}", f"block_size={size}"]
            return ["quantization_scheme=per_block_affine", *numbers, *blocks]
    return ["quantization_scheme=per_tensor_affine", *numbers]


def _list(values: npt.NDArray[np.generic]) -> str:
    if values.ndim == 0:
        return str(values[()])
    return np.array2string(values, separator=", ", threshold=12, edgeitems=2, max_line_width=1000)
