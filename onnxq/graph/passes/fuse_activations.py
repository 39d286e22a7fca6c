"""Activation functions that an exporter wrote out become the operators of these names."""

import math
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.graph.passes import formulas
from onnxq.graph.passes.fused_node import FusedNode, fuse_all, inner_nodes
from onnxq.operator.nodes import find_input

HARD_SWISH_OPSET = 14  # HardSwish's first
SLOPE, MIDDLE = 1 / 6, 1 / 2  # of HardSwish's gate
_ALPHA, _BETA = 0.2, 0.5  # HardSigmoid's defaults
_LOW, _HIGH = 1, 2  # slots of Clip


class FuseHardSwish(ir.passes.InPlacePass):
    """c x clip(a x + b, 0, h) = HardSwish(x) where c h = 1, a / h = 1 / 6 and b / h = 1 / 2.

    For clip(a x + b, 0, h) = h clip(a x / h + b / h, 0, 1), and HardSwish(x) =
    x clip(x / 6 + 1 / 2, 0, 1). By the same equation c clip(a x + b, 0, h) =
    HardSigmoid<alpha=a / h, beta=b / h>(x) where c h = 1, a > 0 and b > 0: the gate of a squeeze
    and excitation, which multiplies another tensor.

    The bounds are those of a Clip, of Min and Max, of Relu and Min, or a HardSigmoid's. All graphs,
    float32 only, and only where nothing else reads a value in between. The opset is raised to 14
    where it is lower.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        return ir.passes.PassResult(model, fuse_all(model, _match, HARD_SWISH_OPSET))


@dataclass(frozen=True, slots=True)
class _Bounded:
    """result = high * clip(slope * x + offset, 0, 1)."""

    result: ir.Value
    x: ir.Value
    slope: float
    offset: float
    high: float


def _match(node: ir.Node) -> FusedNode | None:
    bounded = _bounded(node)
    if bounded is None or bounded.x.dtype != ir.DataType.FLOAT:
        return None
    return _swish(bounded) or _sigmoid(bounded)


def _bounded(node: ir.Node) -> _Bounded | None:
    """The node as something between 0 and a positive bound."""
    if node.domain or not node.inputs or node.inputs[0] is None:
        return None
    if node.op_type == "HardSigmoid":
        alpha = node.attributes.get_float("alpha", _ALPHA)
        beta = node.attributes.get_float("beta", _BETA)
        return _Bounded(node.outputs[0], node.inputs[0], alpha, beta, 1.0)
    x, low, high = _bounds(node)
    if x is None or low != 0 or not 0 < high < math.inf:
        return None
    return _Bounded(node.outputs[0], x, 1 / high, 0.0, high)


def _bounds(node: ir.Node) -> tuple[ir.Value | None, float, float]:
    """(x, low, high) of a node that clips, with the one ahead of it where it takes two."""
    x, low, high = _one_bound(node)
    ahead = formulas.producer_of(x)
    if x is None or ahead is None or formulas.only_reader(x) is not node or node.op_type == "Clip":
        return x, low, high
    first, lower, upper = _one_bound(ahead)
    return (first, max(low, lower), min(high, upper)) if first is not None else (x, low, high)


def _one_bound(node: ir.Node) -> tuple[ir.Value | None, float, float]:
    match node.op_type:
        case "Relu":
            return node.inputs[0], 0.0, math.inf
        case "Clip":
            low, high = (formulas.number(find_input(node, slot)) for slot in (_LOW, _HIGH))
            if low is not None and high is not None:
                return node.inputs[0], low, high
        case "Min" | "Max" if len(node.inputs) == 2:
            first, second = node.inputs
            bound, x = formulas.number(second, first), first
            if bound is None:
                bound, x = formulas.number(first, second), second
            if bound is not None:
                is_min = node.op_type == "Min"
                return x, *((-math.inf, bound) if is_min else (bound, math.inf))
    return None, 0.0, 0.0


def _swish(bounded: _Bounded) -> FusedNode | None:
    for gate in formulas.gates(bounded.x, bounded.result):
        if len(gate.argument) != 2 or gate.offset:
            continue
        middle, slope = (c * bounded.slope for c in gate.argument)
        middle += bounded.offset
        is_gate = formulas.is_close(middle, MIDDLE) and formulas.is_close(slope, SLOPE)
        if is_gate and formulas.is_close(gate.factor * bounded.high, 1.0):
            nodes = inner_nodes(gate.node, {gate.x})
            return None if nodes is None else FusedNode(nodes, "HardSwish", [gate.x], {})
    return None


def _sigmoid(bounded: _Bounded) -> FusedNode | None:
    last = bounded.result.producer()
    assert last is not None
    factor = bounded.high
    while not formulas.is_close(factor, 1.0):
        reader = formulas.only_reader(last.outputs[0])
        line = formulas.line_of(reader)
        if reader is None or line is None or line.offset:
            return None
        factor, last = factor * line.factor, reader
    fusion = None
    for line in formulas.lines(bounded.x):  # the longest one whose nodes nobody else reads
        alpha = line.factor * bounded.slope
        beta = line.offset * bounded.slope + bounded.offset
        nodes = inner_nodes(last, {line.x})
        if nodes is None:
            break
        if alpha > 0 and beta > 0 and len(nodes) > 1:
            fusion = FusedNode(nodes, "HardSigmoid", [line.x], {"alpha": alpha, "beta": beta})
    return fusion


# --- Gelu that an exporter wrote out, by the error function or by a tangent, becomes the
#     operator


GELU_OPSET = 20  # Gelu's first
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
        return ir.passes.PassResult(model, fuse_all(model, _match_gelu, GELU_OPSET))


def _match_gelu(node: ir.Node) -> FusedNode | None:
    if node.domain or node.op_type not in ("Erf", "Tanh", "Sigmoid"):
        return None
    argument = node.inputs[0]
    if argument is None or argument.dtype != ir.DataType.FLOAT:
        return None
    for gate in formulas.gates(argument, node.outputs[0]):
        attributes = _approximation(node.op_type, gate)
        if attributes is not None:
            nodes = inner_nodes(gate.node, {gate.x})
            return None if nodes is None else FusedNode(nodes, "Gelu", [gate.x], attributes)
    return None


def _approximation(function: str, gate: formulas.Gate) -> dict[str, str] | None:
    """Attributes of the Gelu that the gate of this function is; None: it is none."""
    if function == "Sigmoid":
        is_one = formulas.is_close(gate.factor, 1.0) and not gate.offset
        return {"approximate": "tanh"} if is_one and _agree(gate.argument, _TWICE) else None
    if not (formulas.is_close(gate.factor, HALF) and formulas.is_close(gate.offset, HALF)):
        return None
    if function == "Erf":
        return {} if _agree(gate.argument, _ERROR_FUNCTION) else None
    return {"approximate": "tanh"} if _agree(gate.argument, _TANGENT) else None


def _agree(got: formulas.Polynomial, wanted: formulas.Polynomial) -> bool:
    return len(got) == len(wanted) and all(map(formulas.is_close, got, wanted))


# --- Mish that an exporter wrote out becomes the operator


MISH_OPSET = 18  # Mish's first


class FuseMish(ir.passes.InPlacePass):
    """x tanh(softplus(x)) = Mish(x).

    All graphs, float32 only, and only where nothing else reads a value in between. The opset is
    raised to 18 where it is lower. ONNX Runtime runs the operator as these three nodes; on integers
    it is one table in place of three.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        return ir.passes.PassResult(model, fuse_all(model, _match_mish, MISH_OPSET))


def _match_mish(node: ir.Node) -> FusedNode | None:
    if node.domain or node.op_type != "Tanh":
        return None
    softplus = formulas.producer_of(node.inputs[0])
    if softplus is None or softplus.op_type != "Softplus" or softplus.domain:
        return None
    x, product = softplus.inputs[0], formulas.only_reader(node.outputs[0])
    if x is None or x.dtype != ir.DataType.FLOAT or product is None or product.op_type != "Mul":
        return None
    if {*product.inputs} != {x, node.outputs[0]}:
        return None
    nodes = inner_nodes(product, {x})
    return None if nodes is None else FusedNode(nodes, "Mish", [x], {})
