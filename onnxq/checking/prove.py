"""Proves for any input that sums of products fit the types that a machine adds them in.

    high[n] = bias[n] + sum_k max((low - x_zp) w[k, n], (high - x_zp) w[k, n]),  w = W - w_zp[n]

Each activation takes any integer from low to high by itself, so that some input attains the bound:
exact for a node, and at most too large for a model. Pairs are bounded likewise, on the integers as
they are stored. ONNX Runtime subtracts zero points behind the sum, modulo 2^32, which is exact
where the sum itself fits int32.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import catalog
from onnxq.checking.machines import behind_floats, machine_forms
from onnxq.checking.predict import ALL, machine_kinds
from onnxq.checking.prediction import stand_in
from onnxq.core.brief import brief
from onnxq.core.saved import Saved
from onnxq.errors import DifferenceError, listed
from onnxq.graph.hashing import model_hash
from onnxq.graph.io import load
from onnxq.graph.walk import attribute_values, bodies
from onnxq.graph.weights import constant
from onnxq.operator import IntegerCall, IntegerOperator
from onnxq.ort import facts
from onnxq.ort.node_kinds import value_types
from onnxq.static.prepared import ModelSource
from onnxq.targets import Target
from onnxq.targets.accumulation import INT16_MAX, INT16_MIN, LOWEST, Pairs, SaturationMode

Whole = npt.NDArray[np.int64]


PROVED, SATURATES, UNKNOWN = "proved", "can saturate", "not bounded"
"""Verdicts: no input reaches the limits; some input does; the weights are computed at run time, or
the operator rounds otherwise on such machines."""
INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class NodeCertificate:
    """Largest sums of one node, attained by some integers of its inputs.

    Attributes:
        accumulator: largest |sum of products and bias|; None: not bounded.
        pair: largest |sum of two products| that the machine adds in int16; None: it adds none so,
            or it is not bounded.
        verdict: PROVED, SATURATES or UNKNOWN.
    """

    name: str
    op_type: str
    accumulator: int | None
    pair: int | None
    verdict: str

    @property
    def accumulator_share(self) -> float | None:
        """Share of int32's range; above 1, it wraps."""
        return None if self.accumulator is None else self.accumulator / INT32_MAX

    @property
    def pair_share(self) -> float | None:
        """Share of int16's range; above 1, it saturates or wraps."""
        return None if self.pair is None else self.pair / INT16_MAX


@dataclass(frozen=True, slots=True)
class OutputBound:
    """Largest error of an output beside exact integers, for any input.

    Attributes:
        bound: 0: every integer ahead of it is proved exact; None: no bound.
    """

    name: str
    bound: float | None


@dataclass(frozen=True, slots=True)
class MachineCertificate:
    """Certificates of machines of one saturation mode.

    Attributes:
        saturation_mode: an onnxq.targets.accumulation.SaturationMode's value.
    """

    targets: tuple[str, ...]
    saturation_mode: str
    nodes: tuple[NodeCertificate, ...]
    outputs: tuple[OutputBound, ...]

    @property
    def is_proved(self) -> bool:
        """Whether no input of any node reaches a limit."""
        return all(node.verdict == PROVED for node in self.nodes)


@dataclass(frozen=True)
class Certificate(Saved):
    """Which integer sums cannot leave their types on which machines, whatever the input.

    Attributes:
        machines: one entry per saturation mode among the targets.
    """

    FORMAT: ClassVar[str] = "onnxq certificate 1"
    NOUN: ClassVar[str] = "a certificate"
    ANEW: ClassVar[str] = "Run prove anew."

    model_hash: str
    machines: tuple[MachineCertificate, ...]

    __repr__ = brief

    @property
    def is_proved(self) -> bool:
        """Whether all machines are proved."""
        return all(machine.is_proved for machine in self.machines)

    def check(self) -> None:
        """Returns where no sum can leave its type on a named machine."""
        lines = [
            f"{', '.join(machine.targets)}: {listed(names)}"
            for machine in self.machines
            if (names := [node.name for node in machine.nodes if node.verdict != PROVED])
        ]
        if lines:
            raise DifferenceError(
                "sums of products are not proved to fit for any input:\n  "
                + "\n  ".join(lines)
                + "\nQuantize for `portable`, whose pairs fit on every machine."
            )


