from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.graph.sizes import sizes_of
from onnxq.operator import Precision
from onnxq.times import Change, Costs, Timing, Work
from onnxq.times.time_model import (
    FLOATS,
    Layout,
    PredictedTime,
    TensorState,
    changes_between,
    predicted,
    walked,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.core.arrays import Array
    from onnxq.graph.sizes import Sizes

FLOAT, INTEGER, FLOAT_RESULT = Precision.FLOAT, Precision.INT8, Precision.INT8_FLOAT_OUTPUT
HEAD = '<ir_version: 10, opset_import: ["" : 20]>\n'
NS = {
    ("Conv", "pointwise", FLOAT): 1000.0,
    ("Conv", "pointwise", INTEGER): 300.0,
    ("Elu", "", FLOAT): 50.0,
    ("MatMul", "", FLOAT): 2000.0,
    ("MatMul", "", FLOAT_RESULT): 500.0,
    ("Add", "", FLOAT): 40.0,
    **{(change.value, "change", FLOAT): 10.0**-number for number, change in enumerate(Change)},
}
"""One row of each kind: every size takes as long, and a sum of changes tells which they were."""
QUANTIZE, DEQUANTIZE, _, LAST, FIRST, BLOCKED, UNBLOCKED = (10.0**-n for n in range(7))
COSTS = Costs(
    *("x86-vnni", "", "", "", "1", "", ""),
    tuple(
        Timing(Work(operator, kind, 8, 8, 8, 8), form, ns)
        for (operator, kind, form), ns in NS.items()
    ),
)
IMAGE = {"x": (1, 32, 8, 8)}
W = np.ones((32, 32, 1, 1), np.float32)


@pytest.fixture(autouse=True)
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a kind is that of its one row, whatever the size, and below 1 ns too."""

    def ns(costs: Costs, work: Work, form: Precision) -> object:
        del costs
        from onnxq.times import Estimate

        found = NS.get((work.operator, work.kind, form))
        return None if found is None else Estimate(found, 0.1)

    monkeypatch.setattr(Costs, "node", ns)


def predict(
    net: ir.Model, forms: Mapping[str, Precision], inputs: Mapping[str, Sizes], costs: Costs
) -> PredictedTime:
    return predicted(net, walked(net, forms, sizes_of(net, inputs), costs), costs)


def model(text: str, **weights: Array) -> ir.Model:
    proto = onnx.parser.parse_model(HEAD + text)
    for name, array in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    made = ir.from_proto(proto)
    for number, node in enumerate(made.graph):
        node.name = f"n{number}"
    return made


CONVS = "g (float[N,32,8,8] x) => (float[] y) { a = Conv(x, w) b = %s y = Conv(b, w) }"


def test_a_float_network_changes_its_layout_at_its_ends() -> None:
    found = predict(model(CONVS % "Relu(a)", w=W), {}, IMAGE, COSTS)
    assert found.nodes == {"n0": 1000, "n1": 0, "n2": 1000}  # a Conv computes the Relu
    assert found.changes == {"x": BLOCKED, "y": UNBLOCKED}
    assert found.ns == 2000 + BLOCKED + UNBLOCKED


def test_an_integer_network_converts_at_its_ends() -> None:
    forms = {"n0": INTEGER, "n1": INTEGER, "n2": INTEGER}
    found = predict(model(CONVS % "Relu(a)", w=W), forms, IMAGE, COSTS)
    assert found.nodes == {"n0": 300, "n1": 0, "n2": 300}
    assert found.changes == {"x": QUANTIZE + LAST, "y": DEQUANTIZE + FIRST}


def test_a_float_node_between_integer_ones_has_conversions_on_both_sides() -> None:
    forms = {"n0": INTEGER, "n2": INTEGER}
    found = predict(model(CONVS % "Elu(a)", w=W), forms, IMAGE, COSTS)
    assert found.changes["a"] == DEQUANTIZE + FIRST
    assert found.changes["b"] == QUANTIZE + LAST


def test_a_node_without_integer_kernel_computes_between_its_own_conversions() -> None:
    forms = dict.fromkeys(("n0", "n1", "n2"), INTEGER)
    found = predict(model(CONVS % "Elu(a)", w=W), forms, IMAGE, COSTS)
    assert found.nodes["n1"] == 50 + QUANTIZE + DEQUANTIZE
    assert set(found.changes) == {"x", "y"}  # channels last, as its neighbours


def test_a_matmul_with_float_result_gives_floats() -> None:
    text = "g (float[N,8] x) => (float[] y) { a = MatMul(x, w) y = Elu(a) }"
    w = np.ones((8, 8), np.float32)
    found = predict(model(text, w=w), {"n0": FLOAT_RESULT}, {"x": (4, 8)}, COSTS)
    assert found.nodes == {"n0": 500, "n1": 50}
    assert found.changes == {"x": QUANTIZE}


def test_a_bias_is_part_of_its_matmul() -> None:
    text = "g (float[N,8] x) => (float[] y) { a = MatMul(x, w) y = Add(a, b) }"
    weights = {"w": np.ones((8, 8), np.float32), "b": np.ones(8, np.float32)}
    found = predict(model(text, **weights), {}, {"x": (4, 8)}, COSTS)
    assert found.nodes == {"n0": 2000, "n1": 0}


def test_nodes_without_a_time_are_named() -> None:
    text = "g (float[N,8] x) => (float[] y) { y = Gelu(x) }"
    found = predict(model(text), {}, {"x": (4, 8)}, COSTS)
    assert (found.unknown, found.ns) == (("n0",), 0)


@pytest.mark.parametrize(
    ("state", "needs", "wanted"),
    [
        (FLOATS, {FLOATS}, []),
        (FLOATS, {FLOATS, TensorState(True, Layout.PLAIN)}, [Change.QUANTIZE]),
        (
            TensorState(False, Layout.BLOCKED),
            {TensorState(False, Layout.BLOCKED), TensorState(True, Layout.CHANNELS_LAST)},
            [Change.UNBLOCKED, Change.QUANTIZE, Change.CHANNELS_LAST],
        ),
        (
            TensorState(True, Layout.CHANNELS_LAST),
            {TensorState(False, Layout.BLOCKED), TensorState(True, Layout.CHANNELS_LAST)},
            [Change.DEQUANTIZE, Change.CHANNELS_FIRST, Change.BLOCKED],
        ),
        (
            TensorState(True, Layout.PLAIN),
            {TensorState(True, Layout.CHANNELS_LAST)},
            [Change.CHANNELS_LAST],
        ),
    ],
)
def test_a_tensor_changes_once_for_all_of_its_readers(
    state: TensorState, needs: set[TensorState], wanted: list[Change]
) -> None:
    assert changes_between(state, needs) == wanted
