"""Dynamic quantization that GRU and RNN share: one MatMul for all steps, then a Scan.

    P = X W^T + bias        one integer MatMul for the whole sequence and both directions
    h_t = cell(P_t, h_t-1)  the body of a Scan per direction; h R^T is an integer MatMul in it

X and h are quantized to uint8 when the model runs (DynamicQuantizeLinear): X once, h at each step.
Shapes: X (T, N, I), h (N, H), P (T, N, G H) with G gates, integers of W (I, D, G H) and of R
(D, H, G H) for D directions. ONNX has GRU and RNN with layout 1, ONNX Runtime has not; here it is
a Transpose before and after.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operator.nodes import call_of, constant, has_input, is_constant, shape
from onnxq.operators._activations import Activation
from onnxq.operators._bodies import BodyWriter, ColumnQParams, Matrix
from onnxq.operators._dynamic import INTEGERS_OR_STORED, lower_stored

X, W, R, B, LENGTHS, INITIAL = range(6)
"""Input slots."""
W_STORED, R_STORED = (2, 0, 1), (0, 2, 1)
"""Order of axes in which the integers of W (D, G H, I) and R (D, G H, H) are stored."""
OUT_OF_LAYOUT_0 = ((2, 0, 1, 3), (1, 0, 2))
"""Y (T, D, N, H) -> (N, T, D, H), and Y_h (D, N, H) -> (N, D, H)."""
FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


@dataclass(frozen=True, slots=True, eq=False)
class Direction:
    """One direction of the network, for the body of its Scan.

    Attributes:
        matrices: of R as the cell asked for them (`ScanParts.columns`).
        bias: that is added to h R^T inside of the cell, (G H,); None where there is none.
        functions: the node's activations of this direction.
    """

    matrices: Sequence[Matrix]
    bias: ir.Value | None
    functions: Sequence[Activation]
    hidden: int


@dataclass(frozen=True, slots=True, eq=False)
class Biases:
    """One direction's: (G H,) beside X W^T, and (G H,) beside h R^T or None."""

    outside: op.Singles
    inside: op.Singles | None


CellWriter = Callable[[BodyWriter, Direction, Sequence[ir.Value], ir.Value], ir.Value]
"""(writer, direction, pieces of P_t (N, piece), h_t-1) -> h_t."""


@dataclass(frozen=True, slots=True, eq=False)
class ScanParts:
    """Parts that an operator's Scan over steps is made of.

    Attributes:
        pieces: columns of P that the cell reads together, in multiples of H.
        columns: columns of R that are multiplied at once, likewise.
        added: biases per direction; None where there are none.
    """

    gates: int
    pieces: tuple[int, ...]
    columns: tuple[int, ...]
    added: Sequence[Biases] | None
    cell: CellWriter


