from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxq.dynamic.dynamic_decision import Objective, QuantizeDynamic
from onnxq.operator import Float, Precision
from onnxq.qconfig import QConfigDynamic, default_dynamic_qconfig
from tests.dynamic_models import planned
from tests.examples import weights
from tests.static.noise.nets import filter_bank, filter_bank_on_the_left, norms, spectral

if TYPE_CHECKING:
    from onnxq.dynamic.dynamic_decision import DynamicPlan


def floats(plan: DynamicPlan) -> set[str]:
    """Nodes that stay in float for a logarithm."""
    return {
        name
        for name, decision in plan.decisions.items()
        if isinstance(decision, Float) and "Log 'log' reads its results" in decision.reason.words
    }


@pytest.mark.parametrize("model", [filter_bank(), filter_bank_on_the_left()])
def test_transform_and_filter_bank_ahead_of_a_logarithm_stay_float(model: onnx.ModelProto) -> None:
    _, plan = planned(model)
    assert floats(plan) == {"stft", "bank_sums"}
    assert isinstance(plan.decisions["first"], QuantizeDynamic)


def test_a_transform_ahead_of_the_logarithm_of_a_norm_stays_float() -> None:
    _, plan = planned(norms())
    assert floats(plan) == {"stft"}


AMPLIFYING = {
    "a cube root": ("y = Pow(p, third)", {"first", "second"}),
    "a cube root of a mean over unknown time": (
        "m = ReduceMean(p, rows) y = Pow(m, third)",
        {"first", "second"},
    ),
    "a reciprocal": ("f = Add(p, floor) y = Reciprocal(f)", {"first", "second"}),
    "a local mean": (
        "m = MatMul(p, w) f = Add(m, floor) y = Div(p, f)",
        {"first", "second", "third"},
    ),
    "a square root": ("y = Sqrt(p)", set()),
    "a norm": ("n = ReduceSum(p, last) r = Sqrt(n) y = Div(p, r)", set()),
    "a number that is no guard": ("f = Add(p, one) y = Div(p, f)", set()),
}


@pytest.mark.parametrize("behind", AMPLIFYING)
def test_matmuls_ahead_of_amplifying_functions_stay_in_float(behind: str) -> None:
    text, wanted = AMPLIFYING[behind]
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 18]> g (float[N, 64] x) => (z) {{
            a = MatMul(x, w) s = Mul(a, a) p = MatMul(s, w) {text}
            z = MatMul(y, w)
        }}"""
    )
    numbers = {"third": 1 / 3, "floor": 1e-6, "one": 1.0}
    made = [numpy_helper.from_array(np.array(x, np.float32), n) for n, x in numbers.items()]
    made.append(numpy_helper.from_array(np.array([-1]), "last"))
    made.append(numpy_helper.from_array(np.array([0]), "rows"))
    made.append(numpy_helper.from_array(weights(1, 64, 64), "w"))
    model.graph.initializer.extend(made)
    matmuls = [node for node in model.graph.node if node.op_type == "MatMul"]
    for node, name in zip(
        matmuls,
        ("first", "second", *(["third"] if "MatMul" in text else []), "behind"),
        strict=True,
    ):
        node.name = name
    _, plan = planned(onnx.shape_inference.infer_shapes(model))
    assert {n for n, d in plan.decisions.items() if "quiet" in str(d)} == wanted


def test_a_divisor_that_is_a_norm_hides_no_logarithm_behind_a_matmul() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18]>
    g (float[N, 64] x) => (float[N, 64] o, float[N, 64] y, float[N, 64] z) {
        o = MatMul(x, w)
        a = MatMul(x, w) s = Mul(a, a) n = ReduceSum(s, last)
        y = Div(a, n) b = MatMul(n, v) z = Log(b)
    }"""
    model = onnx.parser.parse_model(text)
    made = {"w": weights(1, 64, 64), "v": weights(2, 1, 64), "last": np.array([-1])}
    model.graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in made.items())
    _, plan = planned(onnx.shape_inference.infer_shapes(model))
    assert ["quiet" in str(plan.decisions[f"MatMul_{name}"]) for name in "oab"] == [
        False,
        True,
        True,
    ]


def test_a_logarithm_in_a_branch_counts() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18]>
    g (float[N, 64] x, bool c) => (float[N, 64] o, float[N, 64] y) {
        o = MatMul(x, w)
        a = MatMul(x, w)
        y = If(c) <
            then_branch = t () => (float[N, 64] l) { l = Log(a) },
            else_branch = e () => (float[N, 64] k) { k = Identity(a) }
        >
    }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(weights(1, 64, 64), "w"))
    _, plan = planned(model)
    assert ["quiet" in str(plan.decisions[f"MatMul_{name}"]) for name in "oa"] == [False, True]


def test_the_nearest_logarithm_counts() -> None:
    """Behind a Relu only a logarithm that reads it without another MatMul is followed."""
    text = """<ir_version: 10, opset_import: ["" : 18]>
    g (float[N, 64] x) => (float[N, 64] o, float[N, 64] y, float[N, 64] z) {
        o = MatMul(x, w)
        a = MatMul(x, w) r = Relu(a) y = Log(r) b = MatMul(r, w) z = Log(b)
    }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(weights(1, 64, 64), "w"))
    _, plan = planned(model)
    floats = [
        n for n, d in plan.decisions.items() if isinstance(d, Float) and "quiet" in d.reason.words
    ]
    assert len(floats) == 2


def test_a_spectrum_that_no_logarithm_reads_is_quantized() -> None:
    _, plan = planned(spectral(logarithm=False))
    assert isinstance(plan.decisions["stft"], QuantizeDynamic)


def test_who_wants_a_small_file_or_names_a_form_gets_it() -> None:
    _, plan = planned(spectral(logarithm=True), objective=Objective.SIZE)
    assert isinstance(plan.decisions["stft"], QuantizeDynamic)
    named = {"stft": QConfigDynamic(default_dynamic_qconfig.weight_observer, Precision.WEIGHT_ONLY)}
    _, plan = planned(spectral(logarithm=True), named)
    assert isinstance(plan.decisions["stft"], QuantizeDynamic)


def test_a_matmul_behind_a_function_of_its_own_is_no_part_of_the_logarithm() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], "hidden"),
            helper.make_node("Softmax", ["a"], ["p"], "softmax"),
            helper.make_node("Log", ["p"], ["y"], "log"),
        ],
        "classes",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 64])],
        [numpy_helper.from_array(weights(1, 64, 64), "w")],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
    _, plan = planned(model)
    assert not floats(plan)
