"""Ranks and sizes of constants and inputs, beside what their operator takes.

Rules and passes take ranks and channels apart without asking. onnx says ranks in the shape
inference of operators only where the ranks of all inputs are known, ONNX Runtime when it loads.
"""

from collections.abc import Container, Iterator, Mapping

import onnx_ir as ir

from onnxq.graph.untrusted.problem import DAMAGED, Problem, label
from onnxq.graph.untrusted.scopes import scoped_nodes
from onnxq.operator.nodes import ONNX_DOMAINS

_ANY = 99  # ranks that no model has
_CELL = {1: (3, 3), 2: (3, 3), 3: (2, 2), 5: (3, 3), 6: (3, 3), 7: (2, 2)}
_CONV = {0: (2, _ANY), 1: (2, _ANY), 2: (1, 1)}
_VECTORS = dict.fromkeys((1, 2, 3, 4), (1, 1))
_RANKS: Mapping[str, Mapping[int, tuple[int, int]]] = {
    "BatchNormalization": _VECTORS,
    "Conv": _CONV,
    "ConvInteger": {slot: _CONV[slot] for slot in (0, 1)},
    "ConvTranspose": _CONV,
    "GRU": _CELL,
    "Gather": {0: (1, _ANY)},
    "Gemm": {0: (2, 2), 1: (2, 2), 2: (0, 2)},
    "InstanceNormalization": {slot: _VECTORS[slot] for slot in (1, 2)},
    "LSTM": _CELL,
    "MatMul": {0: (1, _ANY), 1: (1, _ANY)},
    "MatMulInteger": {0: (1, _ANY), 1: (1, _ANY)},
    "RNN": _CELL,
}
"""Operator -> input slot -> its lowest and highest rank."""
_OF_CHANNELS = ("BatchNormalization", "InstanceNormalization")


def check_ranks(model: ir.Model) -> Iterator[Problem]:
    """Finds a constant, or an input of the model, of a rank that a node cannot read.

    Also vectors of a normalization that differ in length.
    """
    declared = set(model.graph.inputs)  # of bodies, ONNX Runtime takes what it infers
    for node, _ in scoped_nodes(model):
        ranks = _RANKS.get(node.op_type) if node.domain in ONNX_DOMAINS else None
        for slot, (low, high) in (ranks or {}).items():
            shape = _shape(node, slot, declared)
            if shape is not None and not low <= len(shape) <= high:
                more = "" if low == high else " or more" if high == _ANY else f" to {high}"
                yield Problem(
                    f"node {label(node)} reads '{_name(node, slot)}' of rank {len(shape)} as input "
                    f"{slot}; it takes rank {low}{more}",
                    DAMAGED,
                )
        if ranks is not None and node.op_type in _OF_CHANNELS:
            shapes = {_name(node, slot): _shape(node, slot, declared) for slot in ranks}
            sizes = {name: shape[0] for name, shape in shapes.items() if shape is not None}
            if len({*sizes.values()}) > 1:
                has = ", ".join(f"'{name}' has {size}" for name, size in sizes.items())
                yield Problem(f"node {label(node)} reads vectors of unlike lengths: {has}", DAMAGED)


def _name(node: ir.Node, slot: int) -> str:
    value = node.inputs[slot] if slot < len(node.inputs) else None
    return (value.name or "") if value is not None else ""


def _shape(
    node: ir.Node, slot: int, declared: Container[ir.Value]
) -> tuple[int | ir.SymbolicDim, ...] | None:
    """Sizes of a constant, or of an input of the model; None: not known."""
    value = node.inputs[slot] if slot < len(node.inputs) else None
    maker = None if value is None else value.producer()
    if value is None or (maker is not None and len(maker.attributes) != 1):
        return None  # a Constant without a value, which ONNX Runtime refuses
    if (constant := ir.convenience.get_const_tensor(value)) is not None:
        return tuple(constant.shape.numpy())
    return tuple(value.shape) if value in declared and value.shape is not None else None
