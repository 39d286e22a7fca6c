from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.checking.collapse import find_collapse
from onnxq.operator import Precision
from onnxq.qconfig import onnxq_default_dynamic_qconfig
from tests.examples import ALL_INTEGERS, images, model, network, weights
from tests.this_machine import TARGET

WIDTH = 64


def test_integers_made_at_run_time_are_compared_by_what_they_give() -> None:
    """One scale for a row leaves all but its outlier 0, and the second MatMul drops that one."""
    first, second = weights(1, WIDTH, WIDTH), weights(3, WIDTH, WIDTH)
    second[0] = 0
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], "first"),
        helper.make_node("Add", ["a", "big"], ["b"], "shift"),
        helper.make_node("MatMul", ["b", "w2"], ["y"], "second"),
    ]
    big = np.zeros(WIDTH, np.float32)
    big[0] = 1e5
    source = model(nodes, {"w1": first, "w2": second, "big": big}, {"x": ["N", WIDTH]})
    x = {"x": weights(2, 4, WIDTH)}
    entry = replace(onnxq_default_dynamic_qconfig, precision=Precision.DYNAMIC_INT8)
    with pytest.warns(UserWarning, match="measure your own metric"):
        made = onnxq.quantize_dynamic(source, {"MatMul": entry}, check=onnxq.Check(x, repair=None))
    assert made.verdict is not None
    assert made.verdict.collapse is not None
    assert (made.verdict.collapse.node, made.verdict.collapse.tensor) == ("second", "y")


def test_where_no_inner_tensor_is_low_no_place_is_named() -> None:
    prepared = onnxq.prepare(network())
    prepared.run({"x": images(2)})
    quantized = onnxq.convert(prepared)
    assert find_collapse(prepared.model, quantized, [{"x": images(2)}], {}) is None


def test_what_the_node_reads_is_named_where_its_rounding_alone_spoils_it() -> None:
    """The square's integers are too coarse for a Log: in float it gives as little until then."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("Mul", ["c", "c"], ["s"], "square"),
        helper.make_node("Add", ["s", "tiny"], ["t"], "shift"),
        helper.make_node("Log", ["t"], ["l"], "log"),
        helper.make_node("Conv", ["l", "v"], ["y"], "end"),
    ]
    constants = {"w": weights(1, 8, 3, 1, 1), "v": weights(2, 4, 8, 1, 1)}
    tiny = np.full((), 1e-4, np.float32)
    source = model(nodes, {**constants, "tiny": tiny}, {"x": ["N", 3, 8, 8]})
    x = weights(3, 16, 3, 8, 8) * np.logspace(1, -2, 16, dtype=np.float32).reshape(16, 1, 1, 1)
    found = {}
    for names in ((), ("log",), ("log", "shift", "square")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of outputs below 15 dB
            made = onnxq.quantize(
                source, {"x": x}, target=TARGET, qconfig=ALL_INTEGERS, exclude=names
            )
        assert made.verdict is not None
        found[names] = made.verdict.collapse
    spoilt = found[()]
    assert spoilt is not None
    assert (spoilt.node, spoilt.spoilt_by) == ("log", ("shift", "square"))
    assert "integers of 'shift', 'square' are too coarse for it" in str(spoilt)
    assert found["log",] == spoilt  # the advice is the same, and names what is left to do
    assert found["log", "shift", "square"] is None


def test_a_place_is_named_though_pools_became_convolutions() -> None:
    """The prepared model has other nodes than its file, and would take the factor ahead in."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("Mul", ["c", "half"], ["h"], "factor"),
        helper.make_node("AveragePool", ["h"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Relu", ["p"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "v"], ["y"], "end"),
    ]
    v = weights(2, 4, 8, 1, 1)
    v -= v.mean(
        axis=1, keepdims=True
    )  # the same offset everywhere goes, and takes the signal along
    bias = np.full(8, 1e4, np.float32)
    constants = {"w": weights(1, 8, 3, 1, 1), "v": v, "half": np.full((1, 8, 1, 1), 0.5, "f")}
    nodes[0].input.append("bias")
    source = model(nodes, {**constants, "bias": bias}, {"x": ["N", 3, 8, 8]})
    x = {"x": weights(3, 16, 3, 8, 8)}
    with pytest.warns(UserWarning, match="measure your own metric"):
        made = onnxq.quantize(
            source,
            x,
            target=TARGET,
            qconfig=ALL_INTEGERS,
            check=onnxq.Check(repair=None),
        )
    assert made.verdict is not None
    assert made.verdict.collapse is not None, made.verdict
