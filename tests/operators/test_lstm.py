from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from onnx_ir.tape import Tape

import onnxq
from onnxq.affine import dequantize, quantize
from onnxq.dtypes import INT8, UINT8, QDType
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import UnsupportedError
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import (
    Case,
    DynamicNodePlan,
    DynamicSite,
    Float,
    IntegerCall,
    OperatorLimit,
    Precision,
)
from onnxq.operators.dynamic_quantize_lstm import DynamicQuantizeLSTM
from onnxq.operators.lstm import LSTM
from onnxq.qconfig import QConfigDynamic
from onnxq.qparams import PerChannel, PerTensor, QParams
from tests import this_machine
from tests.operators import builder
from tests.operators.dynamic_case import dynamic_model, dynamic_rule_of, fitted, run_dynamic

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Reals
    from onnxq.operator import Array

OPERATOR = LSTM()
INTEGERS = QConfigDynamic(NarrowRangeObserver.with_args(), Precision.DYNAMIC_INT8)
CASES = {case.name: case for case in OPERATOR.cases()}
BY_FORM = [
    pytest.param(case, precision, id=f"{case.name}-{precision.value}")
    for case in OPERATOR.cases()
    for precision in dynamic_rule_of(OPERATOR, case).precisions
]
SWAPPED = (1, 0, 2)


def time_first(case: Case) -> Case:
    """The same net with layout 0, which ONNX Runtime's own LSTM has."""
    attributes = dict(case.attributes or {})
    if not attributes.pop("layout", 0):
        return case
    swapped = tuple(
        np.transpose(x, SWAPPED) if x is not None and i in (0, 5, 6) else x
        for i, x in enumerate(case.inputs)
    )
    return dataclasses.replace(case, inputs=swapped, attributes=attributes)


def in_layout(case: Case, results: list[Array]) -> list[Array]:
    """Results of layout 0 in the case's own."""
    if not (case.attributes or {}).get("layout"):
        return results
    orders = ((2, 0, 1, 3), SWAPPED, SWAPPED)
    return [np.transpose(y, order) for y, order in zip(results, orders, strict=True)]


def distance(y: Array, wanted: Array) -> float:
    """The largest difference."""
    return float(np.abs(y.astype(np.float64) - wanted.astype(np.float64)).max())


@pytest.mark.parametrize(("case", "precision"), BY_FORM)
def test_every_form_is_near_float(case: Case, precision: Precision) -> None:
    wanted = in_layout(case, builder.run_float(OPERATOR, time_first(case)))
    for y, ort in zip(run_dynamic(OPERATOR, case, precision), wanted, strict=True):
        assert y.shape == ort.shape
        # the bound below is looser; 0.011 is the largest that these nets of 4 steps showed
        assert distance(y, ort) <= 0.02


@pytest.mark.parametrize("name", [n for n in CASES if "C library" not in n])
def test_the_integer_form_equals_the_kernel_bit_for_bit(name: str) -> None:
    case = CASES[name]
    model = dynamic_model(OPERATOR, case, Precision.DYNAMIC_INT8)
    wanted = builder.run(model, case, case.inputs)
    (node,) = [n for n in model.graph if n.op_type == "DynamicQuantizeLSTM"]
    time = time_first(case)
    inputs = [
        x if v is None or v.const_value is None else v.const_value.numpy()
        for v, x in zip(node.inputs, [*time.inputs, *[None] * 4], strict=True)
    ]
    call = IntegerCall("DynamicQuantizeLSTM", inputs, attributes=time.attributes or {})
    got = this_machine.compute(DynamicQuantizeLSTM(), call)
    for y, ort in zip(in_layout(case, list(got)), wanted, strict=True):
        assert np.array_equal(y, ort)


def test_stored_weights_are_those_of_the_integers() -> None:
    case = CASES["all inputs"]
    known = {}
    for slot in (1, 2):
        w = np.asarray(case.inputs[slot], np.float32)
        p = fitted(w, 1)
        known[slot] = dequantize(quantize(w, p), p)
    reals = dataclasses.replace(
        case, inputs=tuple(known.get(i, x) for i, x in enumerate(case.inputs))
    )
    got = run_dynamic(OPERATOR, case, Precision.WEIGHT_ONLY)
    for y, wanted in zip(got, builder.run_float(OPERATOR, reals), strict=True):
        assert np.array_equal(y, wanted)


def test_weights_are_dequantized_when_the_session_is_made(tmp_path: Path) -> None:
    for precision in (Precision.WEIGHT_ONLY, Precision.WEIGHT_ONLY_FLOAT16):
        model = dynamic_model(OPERATOR, CASES["all inputs"], precision)
        assert builder.optimized_ops(ir.to_proto(model), tmp_path) == ["LSTM"]