class Recurrence(op.Operator):
    """A recurrence without an integer kernel in ONNX Runtime: it is quantized dynamically alone."""

    @abstractmethod
    def functions(self, call: op.NodeCall) -> list[list[Activation]]:
        """Activations per direction."""

    @abstractmethod
    def scan(self, node: ir.Node, directions: int) -> ScanParts:
        """The Scan of integer MatMuls that replaces the node."""

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Float: no scale of the state is known ahead, and there is no integer kernel."""
        return op.Float.because(
            f"{self.op_type} has no integer kernel; dynamic quantization quantizes its "
            f"weights: {dynamic_entry(self.op_type)}"
        )

    def dynamic_rule(self, node: ir.Node) -> op.DynamicRule | op.Float:
        """W and R."""
        return dynamic_rule(node)

    def lower_dynamic(self, site: op.DynamicSite) -> Sequence[ir.Value]:
        """A Scan of integer MatMuls, or the node itself with stored weights."""
        if site.plan.precision is not op.Precision.DYNAMIC_INT8:
            return lower_as_itself(site)
        functions = self.functions(call_of(site.node))
        return _Lowering(site, self.scan(site.node, len(functions))).write(functions)


def dynamic_entry(op_type: str) -> str:
    """How static quantization is told to quantize the operator dynamically; for reasons."""
    return (
        f"give it a dynamic entry (--set op:{op_type}=dynamic_int8; in Python "
        f"QConfigMapping().set_op_type('{op_type}', onnxq_default_dynamic_qconfig))"
    )


def dynamic_rule(node: ir.Node) -> op.DynamicRule | op.Float:
    """W and R, with a scale per row that both directions share."""
    x = node.inputs[X]
    if x is not None and x.dtype not in (None, FLOAT):
        return op.Float.because(f"it computes in {x.dtype}; only float32 is quantized")
    for slot, name in ((W, "W"), (R, "R"), (B, "the bias")):
        if has_input(node, slot) and not is_constant(node, slot):
            return op.Float.because(f"{name} is computed when the model runs")
    if shape(node, W) is None or shape(node, R) is None:
        return op.Float.because("the shapes of W and R are not known")
    return op.DynamicRule(
        # R first: how fast integers are depends on the hidden size
        weights=(op.DynamicWeight(R, 1, R_STORED), op.DynamicWeight(W, 1, W_STORED)),
        precisions=INTEGERS_OR_STORED,
        saturating_pairs=True,
        not_rows=not_rows(node),
        no_float_kernel=is_batch_first(node),
    )


def not_rows(node: ir.Node) -> tuple[int, int]:
    """Axes of X, from behind, that are not the batch: inputs, and steps, the first in layout 0."""
    return (-1, -2 if is_batch_first(node) else -3)


def is_batch_first(node: ir.Node) -> bool:
    """Whether it has layout 1, for which ONNX Runtime has no LSTM, GRU or RNN."""
    return node.attributes.get_int("layout", 0) != 0


def biases(node: ir.Node, directions: int) -> list[tuple[op.Singles, op.Singles]] | None:
    """(Wb, Rb) per direction, (G H,) each; None where the node has no bias."""
    bias = constant(node, B)
    if bias is None:
        return None
    halves = np.asarray(bias, np.float32).reshape(directions, 2, -1)
    return [(half[0], half[1]) for half in halves]


def lower_as_itself(site: op.DynamicSite) -> list[ir.Value]:
    """The node on weights that are dequantized at load, in layout 0.

    ONNX Runtime has no GRU or RNN in layout 1: X, initial_h and the outputs are turned around it.
    """
    rule = dynamic_rule(site.node)
    if not is_batch_first(site.node):
        return lower_stored(site, rule)
    slots = list(site.inputs)
    for slot in (X, INITIAL):
        value = slots[slot] if slot < len(slots) else None
        if value is not None:
            name = f"{site.node.name}_time_first_{slot}"
            slots[slot] = site.step("Transpose", [value], name, attributes={"perm": [1, 0, 2]})
    outputs = lower_stored(replace(site, inputs=slots), rule)
    made = outputs[0].producer()
    assert made is not None
    del made.attributes["layout"]
    for slot, (old, perm) in enumerate(zip(site.node.outputs, OUT_OF_LAYOUT_0, strict=False)):
        outputs[slot].shape = None
        if old.name == "":  # absent: nothing to turn
            continue
        name = f"{site.node.name}_batch_first_{slot}"
        outputs[slot] = site.step(
            "Transpose", [outputs[slot]], name, attributes={"perm": list(perm)}
        )
        outputs[slot].type, outputs[slot].shape = old.type, old.shape
    return outputs


class _Lowering:
    """One node being written: Y (T, D, N, H) and Y_h (D, N, H), by integer MatMuls."""

    def __init__(self, site: op.DynamicSite, scan: ScanParts) -> None:
        node = site.node
        self._steps = BodyWriter(site.tape, node)
        self._node = node
        self._inputs = [*site.inputs, *[None] * (INITIAL + 1 - len(site.inputs))]
        self._plan = scan
        self._directions, _, self._hidden = _sizes(node, R)
        self._r, self._w = (ColumnQParams.of(qparams) for qparams in site.plan.qparams)
        self._batch_first = is_batch_first(node)

    def write(self, functions: Sequence[Sequence[Activation]]) -> list[ir.Value]:
        """The outputs that the node has."""
        x = self._time_first("input", self._inputs[X])
        mask = self._mask(x)
        parts = self._projection(x)
        per_direction = len(self._plan.pieces)
        states, sequences = [], []
        for d in range(self._directions):
            direction = Direction(self._recurrent(d), self._inside(d), functions[d], self._hidden)
            own = parts[d * per_direction : (d + 1) * per_direction]
            state, sequence = self._scan(d, direction, own, self._start(d, x), mask)
            states.append(state)
            sequences.append(sequence)
        return self._outputs(sequences, states, mask)

    def _time_first(self, label: str, value: ir.Value | None) -> ir.Value:
        """X or initial_h with the axes of layout 0."""
        assert value is not None, "the caller looked"
        if not self._batch_first:
            return value
        return self._steps.op(f"{label}_time_first", "Transpose", [value], {"perm": [1, 0, 2]})

    def _projection(self, x: ir.Value) -> list[ir.Value]:
        """Pieces of X W^T + bias, (T, N, piece) each, forward before backward."""
        steps, integers = self._steps, self._inputs[W]
        columns = self._directions * self._plan.gates * self._hidden
        flat = steps.ints("input_shape", [_sizes(self._node, W)[2], columns])
        matrix = Matrix(
            steps.op("input_weight", "Reshape", [integers, flat]),
            *steps.columns("input", self._w.repeated(self._directions)),
        )
        bias = None
        if self._plan.added is not None:
            outside = np.concatenate([one.outside for one in self._plan.added])
            bias = steps.reals_of("input_bias", outside)
        projected = steps.matmul("input", steps.quantized("input", x), matrix, bias)
        sizes = [piece * self._hidden for piece in self._plan.pieces] * self._directions
        return steps.split("input_parts", projected, sizes)

    def _recurrent(self, d: int) -> list[Matrix]:
        """The matrices of R that the cell multiplies by, (H, columns) each."""
        steps, integers = self._steps, self._inputs[R]
        index = steps.integer(f"direction{d}", d)
        whole = steps.op(f"recurrent{d}_weight", "Gather", [integers, index], {"axis": 0})
        sizes = [count * self._hidden for count in self._plan.columns]
        parts = steps.split(f"recurrent{d}_parts", whole, sizes)
        ends = np.cumsum(sizes)
        return [
            Matrix(
                part,
                *steps.columns(f"recurrent{d}_{i}", self._r.between(int(end) - size, int(end))),
            )
            for i, (part, size, end) in enumerate(zip(parts, sizes, ends, strict=True))
        ]

    def _inside(self, d: int) -> ir.Value | None:
        added = self._plan.added
        inside = None if added is None else added[d].inside
        return None if inside is None else self._steps.reals_of(f"recurrent{d}_bias", inside)

    def _start(self, d: int, x: ir.Value) -> ir.Value:
        """The state before the first step, (N, H)."""
        steps = self._steps
        if has_input(self._node, INITIAL):
            given = self._time_first(f"initial{d}", self._inputs[INITIAL])
            index = steps.integer(f"direction{d}", d)
            return steps.op(f"initial{d}", "Gather", [given, index], {"axis": 0})
        rows = steps.op(f"rows{d}", "Gather", [self._shape(x), steps.ints("one", [1])])
        sizes = [rows, steps.ints("hidden", [self._hidden])]
        size = steps.op(f"initial{d}_shape", "Concat", sizes, {"axis": 0})
        return steps.op(f"initial{d}", "ConstantOfShape", [size])

    def _shape(self, x: ir.Value) -> ir.Value:
        return self._steps.once("shape", "Shape", [x])

    def _mask(self, x: ir.Value) -> ir.Value | None:
        """Whether step t is before the end of sequence n, (T, N, 1); None: all are."""
        if not has_input(self._node, LENGTHS):
            return None
        steps = self._steps
        zero, one = steps.integer("first", 0), steps.integer("step", 1)
        length = steps.op("length", "Gather", [self._shape(x), zero])
        numbers = steps.op("numbers", "Range", [zero, length, one])
        column = steps.op("numbers_column", "Unsqueeze", [numbers, steps.ints("one", [1])])
        lengths = steps.op("lengths", "Cast", [self._inputs[LENGTHS]], {"to": INT64.value})
        before = steps.op("before_end", "Less", [column, lengths])
        return steps.op("mask", "Unsqueeze", [before, steps.ints("two", [2])])

    def _scan(
        self,
        d: int,
        direction: Direction,
        parts: Sequence[ir.Value],
        start: ir.Value,
        mask: ir.Value | None,
    ) -> tuple[ir.Value, ir.Value]:
        """The state after the last step (N, H), and after each (T, N, H)."""
        backward = d == 1 or self._node.attributes.get_string("direction", "forward") == "reverse"
        body = self._steps.inner(f"scan{d}")
        h = body.argument("h", FLOAT, self._hidden)
        pieces = [
            body.argument(f"p{i}", FLOAT, piece * self._hidden)
            for i, piece in enumerate(self._plan.pieces)
        ]
        arguments = [h, *pieces]
        new = self._plan.cell(body, direction, pieces, h)
        if mask is not None:
            going = body.argument("going", ir.DataType.BOOL, 1)
            arguments.append(going)
            new = body.op("kept", "Where", [going, new, h])
        kept = body.op("y", "Identity", [new])
        for value in (new, kept):
            value.type, value.shape = ir.TensorType(FLOAT), h.shape
        scanned = [*parts, *([] if mask is None else [mask])]
        attributes: dict[str, int | list[int] | ir.Graph] = {
            "body": body.graph(arguments, [new, kept]),
            "num_scan_inputs": len(scanned),
        }
        if backward:
            attributes["scan_input_directions"] = [1] * len(scanned)
            attributes["scan_output_directions"] = [1]
        state, sequence = self._steps.ops(f"scan{d}", "Scan", [start, *scanned], attributes, 2)
        return state, sequence

    def _outputs(
        self, sequences: Sequence[ir.Value], states: Sequence[ir.Value], mask: ir.Value | None
    ) -> list[ir.Value]:
        """Outputs, as many as the node has."""
        steps = self._steps
        zero = None if mask is None else steps.reals_of("zero", np.zeros((), np.float32))
        if mask is not None:
            sequences = [
                steps.op(f"sequence{d}", "Where", [mask, y, zero]) for d, y in enumerate(sequences)
            ]
        if mask is not None and has_input(self._node, INITIAL):
            # ONNX Runtime: the last state of a sequence without a step is 0, not the initial one
            first = steps.op("begins", "Gather", [mask, steps.integer("first", 0)], {"axis": 0})
            states = [
                steps.op(f"state{d}", "Where", [first, h, zero]) for d, h in enumerate(states)
            ]
        joins = (("y", sequences, 1, [2, 0, 1, 3]), ("y_h", states, 0, [1, 0, 2]))
        return [  # an absent output stays absent: a node that computed it would have no output
            ir.Value(name="") if old.name == "" else _like(self._joined(*join), old)
            for join, old in zip(joins, self._node.outputs, strict=False)
        ]

    def _joined(
        self, label: str, values: Sequence[ir.Value], axis: int, batch_first: list[int]
    ) -> ir.Value:
        """The directions beside each other on a new axis."""
        steps = self._steps
        axes = steps.ints(f"axis{axis}", [axis])
        joined = [
            steps.op(f"{label}{d}", "Unsqueeze", [value, axes]) for d, value in enumerate(values)
        ]
        result = joined[0]
        if len(joined) > 1:
            result = steps.op(f"{label}_both", "Concat", joined, {"axis": axis})
        if self._batch_first:
            result = steps.op(f"{label}_batch_first", "Transpose", [result], {"perm": batch_first})
        return result


def _sizes(node: ir.Node, slot: int) -> tuple[int, ...]:
    """The shape of W or R in the float model."""
    found = constant(node, slot)
    assert found is not None, "they are constants"
    return found.shape


def _like(value: ir.Value, old: ir.Value) -> ir.Value:
    """The value with the type and shape of the one whose place it takes."""
    value.type, value.shape = old.type, old.shape
    return value
