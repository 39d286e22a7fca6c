from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.checking.collapse import find_collapse
from onnxq.operator import DynamicForm
from onnxq.qconfig import onnxq_default_dynamic_qconfig
from tests.examples import images, model, network, weights

WIDTH = 64


def test_codes_made_at_run_time_are_compared_by_what_they_give() -> None:
    """One scale for a row leaves all but its outlier 0, and the second product drops that one."""
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
    entry = replace(onnxq_default_dynamic_qconfig, form=DynamicForm.INTEGER)
    with pytest.warns(UserWarning, match="measure your own metric"):
        made = onnxq.quantize_dynamic(source, {"MatMul": entry}, check=x)
    assert made.verdict is not None
    assert made.verdict.collapse is not None
    assert (made.verdict.collapse.node, made.verdict.collapse.tensor) == ("second", "y")


def test_where_no_inner_tensor_is_low_no_place_is_named() -> None:
    prepared = onnxq.prepare(network())
    prepared.run({"x": images(2)})
    quantized = onnxq.convert(prepared)
    assert find_collapse(prepared.model, quantized, [{"x": images(2)}], {}) is None