@dataclass(frozen=True, slots=True)
class Slots:
    """Input slots of an operator that multiplies activations by a constant.

    Attributes:
        x, x_zero, w, w_zero: of activations, weights and their zero points.
        bias: of int32 numbers that are added to the sum; None: it has none.
        is_conv: the weights are (O, C / group, *kernel); else (..., K, N), of Gemm by transB.
    """

    x: int
    x_zero: int
    w: int
    w_zero: int
    bias: int | None = None
    is_conv: bool = False


SLOTS = {
    "ConvInteger": Slots(0, 2, 1, 3, is_conv=True),
    "MatMulInteger": Slots(0, 2, 1, 3),
    "MatMulIntegerToFloat": Slots(0, 4, 1, 5),
    "QGemm": Slots(0, 2, 3, 5, bias=6),
    "QLinearConv": Slots(0, 2, 3, 5, bias=8, is_conv=True),
    "QLinearMatMul": Slots(0, 2, 3, 5),
}
"""Operators whose sums are bounded."""


def prove(model: ModelSource, machines: str | Target | Iterable[str | Target] = ALL) -> Certificate:
    """The Certificate of a quantized model, from its weights and the integer ranges of its tensors.

    Args:
        model: the quantized model, QDQ or QOperator; path, ModelProto or onnx_ir.Model.
        machines: targets or their names; "all" and "portable": every machine.

    Raises:
        ModelError: the model cannot be read.
        QConfigError: no target, or an unknown one.
    """
    kinds = machine_kinds(machines)
    target = load(model)
    by_mode = machine_forms(target, [mode for mode, _ in kinds])
    return Certificate(
        model_hash(target),
        tuple(_on_machine(by_mode[mode].integer, mode, names) for mode, names in kinds),
    )


def _on_machine(
    integer: ir.Model, mode: SaturationMode, names: tuple[str, ...]
) -> MachineCertificate:
    types = value_types(integer)
    nodes: dict[ir.Node, NodeCertificate] = {}
    inexact: set[ir.Node] = set()
    for node in integer.graph.all_nodes():
        operator = catalog.find_integer(node.op_type, node.domain)
        if operator is None or not operator.depends_on_machine():
            continue
        inputs = [stand_in(value, types) for value in node.inputs]
        call = IntegerCall(node.op_type, inputs, attributes=attribute_values(node))
        if operator.weights:
            nodes[node] = _certificate(node, operator, call, mode)
        exact = nodes[node].verdict == PROVED if node in nodes else not operator.risks(call, mode)
        if not exact:
            inexact.add(node)
    floats = behind_floats(integer).outputs
    outputs = [
        OutputBound(
            str(value.name), None if value.name in floats or _is_behind(value, inexact) else 0.0
        )
        for value in integer.graph.outputs
    ]
    return MachineCertificate(names, mode.value, tuple(nodes.values()), tuple(outputs))


def _is_behind(value: ir.Value, nodes: set[ir.Node]) -> bool:
    """Whether one of the nodes, or a node with a body, has a part in a value."""
    work, seen = [value.producer()], set[ir.Node]()
    while work:
        node = work.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node in nodes or bodies(node):
            return True
        work += [v.producer() for v in node.inputs if v is not None]
    return False


# --- one node


