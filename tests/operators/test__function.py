from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

import onnxq
from onnxq.dtypes import INT16, UINT8, UINT16
from onnxq.errors import ShapeError
from onnxq.operator import Call, Case, Curve, NodeCall, NodePlan, Reals
from onnxq.operators._function import (
    MOST_TURNS,
    SIGNED_UNIT,
    TABLE_NS,
    Function,
    _turns,
    anywhere,
    around_kernel,
    positive,
    table_kernel,
)
from onnxq.ort import runtime
from onnxq.qconfig import default_qconfig, default_qconfig_mapping
from onnxq.qparams import per_tensor
from tests import this_machine
from tests.operators import builder
from tests.operators.builder import operator, u8
from tests.this_machine import TARGET

P = per_tensor(0.5, 7, UINT8)


def network(op: str, opset: int = 21) -> ir.Model:
    """Conv -> op -> Conv on x float[N,4,6,6]; the op is written as ONNX text of c."""
    model = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : {opset}]> g (float[N,4,6,6] x) => (float[N,4,6,6] y)'
        f"{{ c = Conv(x, w, b) e = {op} y = Conv(e, v) }}"
    )
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "w": (4, 4, 1, 1), "v": (4, 4, 1, 1), "b": (4,), "slope": (4, 1, 1)
    }  # fmt: skip
    arrays = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    arrays |= {"two": np.array(2.0), "half": np.array(0.5)}
    for value in {v.name: v for n in model.graph for v in n.inputs if v is not None}.values():
        if value.name in arrays:
            array = arrays[value.name].astype(np.float32)
            value.const_value = ir.Tensor(array, name=value.name)
            value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(array.shape)
            model.graph.register_initializer(value)
    return model


def data() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((2, 4, 6, 6)).astype(np.float32)} for _ in range(6)]


def results(model: ir.Model, batch: dict[str, np.ndarray]) -> npt.NDArray[np.float32]:
    return np.asarray(this_machine.run_exactly(model, batch)[0], np.float32)


def between_convolutions(integer: ir.Model) -> set[str]:
    """Types that ONNX Runtime runs besides convolutions, the ends and changes of layout."""
    ends = {"QLinearConv", "Transpose", "Gather"}  # Gather: of the shape behind a Transpose
    return {n.op_type for n in runtime.optimized_graph(integer).graph} - ends


QUANTIZED = {
    "Abs(c)": {"QLinearLeakyRelu"},
    "Neg(c)": {"QLinearMul"},
    "Tanh(c)": {"QLinearSigmoid"},
    "HardSigmoid<alpha=0.16666>(c)": {"QLinearAdd"},
    "Sub(c, x)": {"QLinearMul", "QLinearAdd"},
    "PRelu(c, half)": {"QLinearLeakyRelu"},
    "PRelu(c, slope)": {"Cast", "Add", "Reshape", "GatherElements", "Shape"},
    "Elu(c)": {"Cast", "Reshape", "GatherElements", "Shape"},
    "Softplus(c)": {"Cast", "Reshape", "GatherElements", "Shape"},
}  # fmt: skip


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("op", QUANTIZED)
def test_operators_on_integers_are_quantized_by_default(op: str, form: str) -> None:
    model = network(op)
    integer = onnxq.quantize(model, data(), target=TARGET, format=form)
    found = between_convolutions(integer) - {"QuantizeLinear", "DequantizeLinear"}
    assert found == QUANTIZED[op]
    assert "slope" not in integer.graph.initializers
    batch = data()[0]
    wanted, got = (results(m, batch) for m in (model, integer))
    # four roundings of at most half an LSB, and saturation of outliers that calibration cut off
    assert np.abs(got - wanted).max() < 0.05 * np.ptp(wanted)


@pytest.mark.parametrize("op", ["Gelu(c)", "Erf(c)", "Pow(c, two)", "Exp(c)"])
def test_operators_around_float_stay_float_by_default(op: str) -> None:
    integer = onnxq.quantize(network(op), data(), target=TARGET)
    kinds = [n.op_type for n in integer.graph]
    at = kinds.index(op.partition("(")[0])
    assert kinds[at - 1] == "DequantizeLinear"  # no guard: ONNX Runtime never fuses it
    assert kinds[at + 1] == "QuantizeLinear"


def test_a_power_that_the_qconfig_names_runs_on_integers() -> None:
    qconfig = default_qconfig_mapping().set_op_type("Pow", default_qconfig)
    integer = onnxq.quantize(network("Pow(c, two)"), data(), qconfig=qconfig, target=TARGET)
    assert "QLinearMul" in between_convolutions(integer)


@pytest.mark.parametrize("op", ["Elu(c)", "PRelu(c, slope)", "Neg(c)", "Sub(c, x)"])
def test_opset_13_is_enough(op: str) -> None:
    integer = onnxq.quantize(network(op, 13), data(), target=TARGET)
    runtime.open_session(integer).run(data()[0])


def test_a_relu_behind_a_table_is_kept() -> None:
    model = network("Elu(c) r = Relu(e)")
    model.graph[-1].replace_input_with(0, model.graph[-2].outputs[0])
    integer = onnxq.quantize(model, data(), target=TARGET)
    batch = data()[0]
    wanted, got = (results(m, batch) for m in (model, integer))
    assert np.abs(got - wanted).max() < 0.05 * np.ptp(wanted)  # as above


