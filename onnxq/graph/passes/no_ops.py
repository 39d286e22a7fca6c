"""Nodes that return their input are taken out: Identity, Dropout at inference, x + 0, x / 1.

ONNX Runtime takes most of them out when it loads a model, and then the DQ and Q that met: which of
a quantized model's nodes it fuses is foreseen without such nodes. A Softmax over one element, say,
behind a division by 1: on integers it overflows, and no copy in front would keep it from there.
"""

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import all_nodes, bypass
from onnxq.graph.walk import is_read
from onnxq.graph.weights import constant

NEUTRAL = {
    "Add": (0, (0, 1)),
    "Sub": (0, (1,)),
    "Mul": (1, (0, 1)),
    "Div": (1, (1,)),
    "Pow": (1, (1,)),
}
"""Operator of two operands -> (the constant that changes nothing, the slots where it may stand)."""
TO_THE_END = np.iinfo(np.int64).max
SLICE_STEPS = 4


class RemoveNoOps(ir.passes.InPlacePass):
    """y := x, for y = Identity(x), Dropout(x), Cast(x, its type), x + 0, x - 0, x * 1, x / 1, x^1.

    And for what moves nothing: CastLike(x, z) of one type, a Transpose that keeps the order, an
    Expand or Reshape that keeps the sizes, a Slice of everything. In bodies too.

    The name of a graph output survives. A Dropout in training mode, or whose mask is read, stays;
    a constant of several numbers is not looked at, as by ONNX Runtime.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Takes out all of them, but those that hold up a graph output (see `bypass`)."""
        modified = False
        for node in all_nodes(model):
            slot = _returned(node)
            modified |= slot is not None and bypass(node, slot)
        return ir.passes.PassResult(model, modified)


def _returned(node: ir.Node) -> int | None:
    """Slot of the input that the node returns as it is; None: it does not."""
    if node.domain or not node.inputs or node.inputs[0] is None:
        return None
    if node.op_type in NEUTRAL:
        return _operand(node)
    return 0 if _is_no_op(node, node.inputs[0]) else None


def _operand(node: ir.Node) -> int | None:
    """Slot of the operand beside the one number that changes nothing."""
    neutral, slots = NEUTRAL[node.op_type]
    for slot in slots:
        number, x = node.inputs[slot], node.inputs[1 - slot]
        tensor = constant(number)
        if tensor is None or x is None or tensor.size != 1:
            continue
        fits = len(tensor.shape) == 0 or (x.shape is not None and len(tensor.shape) <= len(x.shape))
        if fits and tensor.numpy().item() == neutral:
            return 1 - slot
    return None


def _is_no_op(node: ir.Node, x: ir.Value) -> bool:
    match node.op_type:
        case "Identity":
            return True
        case "Transpose":
            order = list(node.attributes.get_ints("perm", []))
            return bool(order) and order == list(range(len(order)))
        case "Dropout":
            return not _trains(node) and not any(is_read(y) for y in node.outputs[1:])
        case "Cast":
            return x.dtype is not None and node.attributes.get_int("to") == x.dtype.value
        case "CastLike":
            like = node.inputs[1]
            return x.dtype is not None and like is not None and like.dtype == x.dtype
        case "Expand":
            return _keeps_sizes(x, constant(node.inputs[1]))
        case "Reshape":
            return x.shape is not None and _gives_shape_of(node, x, x.shape)
        case "Slice":
            return _takes_all(node)
    return False


def _gives_shape_of(reshape: ir.Node, x: ir.Value, sizes: ir.Shape) -> bool:
    """Whether a Reshape asks for the sizes that x has, at most one of which it leaves open."""
    wanted = constant(reshape.inputs[1])
    if wanted is None:
        shape = reshape.inputs[1].producer() if reshape.inputs[1] is not None else None
        whole = shape is not None and shape.op_type == "Shape" and not shape.attributes
        return whole and shape is not None and shape.inputs[0] is x
    asked = wanted.numpy().ravel().tolist()
    zero_copies = not reshape.attributes.get_int("allowzero", 0)
    if len(asked) != len(sizes):
        return False
    pairs = zip(asked, sizes, strict=True)
    open_sizes = [one for one, size in pairs if one != size and not (one == 0 and zero_copies)]
    return open_sizes in ([], [-1])


def _keeps_sizes(x: ir.Value, wanted: ir.TensorProtocol | None) -> bool:
    """Whether every size that Expand asks for is 1, or the one that x has."""
    if x.shape is None or wanted is None:
        return False
    asked = wanted.numpy().ravel().tolist()
    if len(asked) > len(x.shape):
        return False
    sizes = x.shape.dims[len(x.shape) - len(asked) :]
    return all(one in (1, size) for one, size in zip(asked, sizes, strict=True))


def _takes_all(node: ir.Node) -> bool:
    """Whether a Slice-10 and later runs from 0 to the end of all integers, in steps of 1."""
    bounds = [constant(value) for value in node.inputs[1:3]]
    if len(bounds) < 2 or any(tensor is None for tensor in bounds):
        return False
    starts, ends = (tensor.numpy() for tensor in bounds if tensor is not None)
    steps = node.inputs[SLICE_STEPS] if len(node.inputs) > SLICE_STEPS else None
    each = constant(steps)
    if steps is not None and (each is None or not (each.numpy() == 1).all()):
        return False
    return not starts.any() and bool((ends == TO_THE_END).all())


def _trains(dropout: ir.Node) -> bool:
    """Whether training_mode (input 2, since opset 12) is on, or may be."""
    if len(dropout.inputs) < 3 or dropout.inputs[2] is None:
        return False
    mode = constant(dropout.inputs[2])
    return mode is None or bool(mode.numpy().any())


def casts(model: ir.Model) -> list[ir.Node]:
    """The nodes of the main graph that change a type, or keep it, in order."""
    return [node for node in model.graph if node.op_type in ("Cast", "CastLike")]
