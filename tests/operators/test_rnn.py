from __future__ import annotations

import dataclasses

import pytest

from onnxq.errors import UnsupportedError
from onnxq.operator import Float, Precision
from onnxq.operators.rnn import RNN
from tests.operators import builder
from tests.operators.dynamic_case import dynamic_model

# What RNN shares with GRU (exactness, bounds, activations, layouts) is in test__recurrent.py.
OPERATOR = RNN()
CASES = {case.name: case for case in OPERATOR.cases()}


def test_alphas_are_read_one_for_one_as_onnx_runtime_does() -> None:
    case = CASES["both directions"]
    attributes = dict(case.attributes or {}) | {"activation_alpha": [0.5]}
    short = dataclasses.replace(case, attributes=attributes)
    with pytest.raises(UnsupportedError, match="1 alphas"):
        dynamic_model(OPERATOR, short, Precision.DYNAMIC_INT8)


def test_the_body_is_one_matmul_a_sum_and_the_function() -> None:
    model = dynamic_model(OPERATOR, CASES["bias"], Precision.DYNAMIC_INT8)
    (scan,) = (node for node in model.graph if node.op_type == "Scan")
    body = [node.op_type for node in scan.attributes["body"].as_graph()]
    matmul = ["DynamicQuantizeLinear", "MatMulInteger", "Cast", "Mul", "Mul"]
    assert body == [*matmul, "Add", "Tanh", "Identity"]


def test_it_has_no_static_form_and_says_so() -> None:
    found = OPERATOR.rule(builder.node_of(OPERATOR, CASES["plain"]))
    assert isinstance(found, Float)
    assert "dynamic" in found.reason.words