def test_signed_unit_gives_integers_to_minus_one_zero_and_one() -> None:
    observer = onnxq.observers.MinMaxObserver()
    observer.observe(np.array(SIGNED_UNIT, np.float32), 0)
    q = observer.calculate_qparams()
    assert int(q.zero_point) == 127
    assert q.scale * 127 == pytest.approx(1)


def test_wide_integers_are_computed_one_by_one() -> None:
    p, q = per_tensor(0.01, 0, UINT16), per_tensor(0.001, 5, INT16)
    x = np.array([[400, 100], [0, 400]], np.uint16)
    got = table_kernel(Call("Sqrt", [x], NodePlan((p,), (q,))), np.sqrt)
    assert got.tolist() == [[2005, 1005], [5, 2005]]


@pytest.mark.parametrize("op_type", ["Sqrt", "Elu"])
def test_wide_integers_are_lowered_around_float(op_type: str) -> None:
    operator = builder.operator(op_type)
    x, wide = np.arange(8, dtype=np.uint16), per_tensor(0.01, 0, UINT16)
    case, plan = Case("", (x.astype(np.float32),)), NodePlan((wide,), (wide,))
    (got,) = builder.run(builder.lowered_model(operator, case, plan, [x]), case, [x])
    assert np.array_equal(got, operator.kernel(Call(operator.op_type, [x], plan))[0])


@pytest.mark.parametrize("op_type", ["Asin", "Acosh", "Atanh"])
def test_wide_integers_beyond_min_and_max_have_the_results_there(op_type: str) -> None:
    operator = builder.operator(op_type)
    x, wide = np.array([0, 300, 1000, 1001], np.uint16), per_tensor(0.004, 500, UINT16)
    case, plan = Case("", (x.astype(np.float32),)), NodePlan((wide,), (wide,))
    (got,) = builder.run(builder.lowered_model(operator, case, plan, [x]), case, [x])
    assert np.array_equal(got, operator.kernel(Call(operator.op_type, [x], plan))[0])
    assert got[0] == operator.kernel(Call(op_type, [x[:1] + np.uint16(250)], plan))[0][0]


def test_operands_may_be_integers_or_reals() -> None:
    plan = NodePlan((P, None), (P,))
    got = around_kernel(Call("Div", [u8([9]), np.array(2, np.float32)], plan), np.divide)
    assert got.tolist() == [8]


def test_other_operands_are_refused() -> None:
    plan = NodePlan((P, None), (P,))
    with pytest.raises(ShapeError, match="input 1 is float64"):
        around_kernel(Call("Div", [u8([9]), np.array(2.0)], plan), np.divide)
    with pytest.raises(ShapeError, match="input 1 is nothing"):
        around_kernel(Call("Div", [u8([9]), None], plan), np.divide)
    with pytest.raises(ShapeError, match="broadcast"):
        around_kernel(Call("Div", [u8([9, 9]), np.ones(3, np.float32)], plan), np.divide)


def square(x: Reals, *, alpha: float = 0.1, mode: str = "once", count: int = 2) -> Reals:
    """Y = alpha * X^count."""
    return np.asarray(alpha * x**count) if mode == "once" else x


def test_the_form_follows_from_the_measured_cost() -> None:
    for ns, lowered in ((TABLE_NS - 0.01, False), (TABLE_NS + 0.01, True)):
        assert Function("Mine", square, anywhere, ns_around=ns).lowered is lowered
    assert Function("Mine", square, anywhere).lowered  # not measured
    written = Function("Mine", square, anywhere, ns_around=0.1, written=lambda _: [])
    assert written.lowered


def test_keyword_parameters_are_the_nodes_attributes() -> None:
    made, x = Function("Mine", square, anywhere), np.array([3.0])
    alpha = float(np.float32(0.1))  # as the model holds it
    assert made.with_attributes(NodeCall("Mine", []))(x).tolist() == [alpha * 9]
    given = NodeCall("Mine", [], attributes={"alpha": 1.0, "count": 1, "mode": b"once"})
    assert made.with_attributes(given)(x).tolist() == [3]
    with pytest.raises(ShapeError, match="attribute count is 'x'; wanted an int"):
        made.with_attributes(NodeCall("Mine", [], attributes={"count": "x"}))


def test_variants_are_examples_with_attributes() -> None:
    made = Function("Mine", square, positive, variants=({"alpha": 0.3, "mode": "twice"},))
    assert [case.name for case in made.cases()][-1] == "alpha 0.3, mode twice"


@pytest.mark.parametrize("op_type", ["Gelu", "Mish", "Abs", "Erf", "Softplus", "Round"])
def test_activations_and_steps_need_not_be_followed_value_by_value(op_type: str) -> None:
    function = operator(op_type)
    assert isinstance(function, Function)
    assert _turns(function.formula) <= MOST_TURNS


@pytest.mark.parametrize("op_type", ["Asin", "Acos", "Atanh", "Acosh"])
def test_functions_that_amplify_where_they_end_are_followed_value_by_value(op_type: str) -> None:
    (case, *_) = operator(op_type).cases()
    (response,) = operator(op_type).responses(builder.node_of(operator(op_type), case))
    assert isinstance(response, Curve)


@pytest.mark.parametrize("op_type", ["Sin", "Cos"])
def test_periodic_functions_are_followed_value_by_value(op_type: str) -> None:
    (case, *_) = operator(op_type).cases()
    (response,) = operator(op_type).responses(builder.node_of(operator(op_type), case))
    assert isinstance(response, Curve)
