from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.dtypes import INT8, INT16, UINT8
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import Call, Case, NodePlan, Weighted, WeightSlot
from onnxq.operators.mat_mul import MatMul
from onnxq.qparams import PerChannel, QParams, per_tensor
from tests.operators import builder
from tests.operators.builder import SHARED, Integers, i16, integers

OP = MatMul()


A, B = np.zeros((2, 3), np.float32), np.zeros((3, 4), np.float32)


def test_constant_matrix_is_a_weight_per_column() -> None:
    rule = builder.rule_of(OP, Case("", (A, B), (1,)))
    assert rule.weight == WeightSlot(1, 1)
    assert rule.activations == (0,)
    assert not rule.needs_output


@pytest.mark.parametrize("b", [B[:, 0], np.zeros((2, 3, 4), np.float32)], ids=["rank 1", "rank 3"])
def test_other_constants_are_quantized_per_tensor(b: Integers) -> None:
    rule = builder.rule_of(OP, Case("", (A, b), (1,)))
    assert rule.weight is None
    assert rule.activations == (0, 1)


@pytest.mark.parametrize(
    ("a", "b", "constant", "rows"),
    [
        (A, B, 0, (2, 3)),
        (A[0], B, 0, (1, 3)),
        (np.zeros((5, 2, 3), np.float32), B, 0, (5, 2, 3)),
        (A, B[:, 0], 1, (1, 3)),
        (A, np.zeros((2, 3, 4), np.float32), 1, (2, 4, 3)),
    ],
    ids=["matrix on the left", "row on the left", "batches on the left", "column", "batches"],
)
def test_constants_that_are_no_weight_say_how_errors_are_summed(
    a: Integers, b: Integers, constant: int, rows: tuple[int, ...]
) -> None:
    (response,) = OP.responses(builder.node_of(OP, Case("", (a, b), (constant,))))
    assert isinstance(response, Weighted)
    assert response.slot == 1 - constant
    assert response.rows.shape == rows


def test_a_weight_says_it_by_its_rule() -> None:
    assert OP.responses(builder.node_of(OP, Case("", (A, B), (1,)))) == ()


@given(
    a=st.lists(st.integers(1, 3), max_size=2),
    b=st.lists(st.integers(1, 3), max_size=2),
    m=st.integers(0, 3),
    k=st.integers(1, 5),
    n=st.integers(0, 3),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_kernel_equals_onnx_runtime_for_any_shapes(
    a: list[int], b: list[int], m: int, k: int, n: int, seed: int
) -> None:
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        b = []
    random = np.random.default_rng(seed)
    inputs = [random.integers(0, 256, s).astype(np.uint8) for s in ((*a, m, k), (*b, k, n))]
    case = Case("shapes", tuple(x.astype(np.float32) for x in inputs))
    p = per_tensor(0.02, 131, UINT8)
    for out in (p, None):
        plan = NodePlan((p, p), (out,))
        (wanted,) = builder.run_exactly(builder.lowered_model(OP, case, plan, inputs), case, inputs)
        assert np.array_equal(OP.kernel(Call(OP.op_type, inputs, plan))[0], wanted)


def test_scales_of_rows_are_refused() -> None:
    rows = QParams(np.ones(4, np.float32), np.zeros(4, np.int8), INT8, PerChannel(0))
    plan = NodePlan((SHARED, rows), (SHARED,))
    with pytest.raises(ShapeError, match="along axis 1"):
        OP.kernel(Call(OP.op_type, [integers(2, 4), np.zeros((4, 4), np.int8)], plan))


def test_sixteen_bits_are_not_lowered() -> None:
    wide = per_tensor(1.0, 0, INT16)
    plan = NodePlan((wide, wide), (wide,))
    with pytest.raises(UnsupportedError, match="no kernel for int16"):
        builder.lowered_model(OP, Case("", (A, B)), plan, [i16(A), i16(B)])


@pytest.mark.parametrize("batches", [(), (2,), (2, 3)])
def test_kernel_with_a_bias_equals_onnx_runtime(batches: tuple[int, ...]) -> None:
    random = np.random.default_rng(4)
    x = random.integers(0, 256, (*batches, 3, 5)).astype(np.uint8)
    w = random.integers(-127, 128, (5, 4)).astype(np.int8)
    bias = random.standard_normal(4).astype(np.float32)
    scale = random.uniform(0.01, 0.1, 4).astype(np.float32)
    columns = QParams(scale, np.zeros(4, np.int8), INT8, PerChannel(1))
    plan = NodePlan((per_tensor(0.02, 131, UINT8), columns, None), (None,))
    case = Case("", (np.zeros(x.shape, np.float32), np.zeros(w.shape, np.float32)), (1,))
    model = builder.lowered_model(OP, case, plan, [x, w], (bias,))
    (wanted,) = builder.run_exactly(model, case, [x, w])
    assert np.array_equal(OP.kernel(Call(OP.op_type, [x, w, bias], plan))[0], wanted)
