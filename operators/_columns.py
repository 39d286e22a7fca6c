"""Matrix products of integers: B with one scale and zero point per column."""

from dataclasses import dataclass, replace

import numpy as np

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import Array, IntegerCall, Ints, Singles
from onnxq.operator.integer_call import stored
from onnxq.operators import _gemm
from onnxq.operators._pairs import matmul_correction
from onnxq.qparams import QParams
from onnxq.targets.accumulation import Accumulator


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """B (..., K, N) of a matrix product.

    Attributes:
        values: float32, integers minus zero points, B's shape.
        bound: a bound on |values|.
        scale: float32 of rank 0, or per column: (N,), or (..., 1, N) with B's own batches.
        late: (N,), multiplied by last (see `late_columns`); None elsewhere.
    """

    values: Singles
    bound: int
    scale: Singles
    late: Singles | None = None


def columns(
    call: IntegerCall, name: str, b: Array, scale: Array | None, zero_point: Array | None
) -> Columns:
    """B with its scales (None: 1) and zero points (None: 0).

    Each is one number, or one per column of B: (N,), (1, N) where B is a matrix, or (..., 1, N)
    with B's own batches.
    """
    qdtype = call.qdtype(b, name)
    scales = np.ones((), np.float32) if scale is None else np.asarray(scale)
    points = np.zeros((), b.dtype) if zero_point is None else np.asarray(zero_point)
    shapes = [
        _column_shape(call, f"{name}_{what}", b, values)
        for what, values in (("scale", scales), ("zero_point", points))
    ]
    shape = max(shapes, key=len)
    if any(other not in ((), shape) for other in shapes):
        raise call.shape_error(
            f"{name}_scale has shape {scales.shape}, {name}_zero_point "
            f"{points.shape}; wanted equal ones, or one number."
        )
    if shape != () and scales.size == 1:
        scales = np.broadcast_to(scales.reshape(()), shape)
    flat = call.qparams_of(name, _flat(scales), _flat(points), qdtype, axis=0)
    zeros = flat.zero_point.reshape(shape).astype(np.float32)
    values = np.asarray(b.astype(np.float32) - zeros)
    return Columns(values, _gemm.max_abs(flat), flat.scale.reshape(shape))


def late_columns(
    call: IntegerCall, name: str, b: Array, scale: Array, zero_point: Array | None
) -> Columns:
    """B as by `columns`; a B with batches may have its scales in one vector, (N,) or (1, ..., N).

    ONNX Runtime's MatMuls to float32 have no kernel for these, and multiply by them last.
    """
    own = (*b.shape[:-2], 1, b.shape[-1]) if b.ndim > 2 else scale.shape
    vector = scale.ndim > 0 and scale.size > 1 and scale.size == scale.shape[-1]
    if scale.shape == own or not vector or scale.size != b.shape[-1]:
        return columns(call, name, b, scale, zero_point)
    late = columns(call, name, b.reshape(-1, b.shape[-1]), scale.reshape(-1), None).scale
    return replace(columns(call, name, b, None, zero_point), late=late)


def _flat(x: Array) -> Array:
    return x.reshape(-1) if x.ndim else x


def _column_shape(call: IntegerCall, what: str, b: Array, x: Array) -> tuple[int, ...]:
    """The shape of scales or zero points as it broadcasts with B and with the product."""
    if x.size == 1 and x.ndim <= 1:
        return ()
    width = b.shape[-1] if b.ndim > 1 else 1
    if b.ndim == 2 and x.shape in ((width,), (1, width)):
        return (width,)
    if b.ndim > 1 and x.shape == (*b.shape[:-2], 1, width):
        return x.shape
    raise call.shape_error(
        f"{what} has shape {x.shape}; a B of shape {b.shape} wants one number, or one per column "
        f"({width}) as ONNX Runtime takes them: B's shape with 1 row, or a vector if B is a matrix."
    )


def check_signs(call: IntegerCall, a: Array, b: Array) -> None:
    """Raises UnsupportedError for int8 by uint8, which ONNX Runtime has no kernel for."""
    if a.dtype == np.int8 and b.dtype == np.uint8:
        raise UnsupportedError(
            f"{call.op_type}: A is int8 and B uint8; ONNX Runtime has uint8 by either, and int8 "
            "by int8."
        )


def check_sum(call: IntegerCall, a: Array, b: Array) -> None:
    """Raises UnsupportedError for K = 0: ONNX Runtime 1.31 returns memory as it finds it."""
    if a.ndim and b.ndim and a.shape[-1] == 0 == b.shape[-min(b.ndim, 2)]:
        raise UnsupportedError(
            f"{call.op_type}: A {a.shape} and B {b.shape} have nothing to sum (K = 0); ONNX "
            "Runtime leaves the result uninitialized. Fold the empty MatMul away."
        )


def matmul_columns(
    call: IntegerCall,
    a: Array,
    a_qparams: QParams,
    b: Columns,
    integers: Array,
    accumulator: Accumulator,
) -> Ints:
    """int32 sums of (a - a_zp) (b - b_zp), modulo 2^32; shapes as np.matmul."""
    try:
        total = _gemm.matmul_int32(stored(a), a_qparams, b.values, b.bound)
    except ShapeError as error:
        raise call.shape_error(f"{error}") from error
    if accumulator.exact:
        return total
    change = matmul_correction(stored(a), stored(integers), accumulator)
    return total if change is None else np.asarray(total + change)


def to_float(
    call: IntegerCall, total: Ints, a_scale: Singles, b: Columns, bias: Array | None
) -> Singles:
    """float32(total) * (a_scale * b.scale) + bias, rounded after each step.

    Args:
        call: gives the name, for messages.
        total: of `matmul_columns`.
        a_scale: one number.
        b: of `late_columns`; float32(total) * a_scale * b.late where there is such a scale.
        bias: float32, one number per column: (N,) or (1, ..., N).
    """
    width = total.shape[-1] if total.ndim else 1
    if bias is not None and (bias.dtype != np.float32 or bias.size != width):
        raise call.shape_error(
            f"the bias is {bias.dtype} of shape {bias.shape}; wanted float32, ({width},)."
        )
    if bias is not None and b.late is not None:
        raise UnsupportedError(
            f"{call.op_type}: B of shape {b.values.shape} has its scales in one vector, and there "
            "is a bias, which ONNX Runtime multiplies by the scales. Write the scales as (..., 1, "
            "N) with B's own batches."
        )
    with np.errstate(over="ignore", under="ignore"):
        y = np.asarray(total.astype(np.float32) * np.asarray(a_scale * b.scale))
        if b.late is not None:
            y = np.asarray(y * b.late)
        return y if bias is None else np.asarray(y + bias.astype(np.float32).reshape(-1))
