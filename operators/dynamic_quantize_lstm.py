"""Long short-term memory with weights in integers, its activations quantized step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxq.affine import quantize
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import Array, Case, IntegerCall, IntegerOperator, Singles, register_integer
from onnxq.operator.examples import integers, ints32, normal
from onnxq.operator.integer_call import stored
from onnxq.operator.site import MICROSOFT
from onnxq.operators._activations import Activation, activations
from onnxq.operators._gemm import centred, integer_matmul
from onnxq.operators._pairs import matmul_correction, matmul_pairs
from onnxq.operators.dynamic_quantize_linear import dynamic_qparams
from onnxq.qparams import IntArray
from onnxq.targets.accumulation import EXACT, Accumulator, Overflows, SaturationMode, joined, risks

DEFAULTS = ("Sigmoid", "Tanh", "Tanh")
NO_CLIP = float(np.finfo(np.float32).max)

Lengths = npt.NDArray[np.int32]

OP = "DynamicQuantizeLSTM"
GATES = 4  # input, output, forget, cell: i o f c


@register_integer
class DynamicQuantizeLSTM(IntegerOperator):
    """LSTM whose X W and H R are products of integers; com.microsoft, ONNX LSTM's equations.

    Z[t] = q(X) W + q(H[t-1]) R + (Wb + Rb), q: DynamicQuantizeLinear of the whole X and of each
    step's H, float32(sum) * (q_scale * w_scale[n]); i o f c of Z; C = f C + i g(c), H = o h(C).

    Inputs X (T, N, I), W (D, I, 4 H), R (D, H, 4 H), B, sequence_lens, initial_h, initial_c, P,
    W_scale, W_zero_point, R_scale, R_zero_point: (D,), or (D, 4 H) with zero points that are
    equal, and 0 if int8; (1,) will do for them. float32, rounded after each step. All rows of a
    batch share one scale: so ONNX Runtime computes in one thread; with more it may give each
    thread's rows their own.
    """

    op_type = OP
    domains = (MICROSOFT,)
    weights = (1, 2)

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        """Y (T, D, N, H), Y_h (D, N, H), Y_c (D, N, H), float32."""
        return self.kernel_on(call, EXACT)

    def kernel_on(self, call: IntegerCall, accumulator: Accumulator) -> tuple[Array, ...]:
        x = call.operand(0, "X")
        if x.dtype != np.float32 or x.ndim != 3:
            raise call.shape_error(f"X is {x.dtype} of shape {x.shape}; wanted float32, (T, N, I).")
        direction = call.text("direction", "forward").lower()
        backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
        if direction not in backward:
            raise call.shape_error(f"direction '{direction}'; wanted {', '.join(backward)}.")
        cells = _cells(call, len(backward[direction]))
        lengths = _lengths(x, call.optional(4))
        starts = _starts(call, x, cells)
        steps = np.asarray(x, np.float32)
        results = [
            run_direction(steps, lengths, cell, start, reverse, accumulator)
            for cell, start, reverse in zip(cells, starts, backward[direction], strict=True)
        ]
        y, h, c = zip(*results, strict=True)
        return np.stack(y, axis=1), np.stack(h), np.stack(c)

    def risks(self, call: IntegerCall, saturation_mode: SaturationMode) -> Overflows | None:
        """Pairs of constant weights that leave int16."""
        w, r = call.operand(1, "W"), call.operand(2, "R")
        both = [matmul_pairs(np.dtype(np.uint8), stored(b), saturation_mode) for b in (w, r)]
        found = [risks(pairs, saturation_mode) for pairs in both]
        return joined([part for part in found if part is not None])

    def cases(self) -> Iterable[Case]:
        yield from _cases()


def _cells(call: IntegerCall, directions: int) -> list[Cell]:
    """One Cell per direction."""
    x = call.operand(0, "X")
    r_integers = call.operand(2, "R")
    w_integers = call.operand(1, "W")
    if call.qdtype(w_integers, "W") != call.qdtype(r_integers, "R"):
        raise UnsupportedError(
            f"{call.op_type}: W is {w_integers.dtype} and R {r_integers.dtype}; ONNX Runtime wants "
            "the same type."
        )
    hidden = call.integer("hidden_size", r_integers.shape[1] if r_integers.ndim == 3 else 0)
    width = GATES * hidden
    w = _weights(call, 1, "W", (directions, x.shape[2], width))
    r = _weights(call, 2, "R", (directions, hidden, width))
    b = _floats(call, 3, "B", (directions, 2 * width))
    p = _floats(call, 7, "P", (directions, 3 * hidden))
    functions = activations(call, DEFAULTS * directions)
    if len(functions) != 3 * directions:
        raise call.shape_error(f"{len(functions)} activations; wanted {3 * directions}.")
    return [
        Cell(
            w[i],
            r[i],
            None if b is None else np.asarray(b[i, :width] + b[i, width:]).reshape(GATES, hidden),
            None if p is None else p[i].reshape(3, hidden),
            functions[3 * i : 3 * i + 3],
            np.float32(call.real("clip", NO_CLIP)),
            call.integer("input_forget", 0),
        )
        for i in range(directions)
    ]


def _weights(call: IntegerCall, slot: int, name: str, shape: tuple[int, ...]) -> list[Weights]:
    """Weights per direction, from the integers in `slot` and their scales and zero points."""
    q = call.operand(slot, name)
    qdtype = call.qdtype(q, name)
    first = 8 if slot == 1 else 10
    scale = call.operand(first, f"{name}_scale")
    zero_point = call.operand(first + 1, f"{name}_zero_point")
    if q.shape != shape:
        raise call.shape_error(f"{name} has shape {q.shape}; wanted {shape}.")
    allowed = ((shape[0],), (shape[0], shape[2]))
    if scale.ndim == 2 and zero_point.shape == (1,) == shape[:1]:
        zero_point = np.repeat(zero_point[:, np.newaxis], shape[2], axis=1)
    if scale.shape not in allowed or zero_point.shape != scale.shape:
        raise call.shape_error(
            f"{name}_scale has shape {scale.shape}, {name}_zero_point "
            f"{zero_point.shape}; wanted {allowed[0]} or {allowed[1]} for both."
        )
    flat = call.qparams_of(name, scale.reshape(-1), zero_point.reshape(-1), qdtype, axis=0)
    points = flat.zero_point.reshape(-1)
    if scale.ndim == 2 and (points != (0 if qdtype.signed else points[:1])).any():
        raise call.shape_error(
            f"{name}_zero_point differs between columns, or is not 0 for int8; ONNX Runtime takes "
            "one for all columns. Use a symmetric qscheme, or one scale per direction."
        )
    scales = flat.scale.reshape(scale.shape)
    zeros = points.reshape(scale.shape)
    values = stored(q)
    return [
        Weights(
            np.asarray(values[i].astype(np.float32) - zeros[i].astype(np.float32)),
            scales[i],
            values[i],
        )
        for i in range(shape[0])
    ]


def _floats(call: IntegerCall, slot: int, name: str, shape: tuple[int, ...]) -> Singles | None:
    """A float32 input of that shape; None where it is absent."""
    x = call.optional(slot)
    if x is None:
        return None
    if x.dtype != np.float32 or x.shape != shape:
        raise call.shape_error(f"{name} is {x.dtype} of shape {x.shape}; wanted float32, {shape}.")
    return np.asarray(x, np.float32)


def _lengths(x: Array, given: Array | None) -> Lengths:
    """int32 (N,): steps of each sequence."""
    steps, batch = x.shape[:2]
    if given is not None and (given.dtype != np.int32 or given.shape != (batch,)):
        raise ShapeError(
            f"{OP}: sequence_lens is {given.dtype} of shape {given.shape}; wanted int32, "
            f"({batch},)."
        )
    lengths: Lengths = np.full(batch, steps, np.int32) if given is None else given.astype(np.int32)
    if ((lengths < 0) | (lengths > steps)).any():
        raise ShapeError(f"{OP}: sequence_lens {lengths}; X has {steps} steps.")
    if not lengths.any():
        raise UnsupportedError(
            f"{OP}: X of shape {x.shape} with sequence_lens {lengths} has no step; ONNX Runtime "
            "1.31 leaves Y_c uninitialized, and aborts the process on an empty batch."
        )
    return lengths


def _starts(call: IntegerCall, x: Array, cells: Sequence[Cell]) -> list[CellState]:
    """The state of each direction before the first step."""
    shape = (len(cells), x.shape[1], len(cells[0].r.values))
    h = _floats(call, 5, "initial_h", shape)
    c = _floats(call, 6, "initial_c", shape)
    nothing = np.zeros(shape, np.float32)
    h, c = nothing if h is None else h, nothing if c is None else c
    return [CellState(h[i], c[i]) for i in range(len(cells))]


def example(
    directions: int = 1,
    dtype: str = "int8",
    columns: bool = False,
    zero_points: int = 0,
    batch: int = 3,
) -> list[Array | None]:
    """Inputs 0 to 11 of a small net: 4 steps of 5 features, hidden size 6; no optional ones."""
    width, hidden = GATES * 6, 6
    shape = (directions, width) if columns else (directions,)
    scale = (0.01 + 0.01 * np.random.default_rng(1).random(shape)).astype(np.float32)
    point = np.full(shape, zero_points, dtype)
    w = integers(directions, 5, width, dtype=dtype, seed=2)
    r = integers(directions, hidden, width, dtype=dtype, seed=3)
    return [normal(4, batch, 5), w, r, *[None] * 5, scale, point, scale / np.float32(2), point]


def _cases() -> Iterable[Case]:
    hidden, weights = 6, (1, 2, 8, 9, 10, 11)

    def case(
        name: str, inputs: list[Array | None], extra: Mapping[int, Array], **attributes: object
    ) -> Case:
        given = [extra.get(i, x) for i, x in enumerate(inputs)]
        attrs: Any = {"direction": "forward", "hidden_size": hidden} | attributes
        return Case(name, tuple(given), (*weights, *(i for i in (3, 7) if i in extra)), attrs, 3)

    def options(directions: int) -> dict[int, Array]:
        return {
            3: normal(directions, 8 * hidden, seed=4),
            4: ints32(4, 2, 3),
            5: normal(directions, 3, hidden, seed=5) / np.float32(4),
            6: normal(directions, 3, hidden, seed=6),
            7: normal(directions, 3 * hidden, seed=7),
        }

    yield case("plain", example(), {})
    yield case("per column", example(columns=True), {3: options(1)[3]})
    yield case("uint8, zero point 255", example(1, "uint8", False, 255), {})
    yield case("uint8, per column, zero point 7", example(1, "uint8", True, 7), {})
    yield case("int8, zero point -128", example(zero_points=-128), {})
    yield case("all inputs", example(columns=True), options(1))
    yield case("all inputs, reverse", example(columns=True), options(1), direction="reverse")
    both = {"direction": "bidirectional"}
    yield case("bidirectional", example(2), {}, **both)
    yield case("all inputs, bidirectional", example(2, columns=True), options(2), **both)
    yield case("one sequence has no step", example(), {4: ints32(2, 0, 1)})
    yield case("clip", example(), options(1), clip=0.5)
    yield case("input_forget", example(), options(1), input_forget=1)
    yield case("zeros", example(), {0: np.zeros((4, 3, 5), np.float32)})
    for names in (("HardSigmoid", "Relu", "Softsign"), ("Affine", "LeakyRelu", "ThresholdedRelu")):
        lists = {"activation_alpha": [0.3, 0.1, 0.05], "activation_beta": [0.4, 0.2]}
        yield case(", ".join(names), example(), {3: options(1)[3]}, activations=names, **lists)


# --- the recurrence in one direction: float32 around products of integers, rounded after each step
# (no fused multiply-add but in the activations)


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """One direction's W or R (inputs, 4 H): float32 without the zero point, and integers as stored.

    scale is of rank 0 or (4 H,).
    """

    values: Singles
    scale: Singles
    integers: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One direction of the network; bias (4, H), peepholes (3, H) as i, o, f, None where absent."""

    w: Weights
    r: Weights
    bias: Singles | None
    peepholes: Singles | None
    functions: Sequence[Activation]
    clip: np.float32
    input_forget: int