def _certificate(
    node: ir.Node, operator: IntegerOperator, call: IntegerCall, mode: SaturationMode
) -> NodeCertificate:
    slots = SLOTS.get(node.op_type)
    unknown = any(constant(node.inputs[slot]) is None for slot in operator.weights)
    if slots is None or unknown:
        return NodeCertificate(node.name or "", node.op_type, None, None, UNKNOWN)
    x = call.operand(slots.x, "x")
    bounds = integer_range(node.inputs[slots.x], x.dtype)
    sums = _sums(node, call, slots, bounds)
    pairs = operator.pairs(call, mode)
    reached = None if pairs is None else _pair_bounds(pairs, bounds, x.dtype, mode)
    fits = sums is not None and sums[0] >= -INT32_MAX - 1 and sums[1] <= INT32_MAX
    in_pairs = reached is None or (reached[0] >= INT16_MIN and reached[1] <= INT16_MAX)
    verdict = UNKNOWN if sums is None else PROVED if fits and in_pairs else SATURATES
    if node.op_type == "ConvInteger" and operator.risks(call, mode) is not None:
        verdict = SATURATES  # it multiplies the other way round, by pairs of the image
    return NodeCertificate(
        node.name or "", node.op_type, _largest(sums), _largest(reached), verdict
    )


def _largest(bounds: tuple[int, int] | None) -> int | None:
    return None if bounds is None else max(-bounds[0], bounds[1])


def integer_range(value: ir.Value | None, dtype: np.dtype[np.generic]) -> tuple[int, int]:
    """Smallest and largest integer that a tensor can hold, through nodes that move integers."""
    info = np.iinfo(dtype.str)
    low, high = int(info.min), int(info.max)
    producer = None if value is None else value.producer()
    while producer is not None and facts.of(producer).transparent:
        value = producer.inputs[0]
        producer = None if value is None else value.producer()
    if producer is None or producer.op_type != "Clip" or producer.domain:
        return low, high
    bounds = [constant(v) for v in producer.inputs[1:]]
    if bounds and bounds[0] is not None:
        low = max(low, int(bounds[0].numpy()))
    if len(bounds) > 1 and bounds[1] is not None:
        high = min(high, int(bounds[1].numpy()))
    return low, high


def _sums(
    node: ir.Node, call: IntegerCall, slots: Slots, bounds: tuple[int, int]
) -> tuple[int, int] | None:
    """Smallest and largest accumulator; None: a zero point or bias is computed at run time."""
    read = [slots.x_zero, slots.w_zero, *([] if slots.bias is None else [slots.bias])]
    given = [slot for slot in read if slot < len(node.inputs) and node.inputs[slot] is not None]
    if any(constant(node.inputs[slot]) is None for slot in given):
        return None
    w = np.asarray(call.operand(slots.w, "w"), np.int64)
    if slots.is_conv:
        matrix = w.reshape(len(w), -1).T
    else:
        turned = w.T if call.integer("transB", 0) else w
        matrix = turned[:, None] if turned.ndim == 1 else np.moveaxis(turned, -2, 0)
        matrix = matrix.reshape(len(matrix), -1)
    w_zero, x_zero = _numbers(call, slots.w_zero), _numbers(call, slots.x_zero)
    columns = matrix.shape[1]
    matrix = matrix - np.resize(w_zero, columns)  # of batches of matrices, one per last column
    at_bounds = [matrix * (bound - x_zero.reshape(-1)[0]) for bound in bounds]
    bias = np.zeros(1, np.int64) if slots.bias is None else _numbers(call, slots.bias)
    low, high = (extreme(*at_bounds).sum(axis=0) for extreme in (np.minimum, np.maximum))
    return int((low + bias).min(initial=0)), int((high + bias).max(initial=0))


def _numbers(call: IntegerCall, slot: int) -> Whole:
    found = call.optional(slot)
    return np.zeros(1, np.int64) if found is None else np.asarray(found, np.int64)


def _pair_bounds(
    pairs: Pairs, bounds: tuple[int, int], x: np.dtype[np.generic], mode: SaturationMode
) -> tuple[int, int] | None:
    """Smallest and largest sum of two products; None: there are no two."""
    if not pairs.first.size:
        return None
    # ARM's kernels flip uint8 activations to int8
    shift = LOWEST if mode is not SaturationMode.SATURATES and x == np.uint8 else 0
    w = pairs.weights.astype(np.int64)
    products = [w * (bound + shift) for bound in bounds]
    low, high = (extreme(*products) for extreme in (np.minimum, np.maximum))
    return (
        int((low[pairs.first] + low[pairs.second]).min()),
        int((high[pairs.first] + high[pairs.second]).max()),
    )
