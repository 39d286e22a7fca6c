"""One run of an operator on integers as a value: the arrays of its inputs become QParams."""

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from onnxq import dtypes
from onnxq.core.arrays import Array
from onnxq.dtypes import INT32, QDType
from onnxq.errors import ShapeError
from onnxq.operator.call import Call, NodeCall
from onnxq.operator.node_plan import NodePlan
from onnxq.qparams import IntArray, PerChannel, PerTensor, QParams, sum_scale

QDTYPES: dict[np.dtype[np.generic], QDType] = {
    np.dtype(dtype): qdtype
    for dtype, qdtype in (
        (np.uint8, dtypes.UINT8),
        (np.int8, dtypes.INT8),
        (np.uint16, dtypes.UINT16),
        (np.int16, dtypes.INT16),
        (np.int32, dtypes.INT32),
        (ml_dtypes.uint4, dtypes.UINT4),
        (ml_dtypes.int4, dtypes.INT4),
        (ml_dtypes.uint2, dtypes.UINT2),
        (ml_dtypes.int2, dtypes.INT2),
    )
}
"""dtype of a tensor of that ONNX type -> QDType. onnx hands over types below 8 bits as arrays of
ml_dtypes, one integer per element; kernels take and return these, and compute in QDType.storage."""


def stored(x: Array) -> IntArray:
    """The integers in their QDType's storage: int4 of ml_dtypes becomes int8."""
    if x.dtype not in QDTYPES:
        raise ShapeError(f"an integer kernel reads an array of {x.dtype}; wanted integers.")
    return np.asarray(x, QDTYPES[x.dtype].storage)


def as_tensor(q: IntArray, dtype: np.dtype[np.generic]) -> Array:
    """Integers in their QDType's storage as the array that onnx has for them; undoes `stored`."""
    return np.asarray(q, dtype)


@dataclass(frozen=True, slots=True, eq=False)
class IntegerCall(NodeCall):
    """One run of `IntegerOperator.kernel`: scales and zero points are inputs of the node."""

    def operand(self, slot: int, name: str) -> Array:
        """The array in a slot.

        Raises:
            ShapeError: absent; the message has the operand's name.
        """
        x = self.optional(slot)
        if x is None:
            raise self.shape_error(f"input {slot}, {name}, is absent; it is needed.")
        return x

    def qdtype(self, x: Array, name: str, allowed: Sequence[str] = ("uint8", "int8")) -> QDType:
        """The QDType of integers.

        Raises:
            ShapeError: a dtype that the operator does not take.
        """
        if x.dtype.name not in allowed:
            raise self.shape_error(f"{name} has dtype {x.dtype}; wanted {' or '.join(allowed)}.")
        return QDTYPES[x.dtype]

    def qparams(self, name: str, slot: int, qdtype: QDType, axis: int | None = None) -> QParams:
        """QParams of one operand, from its scale in `slot` and its zero point in the next one.

        Args:
            name: of the operand, for messages.
            slot: of the scale, which is float32 of shape (), (1,), or with an axis (channels,);
                the zero point is of the operand's type, one number or as many as scales; absent: 0.
            qdtype: of the operand.
            axis: of the channels; None: only per-tensor is allowed.
        Raises:
            ShapeError: dtypes or sizes do not fit, or the scale is not positive and finite.
        """
        scale = self.operand(slot, f"{name}_scale")
        return self.qparams_of(name, scale, self.optional(slot + 1), qdtype, axis)

    def qparams_of(
        self,
        name: str,
        scale: Array,
        zero_point: Array | None,
        qdtype: QDType,
        axis: int | None = None,
    ) -> QParams:
        """QParams as `qparams`, where scale and zero point do not follow one another.

        Raises:
            ShapeError: as `qparams`.
        """
        if scale.dtype != np.float32:
            raise self.shape_error(f"{name}_scale has dtype {scale.dtype}; wanted float32.")
        zeros = self.zero_integers(name, scale, zero_point, qdtype)
        per_tensor = scale.size == 1 and scale.ndim <= 1 and zeros.size == 1
        if not per_tensor and (
            axis is None or scale.ndim != 1 or zeros.size not in (1, scale.size)
        ):
            wanted = "one number" if axis is None else "one number, or one per channel"
            raise self.shape_error(
                f"{name}_scale has shape {scale.shape}, {name}_zero_point "
                f"{zeros.shape}; wanted {wanted}."
            )
        scales = scale.reshape(()).astype(np.float32) if per_tensor else scale.astype(np.float32)
        points = np.broadcast_to(zeros.reshape(-1), scales.shape or 1).reshape(scales.shape)
        granularity = PerTensor() if per_tensor else PerChannel(axis or 0)
        try:
            return QParams(scales, points.astype(qdtype.storage), qdtype, granularity)
        except ShapeError as error:
            raise self.shape_error(f"{name}: {error}") from error

    def zero_integers(
        self, name: str, scale: Array, zero_point: Array | None, qdtype: QDType
    ) -> IntArray:
        """The zero point in the type's storage; 0 in the scale's shape where it is absent.

        Raises:
            ShapeError: it is not of the operand's type.
        """
        if zero_point is None:
            return np.zeros(scale.shape, qdtype.storage)
        if QDTYPES.get(zero_point.dtype) != qdtype:
            raise self.shape_error(
                f"{name}_zero_point has dtype {zero_point.dtype}, but {name} is {qdtype}."
            )
        return stored(zero_point)

    def output_qparams(self, name: str, slot: int) -> QParams:
        """Per-tensor QParams of a result, whose zero point says its type; absent: uint8.

        Raises:
            ShapeError: as `qparams`.
        """
        zero_point = self.optional(slot + 1)
        zeros = np.zeros((), np.uint8) if zero_point is None else zero_point
        return self.qparams(name, slot, self.qdtype(zeros, f"{name}_zero_point"))

    def planned(self, inputs: Sequence[Array | None], plan: NodePlan) -> Call:
        """The call of a float operator's kernel for the same arithmetic, under the same name."""
        return Call(self.op_type, inputs, plan, attributes=self.attributes)

    def bias_qparams(self, bias: Array, x: QParams, w: QParams) -> QParams:
        """int32 at x_scale * w_scale, zero point 0.

        Raises:
            ShapeError: the bias is not int32.
        """
        if bias.dtype != np.int32:
            raise self.shape_error(f"the bias has dtype {bias.dtype}; wanted int32.")
        scale = sum_scale(x, w)
        axis = PerChannel(bias.ndim - 1) if scale.ndim else PerTensor()
        return QParams(scale, np.zeros(scale.shape, np.int32), INT32, axis)