@dataclass(frozen=True, slots=True, eq=False)
class CellState:
    """h and c of a batch, (N, H)."""

    h: Singles
    c: Singles


def run_direction(
    x: Singles,
    lengths: Lengths,
    cell: Cell,
    start: CellState,
    reverse: bool,
    accumulator: Accumulator = EXACT,
) -> tuple[Singles, Singles, Singles]:
    """Y (T, N, H), Y_h and Y_c (N, H) of one direction."""
    steps, batch, _ = x.shape
    x = _reversed(x, lengths) if reverse else x
    longest = int(lengths.max(initial=0))
    hidden = len(cell.r.values)
    projected = _product(x[:longest].reshape(longest * batch, x.shape[2]), cell.w, accumulator)
    z = projected.reshape(longest, batch, GATES, hidden)
    y = np.zeros((steps, batch, hidden), np.float32)
    final = CellState(np.zeros((batch, hidden), np.float32), np.zeros((batch, hidden), np.float32))
    state = start
    for t in range(longest):
        recurrent = _product(state.h, cell.r, accumulator).reshape(batch, GATES, hidden)
        state = _step(np.asarray(z[t] + recurrent), state.c, cell)
        y[t] = np.where((t < lengths)[:, None], state.h, 0)
        state = CellState(y[t], state.c)
        last = lengths == t + 1
        final.h[last], final.c[last] = state.h[last], state.c[last]
    return (_reversed(y, lengths) if reverse else y), final.h, final.c


