"""Local errors of tensors: what a node adds, when both models give it the same inputs.

    T_f     the float node on inputs that are quantized and dequantized
    T_q     the quantized node on the very same inputs
    local   T_q - T_f;  accumulated: the rest of what T differs by in a whole run

Inputs are the float model's own tensors, so that no error is carried from node to node. The powers
of local and accumulated error add up to that of the whole where the two are uncorrelated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import catalog
from onnxq.checking.side_by_side import CHANNEL_AXIS, Pair, Sums
from onnxq.checking.sides import Sides
from onnxq.checking.visible import CutModel, cut_at, cuttable
from onnxq.core.arrays import Array, Reals
from onnxq.graph.walk import walk
from onnxq.observers.tensor_noise import accumulated_db
from onnxq.operator.nodes import is_constant
from onnxq.ort import runtime
from onnxq.ort.expose import expose
from onnxq.ort.runtime import Session
from onnxq.page.content import Histogram
from onnxq.qparams import QParams
from onnxq.samples import as_taken, input_specs
from onnxq.samples.inputs import Batch
from onnxq.samples.state import State

BINS = 72
"""Bars of a histogram."""


@dataclass(slots=True)
class TensorErrors:
    """Errors of a tensor on a few batches.

    Attributes:
        local: where the node's inputs are given; None: they cannot be.
        counts: of its float values, in bins between `low` and `high`.
        maxima: largest absolute value of each channel; None: nothing tells its channels.
    """

    whole: Sums = field(default_factory=Sums)
    local: Sums | None = None
    low: float = 0.0
    high: float = 0.0
    counts: npt.NDArray[np.int64] | None = None
    maxima: Reals | None = None

    @property
    def local_db(self) -> float | None:
        """SQNR of the local error; None: not known, as where T_f is not finite."""
        local = self._local_db
        return None if local is None or math.isnan(local) else local

    @property
    def _local_db(self) -> float | None:
        return None if self.local is None else self.local.compared.sqnr_db

    @property
    def accumulated_db(self) -> float | None:
        """SQNR of what came in: the power that the local error leaves of the whole one.

        -inf: inputs that are rounded take the float node itself to infinity or NaN, as a Log whose
        integers reach 0.
        """
        local, whole = self._local_db, self.whole.compared.sqnr_db
        if local is None or math.isnan(whole):
            return None
        return -math.inf if math.isnan(local) else accumulated_db(whole, local)

    @property
    def histogram(self) -> Histogram | None:
        """Histogram of the float values; None: none were seen."""
        if self.counts is None or not self.counts.any():
            return None
        return Histogram(self.low, self.high, tuple(map(int, self.counts)))


def errors_of(
    sides: Sides, batches: Sequence[Batch], feedback: Mapping[str, str]
) -> dict[str, TensorErrors]:
    """Name of each tensor and output -> its errors on these batches."""
    found = {pair.name: TensorErrors() for pair in sides.pairs}
    with ExitStack() as stack:
        run = _Run(sides, feedback, stack)
        for batch in batches:
            run.add(batch, found)
    return found


class _Run:
    """Four sessions: both models as they are, and both cut at their integers."""

    def __init__(self, sides: Sides, feedback: Mapping[str, str], stack: ExitStack) -> None:
        self._sides, self._stack = sides, stack
        ours = expose(sides.source, [p.source for p in sides.tensors])
        theirs = expose(sides.target, [p.target for p in sides.tensors])
        self._names = [
            *((p, ours.outputs[p.source], theirs.outputs[p.target]) for p in sides.tensors),
            *((p, p.source, p.target) for p in sides.outputs),
        ]
        self._ours, self._theirs = self._open(ours.model), self._open(theirs.model)
        self._states = [
            State(input_specs(sides.source, feedback.values()), feedback) for _ in range(2)
        ]
        _, *both = zip(*self._names, strict=True)
        self._wanted = [[*names, *feedback] for names in both]
        self._takes = input_specs(sides.target)
        self._axes = channel_axes(sides.source)
        self._cut: _Cut | None = None
        self._was_cut = False

    def _open(self, model: ir.Model) -> Session:
        return self._stack.enter_context(runtime.open_session(model, threads=1))

    def add(self, batch: Batch, found: Mapping[str, TensorErrors]) -> None:
        """Adds the errors of a batch."""
        feeds = [state.feeds(batch) for state in self._states]
        feeds[1] = as_taken(feeds[1], self._takes)
        x = self._ours.run_named(feeds[0], self._wanted[0])
        y = self._theirs.run_named(feeds[1], self._wanted[1])
        for state, got in zip(self._states, (x, y), strict=True):
            state.keep(got)
        for pair, name_x, name_y in self._names:
            one = found[pair.name]
            one.whole.add(pair.compared(x[name_x], y[name_y]))
            _count(one, x[name_x], pair, self._axes.get(pair.source))
        if not self._was_cut:
            self._was_cut, self._cut = True, self._cut_open(x, y)
        if self._cut is not None:
            self._cut.add(feeds, x, y, found)

    def _cut_open(self, x: Mapping[str, Array], y: Mapping[str, Array]) -> _Cut | None:
        """Both models cut at what has the same shape in both; None: nothing has."""
        ours, theirs = cuttable(self._sides.source), cuttable(self._sides.target)
        at = [
            (pair, name_x, name_y)
            for pair, name_x, name_y in self._names
            if pair.qparams is not None
            and pair.source in ours
            and pair.target in theirs
            and _fits(pair, x[name_x], y[name_y])
        ]
        if not at:
            return None
        models = (
            cut_at(self._sides.source, {p.source: x[name] for p, name, _ in at}),
            cut_at(self._sides.target, {p.target: y[name] for p, _, name in at}),
        )
        outputs = [p for p in self._sides.outputs if p.source in ours and p.target in theirs]
        sessions = (self._open(models[0].model), self._open(models[1].model))
        return _Cut(at, outputs, models, sessions)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Both models, cut at the same tensors.

    Attributes:
        at: pairs, with the names of both values in whole runs.
        outputs: pairs of outputs.
    """

    at: list[tuple[Pair, str, str]]
    outputs: list[Pair]
    models: tuple[CutModel, CutModel]
    sessions: tuple[Session, Session]

    def add(
        self,
        feeds: Sequence[Mapping[str, Array]],
        x: Mapping[str, Array],
        y: Mapping[str, Array],
        found: Mapping[str, TensorErrors],
    ) -> None:
        """Adds the local errors of a batch, whose whole runs gave x and y."""
        ours, theirs = dict(feeds[0]), dict(feeds[1])
        for pair, name_x, name_y in self.at:
            integers, reals = _rounded(pair, x[name_x], y[name_y])
            ours[self.models[0].given[pair.source]] = reals
            theirs[self.models[1].given[pair.target]] = integers
        floats = self._run(0, ours, [*(p.source for p, _, _ in self.at)])
        integers_of = self._run(1, theirs, [*(p.target for p, _, _ in self.at)])
        for pair in (*(p for p, _, _ in self.at), *self.outputs):
            one = found[pair.name]
            one.local = one.local or Sums()
            one.local.add(pair.compared(floats[pair.source], integers_of[pair.target]))

    def _run(
        self, side: int, feeds: Mapping[str, Array], tensors: Sequence[str]
    ) -> dict[str, Array]:
        names = {tensor: self.models[side].outputs[tensor] for tensor in tensors}
        outputs = [p.target if side else p.source for p in self.outputs]
        names |= {output: output for output in outputs}
        return self.sessions[side].run_named(feeds, names)


