"""Work of a node: its operator and the sizes that its time follows from."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnxq.graph.sizes import Sizes
from onnxq.graph.walk import attribute_values, is_read, value_name
from onnxq.operator import Precision
from onnxq.operator.nodes import find_input, is_constant
from onnxq.ort import facts, layouts
from onnxq.targets.speedups import GATES, LINEAR_OPS

WEIGHT = 1
"""Input slot of the weight of a convolution, a MatMul, and a recurrent node (of its inputs)."""
GROUPED = "grouped"
FUSED = "fused"
"""Kind of an activation that a float convolution computes itself."""
RUN = "run"
"""Operator of what a run takes whatever its nodes are."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one node.

    Attributes:
        operator: op_type of the float node, MatMul for all linear layers, or a Change's value.
        kind: among nodes of one operator, where their kernels differ: "pointwise"; mostly empty.
        read: elements of the inputs that are no constants.
        products: multiplications and additions, or elements under the windows of a pool.
        rows: sums that are finished one by one (Softmax, norms), steps of a recurrent node, pieces
            that are copied from one place to another, for the windows of a convolution as well.
    """

    operator: str
    kind: str = ""
    read: int = 0
    written: int = 0
    constants: int = 0
    products: int = 0
    rows: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers, in a fixed order."""
        return self.read, self.written, self.constants, self.products, self.rows


def work_of(node: ir.Node, sizes: Mapping[str, Sizes]) -> Work | None:
    """Work of a node of the canonical float model; None where sizes of its tensors are not known.

    Args:
        node: reads its attributes and sizes alone.
        sizes: of the values, by name.
    """
    inputs = [value for value in node.inputs if value is not None]
    outputs = [value for value in node.outputs if is_read(value)]
    names = [value_name(value) for value in (*inputs, *outputs)]
    if not names or any(name not in sizes for name in names):
        return None
    read = sum(math.prod(sizes[value_name(value)]) for value in moving(node))
    written = sum(math.prod(sizes[value_name(value)]) for value in outputs)
    plain = Work(node.op_type, "", read, written)
    if node.op_type == layouts.CONVOLUTION and is_constant(node, WEIGHT):
        return _convolution(node, sizes, plain)
    if node.op_type in LINEAR_OPS:
        return _linear(node, sizes, plain)
    if node.op_type in GATES:
        return _recurrent(node, sizes, plain)
    if value_name(node.outputs[0]) not in sizes:  # nobody reads it
        return None
    return _other(node, sizes, plain)


def moving(node: ir.Node) -> list[ir.Value]:
    """Inputs of a node that are no constants."""
    return [v for slot, v in enumerate(node.inputs) if v and not is_constant(node, slot)]


def _sizes(node: ir.Node, slot: int, sizes: Mapping[str, Sizes]) -> Sizes:
    value = find_input(node, slot)
    return () if value is None else sizes[value_name(value)]