def _product(x: Singles, weights: Weights, accumulator: Accumulator) -> Singles:
    """float32(sum q_x w) * (x_scale * w_scale[n]), (rows, 4 H)."""
    qparams = dynamic_qparams(OP, x)
    integers = quantize(x, qparams)
    total = integer_matmul(centred(integers, qparams), weights.values)
    if not accumulator.exact:
        change = matmul_correction(integers, weights.integers, accumulator)
        total = total if change is None else np.asarray(total + change)
    return np.asarray(total.astype(np.float32) * np.asarray(qparams.scale * weights.scale))


def _step(z: Singles, c: Singles, cell: Cell) -> CellState:
    """The state after one step; z (N, 4, H): products with X and H."""
    f, g, h = cell.functions
    i = f(_gate(z, 0, cell, c))
    forget = np.asarray(np.float32(1) - i) if cell.input_forget else f(_gate(z, 2, cell, c))
    c = np.asarray(c * forget + i * g(_gate(z, 3, cell, None)))
    o = f(_gate(z, 1, cell, c))
    return CellState(np.asarray(o * h(c)), c)


def _gate(z: Singles, gate: int, cell: Cell, c: Singles | None) -> Singles:
    """The operand of one activation: peephole, then bias, then clip; ONNX Runtime's order."""
    total = z[:, gate]
    if c is not None and cell.peepholes is not None:
        total = np.asarray(total + c * cell.peepholes[gate])
    if cell.bias is not None:
        total = np.asarray(total + cell.bias[gate])
    return np.clip(total, -cell.clip, cell.clip)


def _reversed(x: Singles, lengths: Lengths) -> Singles:
    """Each sequence of x (T, N, ...) backwards, what lies behind its end in place."""
    result = x.copy()
    for n, length in enumerate(lengths):
        result[:length, n] = x[:length, n][::-1]
    return result
