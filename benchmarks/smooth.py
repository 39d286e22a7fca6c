"""The most that smoothing can give the encoder with outliers: errors of its layers, apart.

    python -m benchmarks smooth   # a minute

The encoder is that of benchmarks/defaults.py. All linear layers are rounded to 8 bits as
quantization does, everything else is float: weights with a scale per channel of the result,
activations with one scale and offset for the whole tensor, from the extremes of the calibration.
Weights alone and activations alone tell how much of the error each of them makes: their noises add.

`smooth` makes the noise of activations less, by factors of the channels that weights take over:

    s[j] = max|X[:, j]|^a / max|W[j, :]|^(1 - a)

Rows: exponents a, the same for every layer. dB at the output on the test samples; behind the
slash, without the part of the error that is the same for all of them, which `bias` takes away.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import Row, Table
from scripts._architectures import Size
from scripts._defaults import SUBJECTS
from scripts._tables import sqnr_db
from scripts._timing import session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    Array = npt.NDArray[np.floating]
    Batch = Mapping[str, npt.NDArray[np.generic]]

LINEAR_OPS = ("MatMul", "Gemm")
EXPONENTS = (0.4, 0.5, 0.6, 0.7, 0.8)
BOTH = "{0[0]:.2f} / {0[1]:.2f}"
EXPONENT_NOISE = Table(
    "exponents",
    {"exponent": ".1f", "weights alone": BOTH, "activations alone": BOTH, "both": BOTH},
)
NEEDED = Table(
    "needed",
    {
        **{"both now": ".1f", "activations: needed": ".1f", "activations: best": ".1f"},
        **{"gain with bias": ".1f"},
    },
    keys=0,
)
WANTED_DB = 3.0
"""Gain that was asked for of `smooth` on this model."""
LEAST = 1e-6
"""Extreme of a channel of zeros, which has no factor."""


@dataclass(frozen=True)
class Rounded:
    """Parts of layers that are rounded.

    Attributes:
        weights: whether weights are.
        activations: whether activations are.
        exponent: of the factors; None: there are none.
    """

    weights: bool
    activations: bool
    exponent: float | None = None


@dataclass(frozen=True)
class Noise:
    """Decibels at the output.

    Attributes:
        db: as it is.
        varying_db: without the error that all samples have alike.
    """

    db: float
    varying_db: float

    @property
    def cell(self) -> list[float]:
        """Both, as the table has them."""
        return [self.db, self.varying_db]


@dataclass(frozen=True, eq=False)
class Encoder:
    """The encoder, with what its layers read.

    Attributes:
        model: in float.
        extremes: name of an activation -> (2, channels), the least and the largest.
        test: samples.
        wanted: its outputs on them.
    """

    model: ir.Model
    extremes: Mapping[str, Array]
    test: Sequence[Batch]
    wanted: Array

    @classmethod
    def of(cls, model: ir.Model, calibration: Sequence[Batch], test: Sequence[Batch]) -> Encoder:
        """The encoder with the extremes of its calibration."""
        names = list(dict.fromkeys(read_of(node) for node in linear_layers(model)))
        shown = model.clone()
        values = {v.name: v for node in shown.graph for v in node.outputs}
        del shown.graph.outputs[:]
        shown.graph.outputs.extend(values[name] for name in names)
        extremes: dict[str, Array] = {}
        for batch in calibration:
            for name, x in zip(names, session(shown).run(None, dict(batch)), strict=True):
                rows = x.reshape(-1, x.shape[-1])
                found = np.stack([rows.min(0), rows.max(0)])
                known = extremes.get(name, found)
                extremes[name] = np.stack(
                    [np.minimum(known[0], found[0]), np.maximum(known[1], found[1])]
                )
        return cls(model, extremes, test, outputs(model, test))

    def noise(self, rounded: Rounded) -> Noise:
        """Noise of the model in which these parts are rounded."""
        model = self.model.clone()
        read: dict[str, list[ir.Node]] = {}
        for node in linear_layers(model):
            read.setdefault(read_of(node), []).append(node)
        for name, nodes in read.items():
            factors = self._factors(name, nodes, rounded.exponent)
            for node in nodes:
                exact: Array = weight_of(node) * factors[:, None]
                weight = as_written(node, as_integers(exact) if rounded.weights else exact)
                node.replace_input_with(1, added(model, f"{node.name}_weight", weight))
            read_by(model, nodes, divided(model, nodes, factors))
            if rounded.activations:
                read_by(model, nodes, integers(model, nodes, self.extremes[name] / factors))
        got = outputs(model, self.test)
        error = got - self.wanted
        share = math.sqrt(len(error) / (len(error) - 1))  # the mean of so few has some of the rest
        varying = self.wanted + (error - error.mean(0)) * share
        return Noise(sqnr_db(self.wanted, got), sqnr_db(self.wanted, varying))

    def _factors(self, name: str, nodes: Sequence[ir.Node], exponent: float | None) -> Array:
        """(channels,): factors of the weights' rows, their geometric mean 1."""
        largest = np.maximum(np.abs(self.extremes[name]).max(0), LEAST)
        if exponent is None:
            return np.ones_like(largest)
        rows = np.max([np.abs(weight_of(node)).max(1) for node in nodes], axis=0)
        found = largest**exponent / np.maximum(rows, LEAST) ** (1 - exponent)
        return np.asarray(found / np.exp(np.log(found).mean()), np.float32)