def _fits(pair: Pair, x: Array, y: Array) -> bool:
    if pair.channels is not None and y.ndim > CHANNEL_AXIS:
        y = y[:, : pair.channels]
    return x.shape == y.shape


def _rounded(pair: Pair, x: Array, y: Array) -> tuple[Array, Array]:
    """(integers of float values, in y's shape; the reals that they stand for, in x's)."""
    integers, reals = pair.rounded(x)
    assert pair.qparams is not None
    if integers.shape != y.shape:  # channels of zeros behind
        padded = np.full(y.shape, int(pair.qparams.zero_point), integers.dtype)
        padded[:, : integers.shape[CHANNEL_AXIS]] = integers
        integers = padded
    return integers.astype(y.dtype, copy=False), reals


def _count(one: TensorErrors, x: Array, pair: Pair, axis: int | None) -> None:
    """Counts float values in bins; the first batch and the integers' range say where these lie."""
    if x.dtype.kind != "f" or not x.size:
        return
    carried = np.multiply(x, pair.channel_scale_of(x), dtype=np.float64)
    values = carried[np.isfinite(carried)]
    if not values.size:
        return
    if one.counts is None:
        one.low, one.high = _min_and_max(values, pair)
        one.counts = np.zeros(BINS, np.int64)
    if axis is not None and x.ndim > 1 and values.size == x.size:
        found = channel_maxima(carried, axis)
        one.maxima = found if one.maxima is None else np.maximum(one.maxima, found)
    inside = np.clip(values, one.low, one.high)
    one.counts += np.histogram(inside, BINS, (one.low, one.high))[0].astype(np.int64)


