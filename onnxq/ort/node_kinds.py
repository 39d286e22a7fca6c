"""Says which nodes of an optimized graph compute in integers, in float, or only convert."""

import enum
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.ort import facts
from onnxq.ort.facts import Conversion, Rounding

# ONNX Runtime renames "conv1" to "conv1_token_12" (layouts), "mm" to "mm/MatMulAddFusion"
_RENAMED = re.compile(r"(/\w+Fusion)?(_token_\d+)?$")


def original_name(name: str) -> str:
    """The name that a node of the optimized graph had in the file."""
    return _RENAMED.sub("", name, count=1)


class NodeKind(enum.Enum):
    """Kind of values that a node of an optimized graph works on."""

    INTEGER = "integer"
    """Computes on, or moves, integers of a quantized tensor."""
    FLOAT = "float"
    """Computes on, or moves, floating-point numbers."""
    CONVERSION = "conversion"
    """Goes from one data type to another: QuantizeLinear, DequantizeLinear, Cast."""
    OTHER = "other"
    """Shapes, indices, conditions, control flow: no matter of quantization."""


@dataclass(frozen=True, slots=True)
class NodeUse:
    """One node of an optimized graph.

    Attributes:
        name: the runtime's; fused nodes often keep the name of one of their parts.
        op_type: of the fused node ("QLinearConv").
        domain: "" for ai.onnx.
    """

    name: str
    op_type: str
    domain: str
    kind: NodeKind

    @property
    def rounds(self) -> bool:
        """Whether it computes floats whose last bits may be the machine's own."""
        fact = facts.named(self.op_type)
        computes = self.kind is NodeKind.FLOAT or fact.on_integers
        return computes and fact.rounding is not Rounding.NONE

    @property
    def has_integers(self) -> bool:
        """Whether it computes or moves integers, or makes them."""
        makes = facts.named(self.op_type).converts is Conversion.TO_INTEGERS
        return makes or self.kind is NodeKind.INTEGER


INTEGER_TYPES = {
    ir.DataType.UINT8,
    ir.DataType.INT8,
    ir.DataType.UINT16,
    ir.DataType.INT16,
    ir.DataType.UINT4,
    ir.DataType.INT4,
    ir.DataType.UINT2,
    ir.DataType.INT2,
}
MATMUL_NBITS = "MatMulNBits"
GATHER_BLOCK_QUANTIZED = "GatherBlockQuantized"
INT8_ACTIVATIONS = 4  # MatMulNBits' accuracy_level that multiplies int8 by int8


def integer_nodes(optimized: ir.Model) -> list[NodeUse]:
    """Every node that ONNX Runtime runs, with what it works on, in graph order.

    Bodies of If, Loop and Scan are listed too, after the node that owns them.

    Args:
        optimized: what `onnxq.ort.runtime.optimized_graph` returned; a file's own graph says little
            about what will run.
    """
    types = value_types(optimized)
    uses = []
    for node in optimized.graph.all_nodes():
        inputs = {_dtype(value, types) for value in node.inputs if value is not None}
        kind = _kind(node, inputs | {types[value] for value in node.outputs})
        uses.append(NodeUse(node.name or "", node.op_type, node.domain, kind))
    return uses


def rounding(floats: Mapping[str, int], integers: Mapping[str, int]) -> dict[str, int]:
    """Op type -> nodes whose floats may have other last bits on another machine."""
    counts = {op: n for op, n in floats.items() if _rounds(op)}
    for op, n in integers.items():
        if facts.named(op).on_integers and _rounds(op):
            counts[op] = counts.get(op, 0) + n
    return counts


def _rounds(op_type: str) -> bool:
    return facts.named(op_type).rounding is not Rounding.NONE


def value_types(optimized: ir.Model) -> dict[ir.Value, ir.DataType]:
    """Type of every node output; where the graph does not say it, as the operator gives it."""
    types: dict[ir.Value, ir.DataType] = {}
    for node in optimized.graph.all_nodes():
        inputs = [_dtype(value, types) for value in node.inputs if value is not None]
        for value in node.outputs:
            types[value] = value.dtype or _output_type(node, inputs)
    return types


def count(uses: Sequence[NodeUse], kind: NodeKind) -> Counter[str]:
    """How many nodes of each op_type are of that kind."""
    return Counter(use.op_type for use in uses if use.kind is kind)


def _dtype(value: ir.Value, types: Mapping[ir.Value, ir.DataType]) -> ir.DataType:
    known = value.dtype or types.get(value)
    if known is not None:
        return known
    return value.const_value.dtype if value.const_value is not None else ir.DataType.FLOAT


def _output_type(node: ir.Node, inputs: Sequence[ir.DataType]) -> ir.DataType:
    """Type of the results; ONNX Runtime writes no types of inner values into an optimized model."""
    fixed = facts.named(node.op_type).results
    if fixed is not None:
        return fixed
    if node.op_type == "Cast":
        return ir.DataType(node.attributes.get_int("to", ir.DataType.FLOAT))
    if node.op_type == "QuantizeLinear":
        return inputs[2] if len(inputs) > 2 else ir.DataType.UINT8
    if node.op_type == "DequantizeLinear":
        return inputs[1]
    if node.op_type == "QGemm":  # without an output zero point (input 8) the result is float
        has_zero_point = len(node.inputs) > 8 and node.inputs[8] is not None
        return inputs[0] if has_zero_point else ir.DataType.FLOAT
    if node.op_type == "QLinearConcat":  # y_scale, y_zero_point, then the inputs
        return inputs[1]
    if node.op_type == "Where":
        return inputs[1]
    return inputs[0] if inputs else ir.DataType.FLOAT


def _kind(node: ir.Node, types: set[ir.DataType]) -> NodeKind:
    fact = facts.named(node.op_type)
    if fact.converts is not None:
        return NodeKind.CONVERSION
    if node.op_type == MATMUL_NBITS:
        level = node.attributes.get_int("accuracy_level", 0)
        return NodeKind.INTEGER if level == INT8_ACTIVATIONS else NodeKind.FLOAT
    if fact.on_integers:
        return NodeKind.INTEGER
    if not fact.on_data:  # bodies are listed by themselves
        return NodeKind.OTHER
    if any(dtype.is_floating_point() for dtype in types):
        return NodeKind.FLOAT
    return NodeKind.INTEGER if types & INTEGER_TYPES else NodeKind.OTHER
