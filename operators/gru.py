"""Gated recurrent unit: dynamic quantization alone; ONNX Runtime has no integer kernel of it."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from onnxq.operator import Array, Case, NodeCall, Singles, register
from onnxq.operator.examples import ints32, normal
from onnxq.operators._activations import Activation
from onnxq.operators._bodies import BodyWriter
from onnxq.operators._cells import as_named, gate
from onnxq.operators._recurrence import FloatCell, run
from onnxq.operators._recurrent import Biases, Direction, Recurrence, ScanParts, biases

GATES = 3  # update, reset, hidden: z r h
DEFAULTS = ("Sigmoid", "Tanh")


@register
class GRU(Recurrence):
    """Y, Y_h of X (T, N, I): h = (1 - z) n + z h' with h' of the step before; ONNX GRU-14.

    z = f(P_z + h' R_z^T), r = f(P_r + h' R_r^T), P = X W^T + Wb, Rb being added where it can;
    linear_before_reset 0: n = g(P_n + (r h') R_n^T + Rb_n), two MatMuls per step;
    linear_before_reset 1: n = g(P_n + r (h' R_n^T + Rb_n)), one.
    """

    op_type = "GRU"

    def functions(self, call: NodeCall) -> list[list[Activation]]:
        """Functions of z and r, and of n."""
        return as_named(call, DEFAULTS)

    def scan(self, node: ir.Node, directions: int) -> ScanParts:
        """Both matrices at once where linear_before_reset is 1, else that of n behind r."""
        linear = node.attributes.get_int("linear_before_reset", 0) != 0
        columns = (3,) if linear else (2, 1)
        added = _added(node, directions, linear)
        return ScanParts(GATES, (2, 1), columns, added, _linear_cell if linear else _cell)

    def float_kernel(self, call: NodeCall) -> tuple[Array, ...]:
        """Arrays that ONNX Runtime computes in float32, within rounding: Y and Y_h."""
        linear = call.integer("linear_before_reset", 0) != 0
        return run(call, _float_linear if linear else _float, self.functions(call))

    def cases(self) -> Iterable[Case]:
        hidden, size = 4, 3
        x, bias = normal(5, 2, size), normal(2, 6 * hidden, seed=3)
        w, r = normal(2, 3 * hidden, size, seed=1), normal(2, 3 * hidden, hidden, seed=2)
        one, given = (w[:1], r[:1]), {"hidden_size": hidden}
        linear = given | {"linear_before_reset": 1}
        lengths, start = ints32(5, 2), normal(2, 2, hidden, seed=4)
        yield Case("plain", (x, *one), (1, 2), given, 2)
        yield Case("bias", (x, *one, bias[:1]), (1, 2, 3), given, 2)
        yield Case("linear before reset", (x, *one, bias[:1]), (1, 2, 3), linear, 2)
        yield Case("backward", (x, *one, bias[:1]), (1, 2, 3), linear | {"direction": "reverse"}, 2)
        both = linear | {"direction": "bidirectional"}
        yield Case("both directions", (x, w, r, bias), (1, 2, 3), both, 2)
        yield Case("all inputs", (x, w, r, bias, lengths, start), (1, 2, 3), both, 2)
        yield Case("all inputs, reset first", (x, w, r, bias, lengths, start), (1, 2, 3),
                   both | {"linear_before_reset": 0}, 2)  # fmt: skip
        yield Case("no bias, initial state", (x, *one, None, None, start[:1]), (1, 2), given, 2)
        yield Case("clip", (x, *one, bias[:1]), (1, 2, 3), linear | {"clip": 0.5}, 2)
        yield Case("one step", (x[:1], *one, bias[:1]), (1, 2, 3), linear, 2)
        swapped = (x.swapaxes(0, 1), w, r, bias, lengths, start.swapaxes(0, 1))
        yield Case("batch first", swapped, (1, 2, 3), both | {"layout": 1}, 2)
        yield Case("Y alone", (x, *one, bias[:1]), (1, 2, 3), linear)


def _added(node: ir.Node, directions: int, linear: bool) -> list[Biases] | None:
    """Rb goes with Wb, but for that of n, which r multiplies where linear_before_reset is 1."""
    found = biases(node, directions)
    if found is None:
        return None
    if not linear:
        return [Biases(w + r, None) for w, r in found]
    early = 2 * len(found[0][0]) // GATES
    return [
        Biases(
            np.concatenate([w[:early] + r[:early], w[early:]]),
            np.concatenate([np.zeros(early, np.float32), r[early:]]),
        )
        for w, r in found
    ]


def _linear_cell(
    body: BodyWriter, direction: Direction, pieces: Sequence[ir.Value], h: ir.Value
) -> ir.Value:
    (matrix,), (early, late) = direction.matrices, pieces
    recurrent = body.matmul("recurrent", body.quantized("h", h), matrix, direction.bias)
    sizes = [2 * direction.hidden, direction.hidden]
    r_early, r_late = body.split("recurrent_parts", recurrent, sizes)
    z, r = _gates(body, direction, early, r_early)
    reset = body.op("reset", "Mul", [r, r_late])
    return _mixed(body, direction, body.op("late", "Add", [late, reset]), z, h)


def _cell(
    body: BodyWriter, direction: Direction, pieces: Sequence[ir.Value], h: ir.Value
) -> ir.Value:
    (first, second), (early, late) = direction.matrices, pieces
    recurrent = body.matmul("recurrent", body.quantized("h", h), first, None)
    z, r = _gates(body, direction, early, recurrent)
    reset = body.op("reset", "Mul", [r, h])
    second_recurrent = body.matmul("reset", body.quantized("reset", reset), second, None)
    return _mixed(body, direction, body.op("late", "Add", [late, second_recurrent]), z, h)


def _gates(
    body: BodyWriter, direction: Direction, early: ir.Value, recurrent: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """The gates z and r, (N, H) each."""
    total = body.op("early", "Add", [early, recurrent])
    both = gate(body, "early_gate", direction.functions[0], total)
    z, r = body.split("gates", both, [direction.hidden, direction.hidden])
    return z, r


def _mixed(
    body: BodyWriter, direction: Direction, late: ir.Value, z: ir.Value, h: ir.Value
) -> ir.Value:
    """The new state as n + z (h - n): one operation less than (1 - z) n + z h."""
    n = gate(body, "late_gate", direction.functions[1], late)
    difference = body.op("difference", "Sub", [h, n])
    return body.op("new", "Add", [n, body.op("part", "Mul", [z, difference])])


def _float_linear(cell: FloatCell, p: Singles, h: Singles) -> Singles:
    """One step of linear_before_reset 1."""
    size = h.shape[1]
    product = h @ cell.r.T + cell.rb
    z, r = np.split(cell.gate(0, p[:, : 2 * size] + product[:, : 2 * size]), 2, axis=1)
    n = cell.gate(1, p[:, 2 * size :] + r * product[:, 2 * size :])
    return (1 - z) * n + z * h


def _float(cell: FloatCell, p: Singles, h: Singles) -> Singles:
    """One step of linear_before_reset 0."""
    size = h.shape[1]
    early = h @ cell.r[: 2 * size].T + cell.rb[: 2 * size]
    z, r = np.split(cell.gate(0, p[:, : 2 * size] + early), 2, axis=1)
    late = np.asarray((r * h) @ cell.r[2 * size :].T, np.float32) + cell.rb[2 * size :]
    n = cell.gate(1, p[:, 2 * size :] + late)
    return (1 - z) * n + z * h
