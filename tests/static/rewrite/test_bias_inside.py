from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from onnxq.checking.cross_check import cross_check
from onnxq.ort import runtime
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from tests.examples import weights

if TYPE_CHECKING:
    import onnx_ir as ir

ROWS, INNER, COLUMNS = 4, 6, 5
BIASED = "m = MatMul(x, w) y = Add(m, b)"


def model_of(x: str, body: str, extra: str = "") -> onnx.ModelProto:
    """A graph on x and y, with a weight w (6, 5) whose column 2 is zero, and a bias b (5,)."""
    text = f"""<ir_version: 9, opset_import: ["": 17]>
        g (float[{x}] x{extra}) => (float[M,N,O] y) {{ {body} }}"""
    made = onnx.parser.parse_model(text)
    w = weights(1, INNER, COLUMNS)
    w[:, 2] = 0
    for name, array in (("w", w), ("b", weights(2, COLUMNS)), ("v", weights(3, COLUMNS, 3))):
        if name in {slot for node in made.graph.node for slot in node.input}:
            made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return made


def batches(**shapes: tuple[int, ...]) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    return [
        {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(4)
    ]


def matmuls_alone() -> QConfigMapping:
    entry = default_qconfig_mapping().for_node("node", "MatMul")
    return QConfigMapping().set_global(None).set_op_type("MatMul", entry)


def made_of(
    model: onnx.ModelProto,
    data: list[dict[str, Any]],
    qconfig: QConfigMapping | None = None,
    form: str = "qdq",
) -> ir.Model:
    prepared = prepare(model, qconfig, "x86-vnni")
    return rewrite(prepared, plan(prepared, calibrate(prepared, data)), form)


def kernels(model: ir.Model) -> list[str]:
    return [node.op_type for node in runtime.optimized_graph(model).graph]


SHAPES = {
    "sizes of batches": ("2,4,6", (2, 4, 6)),
    "names of batches": ("N,T,6", (2, 4, 6)),
    "rank 4": ("N,2,T,6", (1, 2, 4, 6)),
    "a matrix": ("4,6", (4, 6)),
    "a matrix of a name": ("N,6", (4, 6)),
    "a vector": ("6", (6,)),
}


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("alone", [False, True], ids=["default", "matmuls alone"])
@pytest.mark.parametrize(("declared", "shape"), SHAPES.values(), ids=SHAPES)
def test_a_matmul_to_float_has_its_bias_inside_at_every_rank(
    declared: str, shape: tuple[int, ...], alone: bool, form: str
) -> None:
    data = batches(x=shape)
    model = model_of(declared, BIASED)
    made = made_of(model, data, matmuls_alone() if alone else None, form)
    assert kernels(made) == ["QuantizeLinear", "MatMulIntegerToFloat"]
    found = cross_check(made, data)
    assert not any(node.differing for node in found.nodes)
    with runtime.open_session(made) as session:
        (got,) = session.run(data[0])
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    wanted = data[0]["x"] @ constants["w"] + constants["b"]
    # x is off by half an LSB of 6 / 255 at most, a weight by half an LSB of its column
    bound = 0.02 * np.abs(constants["w"]).sum(0) + 0.01 * np.abs(data[0]["x"]).sum(-1)[..., None]
    assert (np.abs(got - wanted) <= bound).all()
    zero_column = np.zeros_like(got[..., 2]) + constants["b"][2]
    assert np.array_equal(got[..., 2], zero_column)  # its bias is not rounded, so it needs no room


@pytest.mark.parametrize("declared", ["N,T,6", "2,4,6"])
def test_where_integers_are_read_the_bias_is_inside_too(declared: str) -> None:
    data = batches(x=(2, 4, 6))
    made = made_of(model_of(declared, "m = MatMul(x, w) a = Add(b, m) y = MatMul(a, v)"), data)
    assert "Add" not in kernels(made)
    named = {"MatMulIntegerToFloat", "QuantizeLinear"}
    flat = {"QGemm", "QuantizeLinear", "Reshape", "MatMulIntegerToFloat"}
    assert set(kernels(made)) == (named if declared == "N,T,6" else flat)
    assert not any(node.differing for node in cross_check(made, data).nodes)


def test_a_relu_behind_it_bounds_the_integers() -> None:
    data = batches(x=(2, 4, 6))
    text = "m = MatMul(x, w) a = Add(m, b) r = Relu(a) y = MatMul(r, v)"
    made = made_of(model_of("N,T,6", text), data)
    ops = ["QuantizeLinear", "MatMulIntegerToFloat"]
    assert kernels(made) == ops * 2
    assert not any(node.differing for node in cross_check(made, data).nodes)


def test_a_residual_behind_a_matrix_does_not_take_the_matmul_into_a_float_gemm() -> None:
    data = batches(x=(4, 6), r=(4, 5))
    model = model_of("4,6", "m = MatMul(x, w) y = Add(m, r)", ", float[4,5] r")
    made = made_of(model, data, matmuls_alone())
    assert kernels(made) == ["QuantizeLinear", "MatMulIntegerToFloat", "Add"]
    assert not any(node.differing for node in cross_check(made, data).nodes)


def test_a_matmul_whose_result_others_read_keeps_its_add() -> None:
    data = batches(x=(2, 4, 6))
    text = "m = MatMul(x, w) a = Add(m, b) y = Mul(a, m)"
    made = made_of(model_of("N,T,6", text), data, matmuls_alone())
    assert {"MatMulIntegerToFloat", "Add"} <= set(kernels(made))