@pytest.mark.parametrize(
    ("dtype", "axis", "zero_point"),
    [(INT8, None, 0), (INT8, None, -100), (UINT8, None, 200), (UINT8, 2, 128), (INT8, 2, 0)],
)
def test_scales_and_zero_points_that_dynamic_quantize_lstm_takes(
    dtype: QDType, axis: int | None, zero_point: int
) -> None:
    case = CASES["bias"]
    qparams = []
    for slot in (1, 2):
        w = np.transpose(np.asarray(case.inputs[slot]), (0, 2, 1))
        p = fitted(w, axis)
        scale = p.scale * np.float32(2)  # so that zero points at one end still cover the weights
        points = np.full(p.scale.shape, zero_point)
        qparams.append(QParams(scale, points, dtype, p.granularity))
    got = run_dynamic(OPERATOR, case, Precision.DYNAMIC_INT8, qparams)
    reals = list(case.inputs)
    for slot, p in zip((1, 2), qparams, strict=True):
        w = np.transpose(np.asarray(case.inputs[slot]), (0, 2, 1))
        reals[slot] = np.transpose(dequantize(quantize(w, p), p), (0, 2, 1))
    known = dataclasses.replace(case, inputs=tuple(reals))
    for y, wanted in zip(got, builder.run_float(OPERATOR, known), strict=True):
        assert distance(y, wanted) <= 0.02


@pytest.mark.parametrize(
    ("qparams", "words"),
    [
        (QParams(np.ones(1, "f"), np.zeros(1, "i1"), INT8, PerChannel(0)), "one scale per"),
        (
            QParams(np.ones(24, "f"), np.arange(24).astype("i1"), INT8, PerChannel(2)),
            "zero points differ between columns",
        ),
    ],
)
def test_qparams_without_an_integer_lstm_are_refused(qparams: QParams, words: str) -> None:
    good = QParams(np.ones((), "f"), np.zeros((), "i1"), INT8, PerTensor())
    with pytest.raises(UnsupportedError, match=words):
        dynamic_model(OPERATOR, CASES["plain"], Precision.DYNAMIC_INT8, (good, qparams))


def test_activations_of_the_c_library_have_no_integer_form() -> None:
    rule = dynamic_rule_of(OPERATOR, CASES["activations of the C library"])
    assert Precision.DYNAMIC_INT8 not in rule.precisions
    assert "Elu" in rule.missing


def test_weights_computed_at_run_time_stay_float() -> None:
    case = dataclasses.replace(CASES["plain"], constants=(1,))
    rule = OPERATOR.dynamic_rule(builder.node_of(OPERATOR, case))
    assert rule == Float(
        OperatorLimit("its weights are computed at run time; constant ones are needed")
    )


def test_an_absent_output_stays_absent_but_is_computed() -> None:
    case = CASES["all inputs"]
    whole = dynamic_model(OPERATOR, case, Precision.DYNAMIC_INT8)
    wanted = builder.run(whole, case, case.inputs)
    node = builder.node_of(OPERATOR, case)
    node.outputs[0].name = ""
    (inner,) = list(whole.graph)
    tape = Tape()
    plan = DynamicNodePlan(
        Precision.DYNAMIC_INT8,
        tuple(fitted(np.transpose(np.asarray(case.inputs[i]), (0, 2, 1)), 2) for i in (1, 2)),
    )
    outputs = OPERATOR.lower_dynamic(DynamicSite(tape, node, inner.inputs[:8], plan))
    assert outputs[0].name == ""
    assert outputs[0].producer() is None
    assert len(tape.nodes[0].outputs) == len(wanted) == 3


# --- the bound

STEPS, BATCH, INPUTS, HIDDEN = 8, 4, 12, 16


def net(magnitude: float, seed: int) -> Case:
    """A net whose weights are normal with this standard deviation."""
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> npt.NDArray[np.float32]:
        return random.standard_normal(shape).astype(np.float32)

    w = draw(1, 4 * HIDDEN, INPUTS) * np.float32(magnitude)
    r = draw(1, 4 * HIDDEN, HIDDEN) * np.float32(magnitude)
    inputs = (draw(STEPS, BATCH, INPUTS), w, r, draw(1, 8 * HIDDEN) * np.float32(magnitude))
    return Case("net", inputs, (1, 2, 3), {"hidden_size": HIDDEN}, 3)


