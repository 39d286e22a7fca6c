"""The plan of weights in groups."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ModelError, QConfigError
from onnxq.operator import Float
from onnxq.qparams.group_spec import GroupSpec, Method
from onnxq.weights.plan_weights import plan_weights, rows_of
from onnxq.weights.reasons import ErrorAboveBudget, Excluded
from onnxq.weights.weight_plan import Groupwise, WeightRequest
from tests.dynamic_models import normal, parsed
from tests.weights.block_models import canonical

TWO = parsed(
    """g (float[n, 40] x) => (float[n, 8] y) {
        [right] h = MatMul(x, w)
        [gemm] y = Gemm<transB = 1>(h, v, b)
    }""",
    {"w": normal(40, 24), "v": normal(8, 24), "b": normal(8)},
)
TIED = parsed(
    """g (int64[n] ids) => (float[n, 16] y) {
        [rows] h = Gather(t, ids)
        [up] u = MatMul(h, w)
        [head] y = MatMul(u, t)
    }""",
    {"t": normal(16, 16), "w": normal(16, 16)},
)
IN_A_BODY = parsed(
    """g (bool c, float[2, 32] x) => (float[2, 8] y) {
        y = If (c) <
            then_branch = t () => (float[2, 8] a) { [inner] a = MatMul(x, w) },
            else_branch = e () => (float[2, 8] b) { b = MatMul(x, w) }>
    }""",
    {"w": normal(32, 8)},
)


def test_linear_layers_are_planned_with_their_sizes() -> None:
    plan = plan_weights(canonical(TWO), WeightRequest(GroupSpec(4, 16), Method.RTN))
    right, gemm = plan.quantized["right"], plan.quantized["gemm"]
    assert (right.tensor, right.outputs, right.inputs, right.inputs_first) == ("w", 24, 40, True)
    assert (gemm.tensor, gemm.outputs, gemm.inputs, gemm.inputs_first) == ("v", 8, 24, False)


def test_blocks_that_do_not_divide_are_said() -> None:
    plan = plan_weights(canonical(TWO), WeightRequest(GroupSpec(4, 16)))
    assert "2 weights have inputs that groups of 16 do not divide" in plan.notes[0]


def test_rows_are_outputs_whatever_the_layout() -> None:
    model = canonical(TWO)
    plan = plan_weights(model, WeightRequest())
    initializers = model.graph.initializers
    for name, wanted in (("right", TWO.graph.initializer[0]), ("gemm", TWO.graph.initializer[1])):
        decision = plan.quantized[name]
        array = np.frombuffer(wanted.raw_data, np.float32).reshape(tuple(wanted.dims))
        rows = array.T if decision.inputs_first else array
        found = rows_of(initializers[decision.tensor], decision, 2, 5)
        assert np.array_equal(found, rows[2:5])


def test_a_head_that_is_the_embedding_too_stays_in_float() -> None:
    plan = plan_weights(canonical(TIED), WeightRequest())
    assert set(plan.quantized) == {"up"}
    head = plan.decisions["head"]
    assert isinstance(head, Float)
    assert "the embedding of 'rows' too" in head.reason.words


def test_linear_layers_in_bodies_are_planned() -> None:
    assert "inner" in plan_weights(canonical(IN_A_BODY), WeightRequest()).quantized


def test_linear_layers_in_bodies_need_no_data() -> None:
    plan = plan_weights(canonical(IN_A_BODY), WeightRequest(method=Method.GPTQ))
    assert plan.quantized["inner"].method is Method.HQQ
    assert "whose inputs are not seen" in plan.notes[0]


def test_an_excluded_node_stays_in_float() -> None:
    plan = plan_weights(canonical(TWO), WeightRequest(exclude=("ge*",)))
    assert plan.decisions["gemm"] == Float(Excluded())


def test_an_excluded_node_that_is_not_there_is_an_error() -> None:
    with pytest.raises(QConfigError, match="Did you mean 'gemm'"):
        plan_weights(canonical(TWO), WeightRequest(exclude=("gem",)))


def test_a_model_without_linear_layers_is_refused() -> None:
    proto = parsed("g (float[n] x) => (float[n] y) { y = Relu(x) }", {})
    with pytest.raises(ModelError, match="no linear layer"):
        plan_weights(canonical(proto), WeightRequest())


def test_other_specs_replace_those_of_single_nodes() -> None:
    plan = plan_weights(canonical(TWO), WeightRequest())
    mixed = plan.with_specs({"right": GroupSpec(2), "gemm": Float(ErrorAboveBudget())})
    right = mixed.decisions["right"]
    assert isinstance(right, Groupwise)
    assert right.spec.bits == 2
    assert mixed.decisions["gemm"] == Float(ErrorAboveBudget())


def test_a_matmul_of_two_constants_stays_float() -> None:
    text = """g (float[n, 32] x) => (float[n, 32] y, float[4, 32] z)
        { y = MatMul(x, w) z = MatMul(v, w) }"""
    source = parsed(text, {"w": normal(32, 32), "v": normal(4, 32)})
    plan = plan_weights(canonical(source), WeightRequest())
    assert list(plan.quantized) == ["MatMul_y"]