def linear_layers(model: ir.Model) -> list[ir.Node]:
    """Linear layers, in graph order."""
    return [
        node
        for node in model.graph
        if node.op_type in LINEAR_OPS and node.inputs[1] is not None and node.inputs[1].const_value
    ]


def read_of(node: ir.Node) -> str:
    """Name of the activation."""
    value = node.inputs[0]
    assert value is not None
    return str(value.name)


def is_transposed(node: ir.Node) -> bool:
    """Whether its weight is written as (results, channels)."""
    return "transB" in node.attributes and node.attributes["transB"].as_int() == 1


def weight_of(node: ir.Node) -> Array:
    """(channels, results)."""
    value = node.inputs[1]
    assert value is not None
    assert value.const_value is not None
    array = value.const_value.numpy()
    return np.asarray(array.T if is_transposed(node) else array)


def as_written(node: ir.Node, weight: Array) -> Array:
    """The weight as the node wants it."""
    return np.ascontiguousarray(weight.T if is_transposed(node) else weight)


def as_integers(weight: Array) -> Array:
    """The weight rounded to 8 bits, a scale for each column."""
    scale = np.maximum(np.abs(weight).max(0), LEAST) / 127
    return np.asarray(np.round(weight / scale) * scale, np.float32)


def divided(model: ir.Model, nodes: Sequence[ir.Node], factors: Array) -> list[ir.Node]:
    """A node that divides what the nodes read by the factors."""
    value = nodes[0].inputs[0]
    assert value is not None
    return [ir.Node("", "Div", [value, added(model, f"{value.name}_factors", factors)])]


def integers(model: ir.Model, nodes: Sequence[ir.Node], extremes: Array) -> list[ir.Node]:
    """Nodes that round what the nodes read to 8 bits, with one scale."""
    value = nodes[0].inputs[0]
    assert value is not None
    low, high = min(0.0, float(extremes[0].min())), max(0.0, float(extremes[1].max()))
    scale = np.array((high - low) / 255, np.float32)
    name = f"{nodes[0].name}_read"
    qparams = [
        added(model, f"{name}_scale", scale),
        added(model, f"{name}_zero_point", np.array(round(-low / float(scale)), np.uint8)),
    ]
    rounding = ir.Node("", "QuantizeLinear", [value, *qparams])
    return [rounding, ir.Node("", "DequantizeLinear", [rounding.outputs[0], *qparams])]


def read_by(model: ir.Model, nodes: Sequence[ir.Node], chain: Sequence[ir.Node]) -> None:
    """Puts a chain ahead of the nodes, which read what it gives."""
    model.graph.insert_before(nodes[0], chain)
    for node in nodes:
        node.replace_input_with(0, chain[-1].outputs[0])


def added(model: ir.Model, name: str, array: npt.NDArray[np.generic]) -> ir.Value:
    """A new constant of the model."""
    found = ir.tensor(array, name=name)
    shape, dtype = ir.Shape(array.shape), ir.TensorType(found.dtype)
    value = ir.Value(name=name, shape=shape, type=dtype, const_value=found)
    model.graph.initializers.add(value)
    return value


def outputs(model: ir.Model, batches: Sequence[Batch]) -> Array:
    """The first output on all samples, row by row."""
    run = session(model)
    found = [run.run(None, dict(batch))[0] for batch in batches]
    return np.concatenate([x.reshape(len(x), -1) for x in found])


@benchmark(EXPONENT_NOISE, NEEDED, needs=("torch",))
def measure() -> Iterator[Row]:
    """Noises by exponent; then what WANTED_DB more would ask for, and the best exponent gives."""
    with tempfile.TemporaryDirectory() as folder:
        case = SUBJECTS["sentence_encoder"].make(Size.REAL, Path(folder))
        model = onnxq.prepare(case.model).model
        encoder = Encoder.of(model, list(case.calibration), list(case.test))
    ways = ((True, False), (False, True), (True, True))
    found = {}
    for exponent in (None, *EXPONENTS):
        found[exponent] = [encoder.noise(Rounded(*way, exponent)) for way in ways]
        yield EXPONENT_NOISE.row(exponent or "none", *(each.cell for each in found[exponent]))
    weights, _, both = (noise.db for noise in found[None])  # noises add
    left = 10 ** (-(both + WANTED_DB) / 10) - 10 ** (-weights / 10)
    needed = -10 * math.log10(left) if left > 0 else math.inf
    best = max(row[1].db for row in found.values())
    gained = max(row[2].varying_db for row in found.values()) - found[None][2].varying_db
    yield NEEDED.row(both, needed, best, gained)
