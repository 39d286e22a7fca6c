"""Writes integer nodes to a tape: scales and zero points as initializers, types on the results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.errors import UnsupportedError
from onnxq.operators._check import qparams_in, qparams_out, shared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx_ir.tape import Tape

    from onnxq.dtypes import QDType
    from onnxq.operator import Array, NodePlan
    from onnxq.qparams import QParams

MICROSOFT = "com.microsoft"


def attributes_of(node: ir.Node, *names: str) -> dict[str, ir.Attr]:
    """The node's own attributes; with names, those of them that it has."""
    return {key: value for key, value in node.attributes.items() if not names or key in names}


def initializer(tape: Tape, node: ir.Node, suffix: str, array: Array, qdtype: QDType) -> ir.Value:
    """A constant named `<node>_<suffix>`: unique as long as node names are."""
    dtype = ir.DataType[qdtype.onnx]
    return tape.initializer(ir.tensor(array, dtype=dtype), name=f"{node.name}_{suffix}")


def scale_and_zero_point(
    tape: Tape, node: ir.Node, label: str, qparams: QParams
) -> tuple[ir.Value, ir.Value]:
    """Initializers `<node>_<label>_scale` and `<node>_<label>_zero_point`."""
    scale = tape.initializer(ir.tensor(qparams.scale), name=f"{node.name}_{label}_scale")
    zero_point = initializer(tape, node, f"{label}_zero_point", qparams.zero_point, qparams.dtype)
    return scale, zero_point


def emit(
    tape: Tape,
    node: ir.Node,
    plan: NodePlan,
    inputs: Sequence[ir.Value | None],
    *,
    op_type: str | None = None,
    domain: str = "",
    attributes: Mapping[str, ir.Attr | int] | None = None,
) -> list[ir.Value]:
    """Adds one node that stands for `node` and returns its outputs, typed and shaped.

    Args:
        tape: takes the node.
        node: the float node; gives name, number and shapes of outputs, and what is not passed.
        plan: gives the types of outputs.
        inputs: of the new node.
        op_type: default: the float node's own, with its attributes.
        domain: of the new node.
        attributes: of the new node; default: the float node's.
    """
    outputs = tape.op_multi_out(
        op_type or node.op_type,
        inputs,
        attributes_of(node) if attributes is None else attributes,
        num_outputs=len(node.outputs),
        domain=domain,
        name=node.name,
    )
    for slot, (value, old) in enumerate(zip(outputs, node.outputs, strict=True)):
        qparams = plan.outputs[slot] if slot < len(plan.outputs) else None
        value.shape = old.shape
        value.type = ir.TensorType(ir.DataType[qparams.dtype.onnx]) if qparams else old.type
    return list(outputs)


def on_codes(
    tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
) -> list[ir.Value]:
    """The same operator, with the same attributes, on codes in place of reals.

    Raises:
        ShapeError: qparams differ, so that codes cannot be copied.
    """
    shared(node.op_type, plan, [i for i, qparams in enumerate(plan.inputs) if qparams is not None])
    return emit(tape, node, plan, inputs)


def qlinear(
    tape: Tape,
    node: ir.Node,
    plan: NodePlan,
    inputs: Sequence[ir.Value | None],
    op_type: str,
    attributes: Mapping[str, ir.Attr | int],
) -> list[ir.Value]:
    """A com.microsoft QLinear operator: codes, scale, zero point per operand, then the result's.

    Raises:
        UnsupportedError: operands and result are not all uint8 or all int8.
        ShapeError: an operand or the result has no per-tensor qparams.
    """
    check_same_type(node, plan)
    slots: list[ir.Value | None] = []
    for i, value in enumerate(inputs):
        parameters = scale_and_zero_point(tape, node, f"in{i}", qparams_in(op_type, plan, i))
        slots += [value, *parameters]
    slots += scale_and_zero_point(tape, node, "out0", qparams_out(op_type, plan))
    return emit(tape, node, plan, slots, op_type=op_type, domain=MICROSOFT, attributes=attributes)


def check_pair(node: ir.Node, plan: NodePlan, first: int = 0, second: int = 1) -> None:
    """Guards the types that ONNX Runtime's matrix products exist for.

    Raises:
        UnsupportedError: not uint8 with uint8 or int8, nor int8 with int8.
    """
    x, w = plan.inputs[first], plan.inputs[second]
    # a registered type of 6 bits, say, is the ONNX type that stores it
    names = (str(x.dtype) if x else "float32", w.dtype.onnx.lower() if w else "float32")
    if names not in {("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")}:
        raise UnsupportedError(
            f"{node.op_type} '{node.name}': ONNX Runtime has no kernel for {names[0]} activations "
            f"with {names[1]} weights; choose uint8 activations, or int8 for both."
        )
    y = plan.outputs[0]
    if y is not None and x is not None and y.dtype != x.dtype:
        raise UnsupportedError(
            f"{node.op_type} '{node.name}': input {x.dtype}, output {y.dtype}; "
            "ONNX Runtime's kernel wants the same type for both."
        )


def check_same_type(node: ir.Node, plan: NodePlan) -> None:
    """Guards element-wise kernels, which take uint8 or int8, the same for all operands.

    Raises:
        UnsupportedError: types differ, or are none of the two.
    """
    names = {str(p.dtype) for p in (*plan.inputs, *plan.outputs) if p is not None}
    if len(names) != 1 or not names <= {"uint8", "int8"}:
        raise UnsupportedError(
            f"{node.op_type} '{node.name}': operands and result are {', '.join(sorted(names))}; "
            "ONNX Runtime's kernel wants uint8 or int8, the same for all."
        )