def bounds(case: Case) -> list[Reals]:
    """How far Y[t] may be from float: the errors of integers, carried through the recurrence.

    |Z' - Z| <= x_step/2 |W|1 + |x'| w_step/2 1 + (the same of h and R) + |R| |h' - h|, where
    h_step <= 2 / 255. sigmoid has slope <= 1/4, tanh <= 1; all gates lie in [-1, 1].
    """
    x, w, r, b = (np.asarray(a, np.float64) for a in case.inputs)
    w, r, b = w[0], r[0], b[0, : 4 * HIDDEN] + b[0, 4 * HIDDEN :]
    w_half, r_half = (np.abs(m).max(1) / 127 / 2 for m in (w, r))
    x_half = (max(x.max(), 0) - min(x.min(), 0)) / 255 / 2
    h_half = 2 / 255 / 2
    h, c, dh, dc = (np.zeros((BATCH, HIDDEN)) for _ in range(4))
    found = []
    for t in range(STEPS):
        z = x[t] @ w.T + h @ r.T + b
        dz = x_half * np.abs(w).sum(1) + (np.abs(x[t]) + x_half).sum(1)[:, None] * w_half
        dz = dz + (dh + h_half) @ np.abs(r).T
        dz = dz + np.minimum(np.abs(h) + dh + h_half, 1 + h_half).sum(1)[:, None] * r_half
        i, o, f = (1 / (1 + np.exp(-z[:, k * HIDDEN : (k + 1) * HIDDEN])) for k in range(3))
        di, do, df, dg = (dz[:, k * HIDDEN : (k + 1) * HIDDEN] for k in range(4))
        di, do, df = (np.minimum(d / 4, 1) for d in (di, do, df))
        g, dg = np.tanh(z[:, 3 * HIDDEN :]), np.minimum(dg, 2)
        dc = np.minimum(f + df, 1) * dc + np.abs(c) * df
        dc = dc + np.minimum(i + di, 1) * dg + np.abs(g) * di
        c = f * c + i * g
        dh = np.minimum(o + do, 1) * np.minimum(dc, 2) + np.abs(np.tanh(c)) * do
        dh = np.minimum(dh, 2)
        h = o * np.tanh(c)
        found.append(dh + 1e-5)  # 1e-5: float32 sums of a few dozen numbers, and the polynomials
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("magnitude", "first", "all_steps"),
    [(0.01, 0.002, 0.003), (0.05, 0.01, 0.03), (0.1, 0.03, 0.2), (0.2, 0.06, 3), (1, 0.6, 3)],
)
def test_outputs_stay_within_the_derived_bound_of_float(
    magnitude: float, first: float, all_steps: float, seed: int
) -> None:
    case = net(magnitude, seed)
    wanted = builder.run_float(OPERATOR, case)[0].astype(np.float64)
    got = run_dynamic(OPERATOR, case, Precision.DYNAMIC_INT8)[0].astype(np.float64)
    limits = bounds(case)
    assert limits[0].max() <= first  # the bound says something; large weights amplify errors
    assert max(limit.max() for limit in limits) <= all_steps
    for t, limit in enumerate(limits):
        assert (np.abs(wanted[t, 0] - got[t, 0]) <= limit).all()


@pytest.mark.parametrize(("hidden", "few"), [(6, True), (512, True), (1024, False)])
def test_a_small_recurrent_weight_may_have_one_scale(hidden: int, few: bool) -> None:
    x = np.zeros((1, 1, 2), np.float32)
    w, r = (np.zeros((1, 4 * hidden, n), np.float32) for n in (2, hidden))
    case = Case("", (x, w, r), (1, 2), {"hidden_size": hidden}, 3)
    of_x, of_h = dynamic_rule_of(OPERATOR, case).weights
    assert (of_x.few_rows, of_h.few_rows) == (False, few)


def test_objective_speed_gives_a_small_recurrent_weight_one_scale_and_size_does_not() -> None:
    random, hidden = np.random.default_rng(0), 256
    x = np.zeros((32, 1, 8), np.float32)
    w, r = (random.uniform(-1, 1, (1, 4 * hidden, n)).astype(np.float32) for n in (8, hidden))
    case = Case("", (x, w, r), (1, 2), {"hidden_size": hidden})
    shapes = {}
    for objective in (Objective.SPEED, Objective.SIZE):
        made = onnxq.quantize_dynamic(
            builder.float_model(OPERATOR, case), {"LSTM": INTEGERS}, objective=objective
        )
        (node,) = [n for n in made.graph if n.op_type == "DynamicQuantizeLSTM"]
        found = [node.inputs[slot] for slot in (8, 10)]
        shapes[objective] = [tuple(v.shape.numpy()) for v in found if v and v.shape]
    assert shapes[Objective.SPEED] == [(1, 4 * hidden), (1,)]
    assert shapes[Objective.SIZE] == [(1, 4 * hidden)] * 2


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_onnxruntime_finds_as_many_zero_points_of_one_scale_as_of_columns(direction: str) -> None:
    """1.23 and 1.27 read those of R by the number of W's, and what lies behind them otherwise."""
    random, hidden, ways = np.random.default_rng(0), 32, 1 + (direction != "forward")
    w, r = (random.uniform(-1, 1, (ways, 4 * hidden, n)).astype(np.float32) for n in (8, hidden))
    x = np.zeros((4, 1, 8), np.float32)
    attributes: dict[str, int | str] = {"hidden_size": hidden, "direction": direction}
    model = builder.float_model(OPERATOR, Case("", (x, w, r), (1, 2), attributes))
    made = onnxq.quantize_dynamic(model, {"LSTM": INTEGERS}, objective=Objective.SPEED)
    (node,) = [n for n in made.graph if n.op_type == "DynamicQuantizeLSTM"]
    of_w, of_r = node.inputs[9], node.inputs[11]
    assert of_w is not None
    assert of_r is not None
    assert of_w.shape == of_r.shape
