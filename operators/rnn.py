"""Elman's recurrent network: dynamic quantization alone; ONNX Runtime has no integer kernel."""

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from onnxq.operator import Array, Case, NodeCall, Singles, register
from onnxq.operator.examples import ints32, normal
from onnxq.operators._activations import Activation
from onnxq.operators._bodies import BodyWriter
from onnxq.operators._cells import as_indexed, gate
from onnxq.operators._recurrence import FloatCell, run
from onnxq.operators._recurrent import Biases, Direction, Recurrence, ScanParts, biases


@register
class RNN(Recurrence):
    """Y, Y_h of X (T, N, I): h = f(X W^T + Wb + h' R^T + Rb), h' from before; ONNX RNN-14."""

    op_type = "RNN"

    def functions(self, call: NodeCall) -> list[list[Activation]]:
        """One per direction."""
        return as_indexed(call, "Tanh")

    def scan(self, node: ir.Node, directions: int) -> ScanParts:
        """One MatMul per step; both biases go with that of X."""
        found = biases(node, directions)
        added = None if found is None else [Biases(w + r, None) for w, r in found]
        return ScanParts(1, (1,), (1,), added, _cell)

    def float_kernel(self, call: NodeCall) -> tuple[Array, ...]:
        """Arrays that ONNX Runtime computes in float32, within rounding: Y and Y_h."""
        return run(call, _float, self.functions(call))

    def cases(self) -> Iterable[Case]:
        hidden, size = 4, 3
        x, bias = normal(5, 2, size), normal(2, 2 * hidden, seed=3)
        w, r = normal(2, hidden, size, seed=1), normal(2, hidden, hidden, seed=2)
        one, given = (w[:1], r[:1]), {"hidden_size": hidden}
        lengths, start = ints32(5, 2), normal(2, 2, hidden, seed=4)
        yield Case("plain", (x, *one), (1, 2), given, 2)
        yield Case("bias", (x, *one, bias[:1]), (1, 2, 3), given, 2)
        yield Case("backward", (x, *one, bias[:1]), (1, 2, 3), given | {"direction": "reverse"}, 2)
        both = given | {"direction": "bidirectional", "activations": ["Tanh", "Relu"]}
        yield Case("both directions", (x, w, r, bias), (1, 2, 3), both, 2)
        yield Case("all inputs", (x, w, r, bias, lengths, start), (1, 2, 3), both, 2)
        yield Case("no bias, initial state", (x, *one, None, None, start[:1]), (1, 2), given, 2)
        yield Case("clip", (x, *one, bias[:1]), (1, 2, 3), given | {"clip": 0.5}, 2)
        yield Case("one step", (x[:1], *one, bias[:1]), (1, 2, 3), given, 2)
        swapped = (x.swapaxes(0, 1), w, r, bias, lengths, start.swapaxes(0, 1))
        yield Case("batch first", swapped, (1, 2, 3), both | {"layout": 1}, 2)
        yield Case("Y alone", (x, *one, bias[:1]), (1, 2, 3), given)


def _cell(
    body: BodyWriter, direction: Direction, pieces: Sequence[ir.Value], h: ir.Value
) -> ir.Value:
    (matrix,), (piece,) = direction.matrices, pieces
    recurrent = body.matmul("recurrent", body.quantized("h", h), matrix, None)
    return gate(body, "new", direction.functions[0], body.op("total", "Add", [piece, recurrent]))


def _float(cell: FloatCell, p: Singles, h: Singles) -> Singles:
    return cell.gate(0, p + h @ cell.r.T + cell.rb)
