"""Gelu that an exporter wrote out, by the error function or by a tangent, becomes the operator."""

from __future__ import annotations

import math

import onnx_ir as ir

from onnxq.graph.passes.formulas import Gate, Polynomial, gates, is_close
from onnxq.graph.passes.fused_node import FusedNode, fuse_all, inner_nodes

OPSET = 20  # Gelu's first
HALF = 1 / 2
_ERROR_FUNCTION = (0.0, 1 / math.sqrt(2))
_SLOPE, _CUBIC = math.sqrt(2 / math.pi), 0.044715  # Hendrycks and Gimpel, 2016
_TANGENT = (0.0, _SLOPE, 0.0, _SLOPE * _CUBIC)
_TWICE = tuple(2 * c for c in _TANGENT)


class FuseGelu(ir.passes.InPlacePass):
    """x (1 + erf(x / sqrt(2))) / 2 = Gelu(x), with the halving and the root written anywhere.

    And x (1 + tanh(p)) / 2 = Gelu<approximate="tanh">(x) for p = sqrt(2 / pi) (x + 0.044715 x^3),
    or x sigmoid(2 p), for 1 + tanh(p) = 2 sigmoid(2 p).

    All graphs, float32 only, and only where nothing else reads a value in between. The opset is
    raised to 20 where it is lower. ONNX Runtime runs the operator at the speed of what it fuses of
    the nodes itself; with QuantizeLinear between them it would fuse nothing.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fuses all that match."""
        return ir.passes.PassResult(model, fuse_all(model, _match, OPSET))


def _match(node: ir.Node) -> FusedNode | None:
    if node.domain or node.op_type not in ("Erf", "Tanh", "Sigmoid"):
        return None
    argument = node.inputs[0]
    if argument is None or argument.dtype != ir.DataType.FLOAT:
        return None
    for gate in gates(argument, node.outputs[0]):
        attributes = _approximation(node.op_type, gate)
        if attributes is not None:
            nodes = inner_nodes(gate.node, {gate.x})
            return None if nodes is None else FusedNode(nodes, "Gelu", [gate.x], attributes)
    return None


def _approximation(function: str, gate: Gate) -> dict[str, str] | None:
    """Attributes of the Gelu that the gate of this function is; None: it is none."""
    if function == "Sigmoid":
        is_one = is_close(gate.factor, 1.0) and not gate.offset
        return {"approximate": "tanh"} if is_one and _agree(gate.argument, _TWICE) else None
    if not (is_close(gate.factor, HALF) and is_close(gate.offset, HALF)):
        return None
    if function == "Erf":
        return {} if _agree(gate.argument, _ERROR_FUNCTION) else None
    return {"approximate": "tanh"} if _agree(gate.argument, _TANGENT) else None


def _agree(got: Polynomial, wanted: Polynomial) -> bool:
    return len(got) == len(wanted) and all(map(is_close, got, wanted))
