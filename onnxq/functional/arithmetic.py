"""Sums, products and concatenations, whose results have qparams of their own."""

from collections.abc import Iterable, Sequence

from onnxq.affine import quantize
from onnxq.errors import ShapeError, kind_of
from onnxq.functional.calls import call, check_input, result_qparams
from onnxq.qtensor.checked import whole
from onnxq.qtensor.tensor import QTensor, output_qparams, write_out


def add(
    qa: QTensor, qb: QTensor, scale: float = 1.0, zero_point: int = 0, *, out: QTensor | None = None
) -> QTensor:
    """Y = qa + qb with broadcasting; com.microsoft QLinearAdd.

    Args:
        qa: any shape, 8 bits.
        qb: a shape that broadcasts with qa's, the same dtype.
        scale: of the result, positive.
        zero_point: of the result.
        out: takes the result, with out's own scale and zero point in place of these two. Of the
            same dtype; of the result's shape or without elements (`_empty_affine_quantized`).
    Raises:
        ShapeError: no QTensors, dtypes differ, shapes do not broadcast, or an `out` of another
            shape or dtype.
        UnsupportedError: quantized per channel, or more than 8 bits.
    """
    return _pair("add", "Add", (qa, qb), (scale, zero_point), out)


def mul(
    qa: QTensor, qb: QTensor, scale: float = 1.0, zero_point: int = 0, *, out: QTensor | None = None
) -> QTensor:
    """Y = qa * qb with broadcasting; com.microsoft QLinearMul. Arguments and errors as `add`."""
    return _pair("mul", "Mul", (qa, qb), (scale, zero_point), out)


def _pair(
    op: str,
    op_type: str,
    operands: tuple[QTensor, QTensor],
    result: tuple[float, int],
    out: QTensor | None,
) -> QTensor:
    qa = check_input(op, operands[0], "qa")
    qb = check_input(op, operands[1], "qb")
    _check_dtypes(op, [qa, qb])
    if None in result:
        raise ShapeError(f"{op}: scale and zero_point are {result}; wanted two numbers.")
    if out is None:
        return call(op_type, [qa, qb], result_qparams(qa, *result))
    return write_out(op, call(op_type, [qa, qb], output_qparams(op, qa, out)).int_repr(), out)


def cat(
    tensors: Sequence[QTensor],
    dim: int = 0,
    scale: float | None = None,
    zero_point: int | None = None,
    *,
    out: QTensor | None = None,
) -> QTensor:
    """The tensors one behind the other along dim; ONNX Concat.

    Those with other qparams than the result are quantized again first, as com.microsoft
    QLinearConcat does: quantize(dequantize(x)).

    Args:
        tensors: one or more, the same dtype and, but for dim, the same shape.
        dim: -rank to rank - 1.
        scale: of the result, positive; None: the first tensor's.
        zero_point: of the result; None: the first tensor's.
        out: as in `add`.
    Raises:
        ShapeError: none or no QTensors, dtypes or shapes differ, no such dim, or an `out` of
            another shape or dtype.
        UnsupportedError: quantized per channel.
    """
    if isinstance(tensors, QTensor) or not isinstance(tensors, Iterable):
        raise ShapeError(f"cat: tensors is {kind_of(tensors)}; wanted a list of QTensors.")
    if not tensors:
        raise ShapeError("cat: got no tensors; wanted one or more.")
    parts = [check_input("cat", x, f"tensor {i}") for i, x in enumerate(tensors)]
    _check_dtypes("cat", parts)
    first = parts[0]
    if out is None:
        output = result_qparams(first, scale, zero_point)
    else:
        output = output_qparams("cat", first, out)
    alike = [
        x if x.qparams == output else QTensor(quantize(x.dequantize(), output), output)
        for x in parts
    ]
    result = call("Concat", alike, output, {"axis": whole("cat", "dim", dim)})
    return result if out is None else write_out("cat", result.int_repr(), out)


def _check_dtypes(op: str, operands: Sequence[QTensor]) -> None:
    found = [str(x.dtype) for x in operands]
    if len(set(found)) > 1:
        raise ShapeError(f"{op}: operands are {', '.join(found)}; wanted the same dtype for all.")
