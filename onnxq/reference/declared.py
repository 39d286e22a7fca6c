"""Inputs beside what the model declares of them, as ONNX Runtime checks them."""

from __future__ import annotations

import numpy as np
import onnx

from onnxq.errors import CalibrationError, kind_of


def check_input(declared: onnx.ValueInfoProto, x: object) -> None:
    """Passes an array of the declared type, rank and static sizes; other kinds than tensors pass.

    Raises:
        CalibrationError: another one, with what is wanted.
    """
    if not declared.type.HasField("tensor_type"):
        return
    kind = declared.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type) if kind.elem_type else None
    if not isinstance(x, np.ndarray | np.generic):
        what = f"an array of {dtype}" if dtype else "an array"
        raise CalibrationError(
            f"input '{declared.name}' is {kind_of(x)}; wanted {what}. Pass np.asarray(...)."
        )
    text = kind.elem_type == onnx.TensorProto.STRING
    if dtype is not None and x.dtype != dtype and not (text and x.dtype.kind in "OSUT"):
        raise CalibrationError(
            f"input '{declared.name}' is {x.dtype}; wanted {dtype}. Pass x.astype(...)."
        )
    if not kind.HasField("shape"):
        return
    sizes = [size.dim_value if size.dim_value > 0 else None for size in kind.shape.dim]
    if len(sizes) != x.ndim or any(
        size not in (None, got) for size, got in zip(sizes, x.shape, strict=True)
    ):
        wanted = ", ".join(
            str(size or dim.dim_param or "?")
            for size, dim in zip(sizes, kind.shape.dim, strict=True)
        )
        raise CalibrationError(
            f"input '{declared.name}' has shape {x.shape}; wanted ({wanted}), as the model says."
        )
