"""The share of a difference from ONNX Runtime that rounding explains, derived for each model.

Replicas of the reference run beside it, in which each number that goes into a float node, and each
that comes out, is moved by an error of the node, up or down at random (docs/why/numerics.md):

    sqrt(n) u |number|        u = 2^-24, sums of n terms, each node anew
    bound = CONFIDENCE sqrt(mean over replicas of (result - reference)^2)

Nodes in bodies of If, Loop and Scan are moved in each step, as those around them are. Integers are
compared, never moved. One that ONNX Runtime rounded to the other side of a tie is explained where
the float ahead of it lies that near to the tie; the reference goes on with ONNX Runtime's integer,
so that every later integer still has to agree. Integers that a kernel keeps to itself (MatMulNBits)
cannot be compared: near a tie they fall to either side in replicas that are moved far enough.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun

from onnxq import reference
from onnxq.core.arrays import Array
from onnxq.ort import facts
from onnxq.ort.facts import Conversion, Rounding
from onnxq.reference import Evaluator

UNIT = 2.0**-24
"""Largest relative error of one rounding to float32."""
LAST_DIGIT = 2 * UNIT
"""Least error of a node that rounds: an ulp, so that it is seen in float32."""
CONFIDENCE = 6.0
WIDE = (np.dtype(np.float32), np.dtype(np.float64))
"""Floats that are moved; what is rounded to float16 is compared as integers are."""

Values = dict[str, Any]
Theirs = dict[str, tuple[str, "Array"]]
"""Name of a value -> (node of ONNX Runtime's graph, its integers)."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A run of the reference that takes ONNX Runtime's integers where rounding explains them.

    Attributes:
        rounding: places of the nodes that round floats, among the evaluator's.
        bounds: of float values behind nodes that round: the furthest that rounding moves one.
        unexplained: the node of ONNX Runtime's graph whose integers rounding does not explain;
            empty: there is none.
        decided: integers that were made of floats which rounding moves.
        near_ties: of these, such as lie so near to a tie that rounding may decide them.
        has_hidden: whether a kernel's bound stands for integers that it may keep to itself.
    """

    outputs: Values
    rounding: frozenset[int]
    bounds: Mapping[str, float]
    unexplained: str
    decided: int
    near_ties: int
    has_hidden: bool


@dataclass(frozen=True, slots=True)
class Moves:
    """How replicas are moved.

    Attributes:
        errors: a number moves by so many errors.
        replicas: runs beside the reference.
    """

    errors: float
    replicas: int


NEAR = Moves(1.0, 3)
FAR = Moves(CONFIDENCE, 8)
"""Moves as far as rounding goes: half of what lies so near to a tie crosses it in a replica."""


def replay(
    evaluator: Evaluator, feeds: Mapping[str, Array], theirs: Theirs, moves: Moves = NEAR
) -> Replayed:
    """Runs the reference and its replicas side by side."""
    return _Replay(evaluator, theirs, moves, [{} for _ in range(moves.replicas)]).run(feeds)


@dataclass(slots=True)
class _Replay:
    evaluator: Evaluator
    theirs: Theirs
    moves: Moves
    moved: list[Values]
    values: Values = field(default_factory=dict)
    bounds: dict[str, float] = field(default_factory=dict)
    unexplained: str = ""
    decided: int = 0
    near_ties: int = 0
    has_hidden: bool = False
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def run(self, feeds: Mapping[str, Array]) -> Replayed:
        self.values = {"": None, **self.evaluator.rt_inits_, **feeds}
        names, rounding = self.evaluator.output_names, set()
        kept, last = set(self.values), self.evaluator.last_readers(names)
        for i, node in enumerate(self.evaluator.rt_nodes_):
            reads = self.evaluator.reads[i]
            if self._step(node, reads):
                rounding.add(i)
            done = [n for n in (*reads, *node.output) if last.get(n, -1) <= i and n not in kept]
            for values in (self.values, *self.moved):
                for name in done:
                    values.pop(name, None)
        outputs = {name: self.values[name] for name in names}
        return Replayed(
            outputs,
            frozenset(rounding),
            self.bounds,
            self.unexplained,
            self.decided,
            self.near_ties,
            self.has_hidden,
        )

    def _step(self, node: OpRun, reads: set[str]) -> bool:
        """Runs one node; whether it rounds."""
        outputs = _run(node, self.values, {})
        error = _error(node, [self.values[name] for name in node.input], outputs)
        reached = any(not own.keys().isdisjoint(reads) for own in self.moved)
        apart = _apart(node, [self.values[name] for name in node.input]) if error else None
        self.has_hidden |= apart is not None
        runs = [self._replica(node, own, error, apart) for own in self.moved if error or reached]
        for slot, (name, y) in enumerate(zip(node.output, outputs, strict=False)):
            if not name:
                continue
            replicas = [outputs[slot] for outputs in runs]
            self.values[name] = y
            if isinstance(y, np.ndarray) and y.dtype in WIDE:
                self._note(name, y, replicas, error)
            elif isinstance(y, np.ndarray):
                self.values[name] = self._shared(node, name, y, outputs, replicas)
        self.values[""] = None
        return error > 0

    def _replica(
        self, node: OpRun, own: Values, error: float, apart: Array | None
    ) -> Sequence[Any]:
        """Outputs of one replica; its inputs and float results are moved by the node's error."""
        if not error:
            return _run(node, self.values, own)
        given = {name: own.get(name, self.values[name]) for name in dict.fromkeys(node.input)}
        moved = own | {n: self._move(x, error) for n, x in given.items()}
        with reference.bodies_run_by(self._in_body):
            outputs = _run(node, self.values, moved)
        return [self._move(y, error, apart) for y in outputs]

    def _in_body(
        self, node: OpRun, inputs: Sequence[Any], extra: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """Outputs of a node in a body, moved as those of the graph around are."""
        outputs = reference.run_node(node, inputs, extra)
        error = _error(node, inputs, outputs)
        if not error:
            return outputs
        apart = _apart(node, inputs)
        self.has_hidden |= apart is not None
        if any(map(_is_float, inputs)):  # not of a branch, whose nodes are moved as they run
            moved = [self._move(x, error) for x in inputs]
            outputs = reference.run_node(node, moved, extra)
        return tuple(self._move(y, error, apart) for y in outputs)

    def _move(self, x: Any, error: float, apart: Array | None = None) -> Any:
        """The floats, each up or down at random; anything else as it is."""
        if not (isinstance(x, np.ndarray) and x.dtype in WIDE):
            return x
        signs = self.moves.errors * (self.random.integers(0, 2, x.shape, np.int8) * 2 - 1)
        with np.errstate(over="ignore", invalid="ignore"):
            if apart is not None and apart.shape == x.shape:
                return np.asarray(x + signs * np.maximum(error * np.abs(x), apart), x.dtype)
            return np.asarray(x * (1 + error * signs), x.dtype)

    def _note(self, name: str, y: Array, replicas: Sequence[Any], error: float) -> None:
        """Keeps the replicas of a float value, and its bound."""
        alike = [other for other in replicas if np.shape(other) == y.shape]
        if not alike or all(np.array_equal(y, other, equal_nan=True) for other in alike):
            return
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite counts as 0
            every = [_finite(np.square(np.subtract(y, other, dtype=np.float64))) for other in alike]
        squares = np.mean(every, axis=0) if self.moves is NEAR else np.max(every, axis=0)
        own = error * float(_finite(np.abs(y)).max(initial=0))  # chance may cancel that in replicas
        reach = CONFIDENCE / self.moves.errors
        self.bounds[name] = max(reach * float(np.sqrt(squares.max(initial=0))), own)
        for kept, other in zip(self.moved, replicas, strict=True):
            kept[name] = other

    def _shared(
        self, node: OpRun, name: str, ours: Array, outputs: Sequence[Any], replicas: Sequence[Any]
    ) -> Array:
        """The integers to go on with: ONNX Runtime's, where they are named and explained."""
        min_and_max = self._min_and_max(node, ours, outputs)
        if min_and_max is not None and ours is outputs[0]:
            self.decided += ours.size
            self.near_ties += int(np.count_nonzero(np.not_equal(*min_and_max)))
        known = self.theirs.get(name)
        if known is None:
            for own, other in zip(self.moved, replicas, strict=False):
                if not np.array_equal(other, ours):
                    own[name] = other
            return ours
        theirs = as_laid_out(known[1], ours)
        if theirs is None or np.array_equal(theirs, ours):
            return ours
        every = np.stack(
            [ours, *(np.asarray(y) for y in min_and_max or replicas if np.shape(y) == ours.shape)]
        )
        low, high = every.min(axis=0), every.max(axis=0)
        if np.all(np.less_equal(low, theirs) & np.less_equal(theirs, high)):
            return theirs
        self.unexplained = self.unexplained or known[0]
        return ours

    def _min_and_max(
        self, node: OpRun, ours: Array, outputs: Sequence[Any]
    ) -> tuple[Array, Array] | None:
        """The lowest and highest integers of floats within the bound; None: rounding moves none."""
        fact = facts.named(node.onnx_node.op_type)
        source = node.input[0] if node.input else ""
        bound = self.bounds.get(source, 0.0)
        if not bound or fact.converts not in (Conversion.TO_INTEGERS, Conversion.TYPES):
            return None
        x = self.values[source]
        if fact.rounding is not Rounding.NONE:
            return _dynamic_min_and_max(x, outputs, ours, bound)
        slot = next(i for i, y in enumerate(outputs) if y is ours)
        low, high = (  # the conversion is monotone
            np.asarray(_run(node, self.values, {source: np.asarray(x + by, x.dtype)})[slot])
            for by in (-bound, bound)
        )
        return low, high


INTEGERS_TOP = 255
"""The last integer of DynamicQuantizeLinear, which makes uint8."""


def _dynamic_min_and_max(
    x: Array, outputs: Sequence[Any], ours: Array, bound: float
) -> tuple[Array, Array]:
    """Ends of DynamicQuantizeLinear: integers round(x / s) + z, and z = round(-min x / s).

    s = (max x - min x) / 255 moves by 2 bound / 255, so that x / s, of up to 255 LSB, moves by
    3 bound / s at most.
    """
    scale = float(outputs[1]) or 1.0
    reach = 3 * bound / scale
    point = -min(float(x.min(initial=0)), 0.0) / scale
    lsb = np.divide(x, scale, dtype=np.float64)
    if ours.shape != x.shape:  # the zero point
        lsb = np.zeros(())
    return (
        np.clip(np.rint(lsb - reach) + np.rint(point - reach), 0, INTEGERS_TOP),
        np.clip(np.rint(lsb + reach) + np.rint(point + reach), 0, INTEGERS_TOP),
    )


def as_laid_out(theirs: Array, ours: Array) -> Array | None:
    """Their array in our layout: as it is, or its channels moved from the last axis to the second.

    None: in neither it has our shape and type.
    """
    if theirs.dtype != ours.dtype:
        return None
    moved = np.moveaxis(theirs, -1, 1) if theirs.ndim > 2 else theirs
    fitting = [x for x in (theirs, moved) if x.shape == ours.shape]
    return min(fitting, key=lambda x: int(np.count_nonzero(x != ours)), default=None)


def _run(node: OpRun, values: Values, own: Values) -> tuple[Any, ...]:
    found = {**values, **own} if node.need_context() else None
    extra = {} if found is None else {"context": found}
    inputs = [own.get(name, values[name]) for name in node.input]
    return reference.run_node(node, inputs, extra)


def _error(node: OpRun, inputs: Sequence[Any], outputs: Sequence[Any]) -> float:
    """Relative error of the node's own sums; 0: it does not round."""
    if not _rounds(node, inputs, outputs):
        return 0.0
    if facts.named(node.onnx_node.op_type).rounding is Rounding.ONCE:
        return LAST_DIGIT
    return max(float(np.sqrt(_terms(inputs, outputs))) * UNIT, LAST_DIGIT)


def _rounds(node: OpRun, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether a node computes floats, and not on a kernel that is exact."""
    exact = facts.named(node.op_type).rounding is Rounding.NONE
    if exact or not any(map(_is_float, outputs)):
        return False
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    if isinstance(node, reference.KernelOp) and node.uses_kernel(arrays):
        return node.adds_floats(arrays) or node.bound(arrays) is not None
    return True


def _apart(node: OpRun, inputs: Sequence[Any]) -> Array | None:
    """How far each number of a kernel's result is moved, where the kernel has a bound; else None.

    Integers that it makes of its inputs hide how these are moved, and what it subtracts from a sum
    is larger than the result: the bound counts both, and is CONFIDENCE times what chance makes.
    """
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    if not (isinstance(node, reference.KernelOp) and node.uses_kernel(arrays)):
        return None
    bound = node.bound(arrays)
    return None if bound is None else np.asarray(bound, np.float64) / CONFIDENCE


def _terms(inputs: Sequence[Any], outputs: Sequence[Any]) -> float:
    """The terms of the longest sums: of a MatMul (M, K) (K, N) -> (M, N) that is K.

    Of a node with one operand: the elements that become one, or an axis (Softmax).
    """
    floats = [x for x in inputs if _is_float(x) and x.ndim]
    sizes = [x.size for x in floats if x.ndim > 1]
    result = max((np.size(y) for y in outputs if _is_float(y)), default=1) or 1
    longest = max((max(x.shape) for x in floats), default=1)
    if len(sizes) > 1:
        return max(float(np.sqrt(float(sizes[0]) * sizes[1] / result)), 1.0)
    return float(max(longest, max(sizes, default=1) / result))


def _is_float(x: object) -> bool:
    return isinstance(x, np.ndarray) and "float" in x.dtype.name


def _finite(x: Array) -> npt.NDArray[np.float64]:
    return np.where(np.isfinite(x), x, 0.0)
