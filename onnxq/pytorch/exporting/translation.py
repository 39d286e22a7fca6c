"""ONNX nodes of the operators in onnxq.pytorch.numerics: a table for torch.onnx.export."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import onnxscript
import torch

from onnxq import dtypes
from onnxq.operator.site import MICROSOFT
from onnxq.ort.node_kinds import MATMUL_NBITS
from onnxq.pytorch.numerics import dynamic_ops, rounding_ops  # noqa: F401  # registers the operators

# --- Which ONNX nodes the operators of numerics.dynamic_ops become.


def _microsoft(
    name: str,
    inputs: Mapping[str, str],
    optional: Collection[str],
    outputs: Sequence[str],
    types: Mapping[str, list[str]],
    attributes: Mapping[str, Any],
) -> onnxscript.values.Op:
    """An operator of com.microsoft, whose schema onnx lacks; inputs name keys of `types`."""
    schema = onnx.defs.OpSchema
    option = schema.FormalParameterOption
    known = schema(
        name,
        MICROSOFT,
        1,
        inputs=[
            schema.FormalParameter(
                one, kind, param_option=option.Optional if one in optional else option.Single
            )
            for one, kind in inputs.items()
        ],
        outputs=[schema.FormalParameter(one, "R") for one in outputs],
        type_constraints=[(kind, names, "") for kind, names in types.items()],
        attributes=[schema.Attribute(one, kind, required=True) for one, kind in attributes.items()],
    )
    return onnxscript.values.Op(onnxscript.values.Opset(MICROSOFT, 1), name, known)


_ATTRIBUTE = onnx.defs.OpSchema.AttrType
_LSTM = _microsoft(
    "DynamicQuantizeLSTM",
    {
        "X": "R",
        "W": "Q",
        "R": "Q",
        "B": "R",
        "sequence_lens": "I",
        "initial_h": "R",
        "initial_c": "R",
        "P": "R",
        "W_scale": "R",
        "W_zero_point": "Q",
        "R_scale": "R",
        "R_zero_point": "Q",
    },
    ["B", "sequence_lens", "initial_h", "initial_c", "P"],
    ["Y", "Y_h", "Y_c"],
    {"R": ["tensor(float)"], "I": ["tensor(int32)"], "Q": ["tensor(int8)"]},
    {"direction": _ATTRIBUTE.STRING, "hidden_size": _ATTRIBUTE.INT},
)
_MATMUL = _microsoft(
    MATMUL_NBITS,
    {"A": "R", "B": "Q", "scales": "R", "zero_points": "Z", "g_idx": "I", "bias": "R"},
    ["zero_points", "g_idx", "bias"],
    ["Y"],
    {
        "R": ["tensor(float)"],
        "Q": ["tensor(uint8)"],
        "I": ["tensor(int32)"],
        "Z": ["tensor(uint8)", "tensor(float)"],
    },
    dict.fromkeys(["K", "N", "bits", "block_size"], _ATTRIBUTE.INT),
)


def dynamic_table(op: Any) -> dict[Callable[..., object], Callable[..., object]]:
    """Functions that emit the ONNX nodes of torch operators, by operator.

    (Over 40 lines: onnxscript wants the functions to close over the opset.)
    """

    def joined(y: Any) -> Any:  # (T, D, N, H) -> (T, N, D H)
        return op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), op.Constant(value_ints=[0, 0, -1]))

    def dynamic_quantize_linear(x):  # type: ignore[no-untyped-def]  # onnxscript reads it
        return op.DynamicQuantizeLinear(x)

    def matmul_integer(a, b, a_zero_point, b_zero_point=None):  # type: ignore[no-untyped-def]  # onnxscript reads it
        return op.MatMulInteger(a, b, a_zero_point, b_zero_point)

    def dynamic_quantize_lstm(  # type: ignore[no-untyped-def]  # onnxscript reads it
        x,
        w,
        r,
        b,
        initial_h,
        initial_c,
        w_scale,
        w_zero_point,
        r_scale,
        r_zero_point,
        direction: str,
    ):
        y, *states = _LSTM(
            x,
            w,
            r,
            b,
            None,
            initial_h,
            initial_c,
            None,
            w_scale,
            w_zero_point,
            r_scale,
            r_zero_point,
            direction=direction,
            hidden_size=int(r.shape[1]),
        )
        return joined(y), *states

    def stored_recurrence(  # type: ignore[no-untyped-def]  # onnxscript reads it
        x, w, r, b, initial_h, w_scale, r_scale, kind: str, direction: str
    ):
        reals = [
            op.Mul(op.Cast(integers, to=onnx.TensorProto.FLOAT), scale)
            for integers, scale in ((w, w_scale), (r, r_scale))
        ]
        slots = (x, *reals, b, None, initial_h)
        options = {"direction": direction, "hidden_size": int(r.shape[2])}
        if kind == "GRU":
            y, h = op.GRU(*slots, **options, linear_before_reset=1)
            return joined(y), h
        name = "Tanh" if kind == "RNN_TANH" else "Relu"
        names = [name] * (2 if direction == "bidirectional" else 1)
        y, h = op.RNN(*slots, **options, activations=names)
        return joined(y), h

    def matmul_n_bits(  # type: ignore[no-untyped-def]  # onnxscript reads it
        x, integers, scales, zero_points, bias, inputs: int, bits: int, block: int
    ):
        sizes = {"K": inputs, "N": int(integers.shape[0]), "bits": bits, "block_size": block}
        return _MATMUL(x, integers, scales, zero_points, None, bias, **sizes)

    own = torch.ops.onnxq
    return {
        own.dynamic_quantize_linear.default: dynamic_quantize_linear,
        own.matmul_integer.default: matmul_integer,
        own.dynamic_quantize_lstm.default: dynamic_quantize_lstm,
        own.stored_recurrence.default: stored_recurrence,
        own.matmul_n_bits.default: matmul_n_bits,
    }


def translation_table(opset: int) -> dict[Callable[..., object], Callable[..., object]]:
    """A torch operator -> function that emits its ONNX nodes, for that opset.

    Args:
        opset: one that the exporter writes; the nodes are those of this very opset, because the
            exporter cannot convert QuantizeLinear downwards.
    """
    op = getattr(onnxscript, f"opset{opset}")

    def quantize_linear(x, scale, zero_point, axis: int):  # type: ignore[no-untyped-def]  # onnxscript reads it
        return op.QuantizeLinear(x, scale, zero_point, axis=axis)

    def dequantize_linear(integers, scale, zero_point, axis: int):  # type: ignore[no-untyped-def]  # onnxscript reads it
        return op.DequantizeLinear(integers, scale, zero_point, axis=axis)

    def dequantize_4bits(integers, scale, zero_point, axis: int):  # type: ignore[no-untyped-def]  # onnxscript reads it
        if opset < dtypes.INT4.min_opset:  # the same numbers in twice the bytes
            return op.DequantizeLinear(integers, scale, zero_point, axis=axis)
        stored = dtypes.INT4 if integers.dtype == ir.DataType.INT8 else dtypes.UINT4
        dtype = onnx.TensorProto.DataType.Value(stored.onnx)
        narrow = [op.Cast(part, to=dtype) for part in (integers, zero_point)]
        return op.DequantizeLinear(narrow[0], scale, narrow[1], axis=axis)

    def fake_quantize(x, scale, zero_point, qmin: int, qmax: int, axis: int):  # type: ignore[no-untyped-def]  # onnxscript reads it
        stored = next(t for t in _STORED if t.qmin <= qmin and qmax <= t.qmax)  # the smallest
        dtype = onnx.TensorProto.DataType.Value(stored.onnx)
        zero_point = op.Cast(zero_point, to=dtype)
        integers = op.QuantizeLinear(x, scale, zero_point, axis=axis)
        if (stored.qmin, stored.qmax) != (qmin, qmax):
            limits = [op.Cast(op.Constant(value_int=limit), to=dtype) for limit in (qmin, qmax)]
            integers = op.Clip(integers, *limits)
        return op.DequantizeLinear(integers, scale, zero_point, axis=axis)

    def leave_integers(x):  # type: ignore[no-untyped-def]  # onnxscript reads it
        return op.Max(x)  # a MARK, which onnxq.qdq.tidy takes out again

    return dynamic_table(op) | {
        torch.ops.onnxq.leave_integers.default: leave_integers,
        torch.ops.onnxq.quantize_linear.default: quantize_linear,
        torch.ops.onnxq.dequantize_linear.default: dequantize_linear,
        torch.ops.onnxq.dequantize_4bits.default: dequantize_4bits,
        torch.ops.onnxq.fake_quantize.default: fake_quantize,
    }


_STORED = (dtypes.UINT8, dtypes.INT8, dtypes.UINT16, dtypes.INT16)