def _convolution(node: ir.Node, sizes: Mapping[str, Sizes], plain: Work) -> Work:
    """W (M, C / group, *kernel): every result is a sum of C / group * kernel products.

    Integer kernels copy C / group numbers for every element of a window first: in groups of 8 to 48
    channels that takes 5 to 6 ns each, which is nearly all of their time.
    """
    weight, group = _sizes(node, WEIGHT, sizes), int(node.attributes.get_int("group", 1))
    if not math.prod(weight):
        return plain
    kind = _kind_of_convolution(weight, group)
    channels, summed = weight[0], math.prod(weight[1:])
    groups = group if kind.endswith(GROUPED) else 1  # of others, channels of one are neighbours
    blocks = -(-(channels // groups) // layouts.BLOCK)  # of channels, the last one filled up
    computed = plain.written // channels * groups * blocks * layouts.BLOCK
    rows = plain.written // channels * groups * math.prod(weight[2:])
    products = computed * summed
    return Work(plain.operator, kind, plain.read, plain.written, math.prod(weight), products, rows)


def _kind_of_convolution(weight: Sizes, group: int) -> str:
    rank = "" if len(weight) == 4 else f"{len(weight) - 2}d "
    if group > 1:
        return f"{rank}depthwise" if weight[1] == 1 else f"{rank}{GROUPED}"
    if weight[1] < layouts.FEW_CHANNELS:
        return f"{rank}first"
    return f"{rank}pointwise" if math.prod(weight[2:]) == 1 else f"{rank}dense"


def _linear(node: ir.Node, sizes: Mapping[str, Sizes], plain: Work) -> Work:
    """A (..., m, k) B (..., k, n): k products for every result; Gemm runs as MatMul does."""
    matmul = LINEAR_OPS[0]
    result = sizes[value_name(node.outputs[0])]
    if is_constant(node, WEIGHT):
        weight = math.prod(_sizes(node, WEIGHT, sizes))
        # a matrix without columns has no products, and nothing to divide by
        summed = weight // (result[-1] or 1 if result else 1)
        return Work(matmul, "", plain.read, plain.written, weight, plain.written * summed)
    summed = (_sizes(node, 0, sizes) or (1,))[-1]
    return Work(plain.operator, "activations", plain.read, plain.written, 0, plain.written * summed)


def _recurrent(node: ir.Node, sizes: Mapping[str, Sizes], plain: Work) -> Work:
    """X (steps, batch, I), W (D, gates, I), R (D, gates, H): one step after the other."""
    steps, batch = (*_sizes(node, 0, sizes), 1, 1)[:2]
    w, r = _sizes(node, WEIGHT, sizes), _sizes(node, WEIGHT + 1, sizes)
    weights = math.prod(w) + math.prod(r)
    rows = steps * (w[0] if w else 1)
    return replace(plain, constants=weights, products=steps * batch * weights, rows=rows)


def _other(node: ir.Node, sizes: Mapping[str, Sizes], plain: Work) -> Work:
    attributes = attribute_values(node)
    # a Loop may have a result that nobody reads
    result = next((sizes[value_name(v)] for v in node.outputs if is_read(v)), ())
    if node.op_type.startswith(("Gather", "Slice")):
        return _taken(node, sizes, plain)
    if node.op_type.endswith(("Softmax", "Normalization")):
        rows = plain.written // max(result[-1], 1) if result else 1
        return replace(plain, rows=rows)
    kernel = attributes.get("kernel_shape")
    if isinstance(kernel, (list, tuple)):
        window = math.prod(int(str(size)) for size in kernel)
        return replace(plain, products=plain.written * window)
    perm = attributes.get("perm")
    if isinstance(perm, (list, tuple)) and perm:
        kind = "rows" if perm[-1] == len(perm) - 1 else ""
        return replace(plain, kind=kind)
    if node.op_type.startswith("Reduce"):
        x = _sizes(node, 0, sizes)
        kind = "rows" if x[:-1] == result[: max(len(x) - 1, 0)] else ""
        return replace(plain, kind=kind)
    if node.op_type in layouts.VIEWS:
        return replace(plain, operator=layouts.VIEW)
    mode = attributes.get("mode")
    kind = mode if isinstance(mode, str) else _kind_of_operands(node, result, sizes)
    return replace(plain, kind=kind)


def _taken(node: ir.Node, sizes: Mapping[str, Sizes], plain: Work) -> Work:
    """Parts of a tensor: what is not taken takes no time; pieces of which it is made do."""
    x, result = _sizes(node, 0, sizes), sizes[value_name(node.outputs[0])]
    axis = node.attributes.get_int("axis", 0) % max(len(x), 1)
    pieces = plain.written // max(math.prod(x[axis + 1 :]), 1) if result else 1
    if node.op_type.startswith("Slice"):
        pieces = 0  # its axes are data
    return replace(plain, read=plain.written, rows=pieces)


def _kind_of_operands(node: ir.Node, result: Sizes, sizes: Mapping[str, Sizes]) -> str:
    """A word for operands that are repeated over a larger result."""
    operands = [
        sizes[value_name(value)]
        for value in node.inputs
        if value is not None and value.dtype in (None, ir.DataType.FLOAT)  # axes and shapes are not
    ]
    if result not in operands or len(operands) != 2:
        return ""
    repeated = [each for each in operands if _is_repeated(each, result)]
    if not repeated:
        return ""
    return "repeated rows" if repeated[0][-1] == result[-1] else "repeated"


def _is_repeated(operand: Sizes, result: Sizes) -> bool:
    """Whether an operand that is no single number is broadcast over the result."""
    last_axes = result[len(result) - len(operand) :]
    fits = len(operand) <= len(result) and all(
        size in (1, end) for size, end in zip(operand, last_axes, strict=True)
    )
    return fits and 1 < math.prod(operand) < math.prod(result)


# --- Nodes that ONNX Runtime computes inside of the one ahead of them


PrecisionOf = Callable[[ir.Node], Precision | None]
"""Precision of a node; None: the node ahead computes it too."""


def is_absorbed(node: ir.Node, precision: Precision, precision_of: PrecisionOf) -> bool:
    """Whether ONNX Runtime computes the node inside of the one ahead of it."""
    sources = [v.producer() for v in node.inputs if v is not None]
    ahead = [
        source
        for source in sources
        if source is not None
        and _gives(precision_of(source)) is precision
        and len(source.outputs[0].uses()) == 1
        and not source.outputs[0].is_graph_output()
    ]
    if not ahead:
        return False
    if precision is Precision.FLOAT and is_gate_of_itself(node):
        return True
    if precision is Precision.INT8 and facts.of(node).swallowed:
        return True
    if precision is Precision.FLOAT and any(
        source.op_type == layouts.CONVOLUTION for source in ahead
    ):
        return node.op_type in layouts.FUSED_BEHIND_CONV or (
            node.op_type in layouts.ADDED_BY_CONV and len(sources) == 2 and None not in sources
        )
    return (
        node.op_type in layouts.ADDED_BY_CONV
        and ahead[0].op_type in LINEAR_OPS
        and any(is_constant(node, slot) for slot in range(len(node.inputs)))
    )


def _gives(precision: Precision | None) -> Precision | None:
    """Precision of a node that goes on with this one's numbers: integers, or floats."""
    return Precision.FLOAT if precision is Precision.INT8_FLOAT_OUTPUT else precision


def is_gate_of_itself(node: ir.Node) -> bool:
    """Whether it is x * Sigmoid(x), which ONNX Runtime computes as one node."""
    if node.op_type != layouts.GATE[0]:
        return False
    first, second = node.inputs
    for x, gate in ((first, second), (second, first)):
        source = None if gate is None else gate.producer()
        if source is not None and source.op_type == layouts.GATE[1] and source.inputs[0] is x:
            return True
    return False
