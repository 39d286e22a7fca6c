"""Every way in which ONNX Runtime gets a bias, beside weights and inputs that leave it no scale.

ONNX Runtime adds a bias as int32 at x_scale * w_scale: one that is stored so, or a float one that
it rounds when it loads the model. A channel of zeros, a tiny one, an input that is always 0 or a
huge bias make that scale small, and the bias leave int32.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

import onnxq
from onnxq.ort import runtime
from scripts._peer import quantize_static
from tests import this_machine
from tests.examples import model, save, weights
from tests.this_machine import TARGET, adds_exactly

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import onnx
    from _pytest.mark import ParameterSet

    from onnxq.core.arrays import Array, Singles

make = helper.make_node
BATCH = 4
CHANNELS = 9
LUCK_DB = 10.0
"""Where the output is the bias, nine integers are all there is to round.

The noise of two such roundings are sums of nine squares: one in 10,000 pairs differs by more. A
bias that wraps costs 20 dB and more.
"""


@dataclass(frozen=True)
class Way:
    """A layer with a bias, of 6 channels in and 9 out.

    Attributes:
        name: for people.
        nodes: from "x" to "h", of weight "w" and bias "b".
        weight: shape of the weight.
        axis: of its output channels.
        sizes: of x behind the batch; "T": a size that is open where the batch is.
        reader: nodes from "r", behind the layer and a Relu, to "y", with the weight "v".
        weight_of_reader: shape of "v".
        extra: further constants.
    """

    name: str
    nodes: Sequence[onnx.NodeProto]
    weight: tuple[int, ...]
    axis: int
    sizes: tuple[int | str, ...]
    reader: onnx.NodeProto
    weight_of_reader: tuple[int, ...]
    extra: Mapping[str, Array]

    def model(self, weight: Singles, bias: Singles, *, static: bool) -> onnx.ModelProto:
        """The layer, a Relu, and a reader of its integers."""
        nodes = [*self.nodes, make("Relu", ["h"], ["r"]), self.reader]
        constants = {"w": weight, "b": bias, "v": weights(9, *self.weight_of_reader), **self.extra}
        sizes = [5 if size == "T" and static else size for size in self.sizes]
        return model(nodes, constants, {"x": [BATCH if static else "N", *sizes]})

    @property
    def rounds_at_load(self) -> bool:
        """Whether the file has the bias in float: that of an Add."""
        return any(node.op_type == "Add" for node in self.nodes)

    def samples(self, seed: int) -> Singles:
        return weights(seed, BATCH, *(5 if size == "T" else int(size) for size in self.sizes)) * 3


def conv(name: str, op_type: str, weight: tuple[int, ...], axis: int, group: int = 1) -> Way:
    nodes = [make(op_type, ["x", "w", "b"], ["h"], group=group)]
    reader = make("Conv", ["r", "v"], ["y"])
    return Way(name, nodes, weight, axis, (6, 5, 5), reader, (4, CHANNELS, 1, 1), {})


def linear(
    name: str,
    nodes: list[onnx.NodeProto],
    extra: Mapping[str, Array] | None = None,
    *,
    rank: int = 2,
    transposed: bool = False,
) -> Way:
    weight = (CHANNELS, 6) if transposed else (6, CHANNELS)
    sizes = ("T", 6) if rank == 3 else (6,)
    reader = make("MatMul", ["r", "v"], ["y"])
    return Way(name, nodes, weight, int(not transposed), sizes, reader, (CHANNELS, 4), extra or {})


GEMM = make("Gemm", ["x", "w", "b"], ["h"])
MATMUL_ADD = [make("MatMul", ["x", "w"], ["m"]), make("Add", ["m", "b"], ["h"])]
NORM = {
    "scale": np.linspace(0.5, 2, CHANNELS, dtype=np.float32),
    "mean": np.linspace(-1, 1, CHANNELS, dtype=np.float32),
    "variance": np.linspace(0.1, 3, CHANNELS, dtype=np.float32),
}
BATCH_NORM = make("BatchNormalization", ["m", "scale", "b", "mean", "variance"], ["h"])
ONE = {"one": np.ones(1, np.float32), "shift": np.zeros(1, np.float32)}
APART, TOGETHER = {"apart": np.array([0, 0, 1])}, {"together": np.array([0, -1])}
ONE_ELEMENT = [  # what the MatMul reads is 0, whatever x is
    make("Reshape", ["x", "apart"], ["one_each"]),
    make("LayerNormalization", ["one_each", "one", "shift"], ["normal"]),
    make("Reshape", ["normal", "together"], ["n"]),
]
WAYS = (
    conv("Conv", "Conv", (CHANNELS, 6, 3, 3), 0),
    conv("Conv of groups", "Conv", (CHANNELS, 2, 3, 3), 0, group=3),
    conv("ConvTranspose", "ConvTranspose", (6, CHANNELS, 2, 2), 1),
    linear("Gemm", [GEMM]),
    linear("Gemm of B^T", [make("Gemm", ["x", "w", "b"], ["h"], transB=1)], transposed=True),
    linear("MatMul + Add", MATMUL_ADD),
    linear("MatMul + Add of batches", MATMUL_ADD, rank=3),
    Way(
        "Conv + BatchNormalization",
        [make("Conv", ["x", "w"], ["m"]), BATCH_NORM],
        (CHANNELS, 6, 3, 3),
        0,
        (6, 5, 5),
        make("Conv", ["r", "v"], ["y"]),
        (4, CHANNELS, 1, 1),
        NORM,
    ),
    linear("Gemm + BatchNormalization", [make("Gemm", ["x", "w"], ["m"]), BATCH_NORM], NORM),
    linear(
        "LayerNormalization of one element",
        [*ONE_ELEMENT, make("MatMul", ["n", "w"], ["m"]), make("Add", ["b", "m"], ["h"])],
        {**ONE, **APART, **TOGETHER},
    ),
)


@dataclass(frozen=True)
class Case:
    """The cases that leave the bias no scale.

    Attributes:
        name: for people.
        factor: of the weights in every third output channel, or in all of them.
        everywhere: in all of them.
        bias: factor of the bias in every third channel.
        x: factor of the input.
        slack_db: of the noise that two quantizers may differ by.
    """

    name: str
    factor: float = 1.0
    everywhere: bool = False
    bias: float = 1.0
    x: float = 1.0
    slack_db: float = LUCK_DB

    def weight_and_bias(self, way: Way) -> tuple[Singles, Singles]:
        some = np.zeros(CHANNELS, bool)
        some[::3] = True
        bias = weights(2, CHANNELS) + np.float32(0.5)
        of_weight = np.where(some | self.everywhere, self.factor, 1).astype(np.float32)
        shape = [-1 if i == way.axis else 1 for i in range(len(way.weight))]
        weight = weights(1, *way.weight) * of_weight.reshape(shape)
        return weight, np.where(some, bias * np.float32(self.bias), bias).astype(np.float32)


CASES = (
    Case("pruned", factor=0, slack_db=0.5),
    Case("tiny", factor=1e-30, slack_db=0.5),
    Case("denormal", factor=1e-42, slack_db=0.5),
    Case("all zero", factor=0, everywhere=True),
    Case("all tiny", factor=1e-20, everywhere=True),
    Case("dead input", x=0),
    Case("tiny input", x=1e-30, factor=1e-20),
    Case("huge bias", bias=1e6),
    Case("huge bias, pruned", factor=0, bias=1e20),
)


def sqnr_db(y: Singles, wanted: Singles) -> float:
    noise, signal = (float(np.square(a.astype(np.float64)).sum()) for a in (y - wanted, wanted))
    return float("inf") if not noise else 10 * float(np.log10(signal / noise))


def run(model: ir.Model, x: Singles) -> Singles:
    with runtime.open_session(model, threads=1) as session:
        return np.asarray(session.run({"x": x})[0], np.float32)


USUAL = ("pruned", "tiny", "all zero", "dead input", "huge bias", "huge bias, pruned")


def combinations() -> list[ParameterSet]:
    """(way, case, static); by day all of a float bias, whose shapes matter, and more at night."""
    found = []
    for way, case, static in itertools.product(WAYS, CASES, (True, False)):
        by_day = way.rounds_at_load or (case.name in USUAL and not static)
        shape = "static" if static else "dynamic"
        marks = [] if by_day else [pytest.mark.nightly]
        name = f"{way.name}, {case.name}, {shape}"
        found.append(pytest.param(way, case, static, marks=marks, id=name))
    return found


@pytest.mark.parametrize(("way", "case", "static"), combinations())
def test_the_bias_is_what_the_float_model_adds(way: Way, case: Case, static: bool) -> None:
    weight, bias = case.weight_and_bias(way)
    source = ir.from_proto(way.model(weight, bias, static=static))
    x = way.samples(3) * np.float32(case.x)
    prepared = onnxq.prepare(source, target=TARGET)
    made = onnxq.plan(prepared, onnxq.calibrate(prepared, [{"x": x}]))
    qdq = onnxq.rewrite(prepared, made)
    y, wanted = run(qdq, x), run(source, x)
    np.testing.assert_array_equal(run(onnxq.rewrite(prepared, made, format="qoperator"), x), y)
    onnxq.cross_check(qdq, [{"x": x}]).check()
    (got,) = this_machine.evaluator(qdq).run(None, {"x": x})
    np.testing.assert_allclose(got, y, rtol=1e-6, atol=0)
    # a step of 8 bits is 48 dB below the range, and a sum of nine may be small beside its terms
    assert sqnr_db(y, wanted) > 25


@adds_exactly
@pytest.mark.oracle
@pytest.mark.nightly
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_it_is_as_near_to_float_as_quantize_static_whose_file_is_predicted_too(
    way: Way, case: Case, static: bool, tmp_path: Path
) -> None:
    weight, bias = case.weight_and_bias(way)
    source = way.model(weight, bias, static=static)
    batches: list[dict[str, Array]] = [
        {"x": way.samples(seed) * np.float32(case.x)} for seed in range(10, 18)
    ]
    path, theirs = save(source, tmp_path / "f.onnx"), tmp_path / "q.onnx"
    quantize_static(path, theirs, batches)
    ours = onnxq.quantize(ir.from_proto(source), batches, target="x86-vnni")
    x = way.samples(3) * np.float32(case.x)
    wanted = run(ir.from_proto(source), x)
    foreign = ir.load(theirs)
    onnxq.cross_check(foreign, [{"x": x}]).check()
    for machine in onnxq.predict(ours, [{"x": x}], "x86-vnni").machines:
        assert not any(output.differing for output in machine.outputs)
    reached = sqnr_db(run(foreign, x), wanted)
    assert sqnr_db(run(ours, x), wanted) >= reached - case.slack_db