def _min_and_max(values: Reals, pair: Pair) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    p = pair.qparams
    if p is not None:
        zero, scale = int(p.zero_point), float(p.scale)
        low = min(low, (p.dtype.qmin - zero) * scale)
        high = max(high, (p.dtype.qmax - zero) * scale)
    if low == high:
        room = abs(low) * 0.1 or 1.0
        return low - room, high + room
    return low, high


# --- Largest values of the channels of activations beside the range that they share


MOST_HOPS = 3
"""Nodes between a tensor and the layer that tells which of its axes are channels."""


def channel_axes(source: ir.Model) -> dict[str, int]:
    """Name of each tensor near a layer with weights -> axis of its channels."""
    found: dict[str, int] = {}
    for node, _ in walk(source.graph):
        rule = catalog.rule_of(node)
        if rule is None or not rule.pair_axes or not is_constant(node, 1):
            continue
        axis = 1 if len(rule.pair_axes) > 1 else -1
        turned = node.attributes.get("transA")
        transposed = axis == -1 and turned is not None and turned.as_int() == 1
        for value in _back(node.inputs[0], MOST_HOPS):
            found.setdefault(str(value.name), 0 if transposed else axis)
        for value in _on(node.outputs[0], MOST_HOPS):
            found.setdefault(str(value.name), axis)
    return found


def channel_maxima(values: Reals, axis: int) -> Reals:
    """Largest absolute value of each channel."""
    found: Reals = np.abs(np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)).max(1)
    return found


def median_share(maxima: Reals, qparams: QParams) -> float | None:
    """Share of the range that the median channel takes; None: fewer than two have a value.

    median over channels of max |T| / max |what the integers reach|, at most 1
    """
    seen = maxima[maxima > 0]
    if len(seen) < 2:
        return None
    zero, scale, dtype = int(qparams.zero_point), float(qparams.scale), qparams.dtype
    whole = max(dtype.qmax - zero, zero - dtype.qmin) * scale
    return min(float(np.median(seen)) / whole, 1.0)


def _back(value: ir.Value | None, hops: int) -> Iterator[ir.Value]:
    """The value, and what it was made of by nodes that leave channels where they are."""
    while value is not None:
        yield value
        node = value.producer()
        if node is None or hops == 0 or not _keeps_channels(node):
            return
        value, hops = node.inputs[0], hops - 1


def _on(value: ir.Value, hops: int) -> Iterator[ir.Value]:
    """The value, and what nodes that leave channels where they are make of it."""
    yield value
    if hops:
        for node in value.consumers():
            if _keeps_channels(node):
                yield from _on(node.outputs[0], hops - 1)


def _keeps_channels(node: ir.Node) -> bool:
    """Whether it neither moves data nor mixes channels, as a Relu or a pool of windows."""
    rule = catalog.rule_of(node)
    if rule is None or rule.pair_axes or catalog.moves_data(node):
        return False
    read, given = node.inputs[0], node.outputs[0]
    return read is not None and _rank(read) == _rank(given) is not None


def _rank(value: ir.Value) -> int | None:
    return None if value.shape is None else value.shape.rank()
