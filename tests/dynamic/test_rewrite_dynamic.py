from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnxq.dynamic.rewrite_dynamic import opset_needed, rewrite_dynamic
from onnxq.errors import CalibrationError
from onnxq.graph.io import save
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Precision
from onnxq.ort import runtime
from onnxq.qconfig import (
    QConfigDynamic,
    QConfigMapping,
    float16_dynamic_qconfig,
    onnxq_default_dynamic_qconfig,
)
from tests import this_machine
from tests.dynamic_models import (
    ROWS,
    SIDE,
    linear,
    matmul_bound,
    normal,
    op_types,
    parsed,
    planned,
    quantized,
    run,
    stored,
)
from tests.examples import as_ir, model, weights

if TYPE_CHECKING:
    from pathlib import Path

X = normal(ROWS, SIDE)
W = weights(1, SIDE, SIDE)
ONE_SCALE = QConfigDynamic(NarrowRangeObserver.with_args(ch_axis=None))


def test_a_matmul_becomes_integers_and_keeps_the_names_around_it() -> None:
    made = quantized(linear())
    assert op_types(made) == ["DynamicQuantizeLinear", "MatMulInteger", "Cast", "Mul", "Mul", "Add"]
    assert stored(made) == {"w_quantized": "INT8", "b": "FLOAT"}
    assert [v.name for v in made.graph[-1].inputs if v is not None] == ["p", "b"]
    error = np.abs(run(made, {"x": X}) - run(linear(), {"x": X}))
    assert (error <= matmul_bound(X, W)).all()


def test_the_float_model_stays_as_it_is() -> None:
    source = as_ir(linear())
    before = ir.to_proto(source).SerializeToString()
    quantized(source)
    assert ir.to_proto(source).SerializeToString() == before


def test_metadata_say_what_was_done() -> None:
    source, plan = planned(linear(), target="x86-vnni", objective="size")
    props = rewrite_dynamic(source, plan).metadata_props
    assert props["onnxq.target"] == "x86-vnni"
    assert props["onnxq.format"] == "dynamic"
    assert props["onnxq.objective"] == "size"
    assert props["onnxq.float_model_hash"] == plan.model_hash


def test_a_plan_of_another_model_is_refused() -> None:
    _, plan = planned(linear())
    other, _ = planned(linear(rows=3))
    with pytest.raises(CalibrationError, match="make the plan from this model"):
        rewrite_dynamic(other, plan)


def test_blocks_raise_the_opset_as_far_as_they_need() -> None:
    entry = QConfigDynamic(NarrowRangeObserver.with_args(dtype="int4", quant_max=7), block_size=16)
    source, plan = planned(linear(), entry)
    assert opset_needed(plan.quantized) == 21
    made = rewrite_dynamic(source, plan)
    assert made.opset_imports[""] == 21
    assert stored(made)["w_quantized"] == "INT4"
    assert opset_needed({}) == 0


@pytest.mark.parametrize(
    "form", ["dynamic_int8", "weight_only_groupwise", "weight_only", "weight_only_float16"]
)
def test_every_form_is_a_valid_model_that_runs(form: str, tmp_path: Path) -> None:
    entry = float16_dynamic_qconfig
    if form != "weight_only_float16":
        entry = QConfigDynamic(onnxq_default_dynamic_qconfig.weight, Precision(form))
    made = quantized(linear(), entry)
    path = tmp_path / "m.onnx"
    save(made, path)
    onnx.checker.check_model(str(path), full_check=True)
    got, wanted = run(made, {"x": X}), run(linear(), {"x": X})
    assert (np.abs(got - wanted) <= matmul_bound(X, W)).all()


# --- weights that several nodes share


def test_two_gemms_with_a_turned_square_weight_share_its_integers() -> None:
    """ONNX Runtime's tool transposes the weight in place, once per reader."""
    gemm = helper.make_node
    source = model(
        [
            gemm("Gemm", ["x", "w"], ["h"], "first", transB=1),
            gemm("Gemm", ["z", "w"], ["g"], "second", transB=1),
            gemm("Concat", ["h", "g"], ["y"], "both", axis=0),
        ],
        {"w": W},
        {"x": [ROWS, SIDE], "z": [ROWS, SIDE]},
    )
    made = quantized(source)
    assert stored(made) == {"w_quantized": "INT8"}
    feeds = {"x": X, "z": normal(ROWS, SIDE, seed=7)}
    error = np.abs(run(made, feeds) - run(source, feeds))
    bounds = [matmul_bound(feeds[name], W.T.copy()) for name in ("x", "z")]
    assert (error <= np.concatenate(bounds)).all()


def both_ways() -> onnx.ModelProto:
    """[x w^T ; z w]: one weight, read in two layouts."""
    return model(
        [
            helper.make_node("Gemm", ["x", "w"], ["h"], "turned", transB=1),
            helper.make_node("MatMul", ["z", "w"], ["g"], "plain"),
            helper.make_node("Concat", ["h", "g"], ["y"], "both", axis=0),
        ],
        {"w": W},
        {"x": [ROWS, SIDE], "z": [ROWS, SIDE]},
    )


def test_a_weight_with_channels_on_two_axes_is_stored_once_per_layout() -> None:
    made = quantized(both_ways())
    assert stored(made) == {"w_quantized": "INT8", "w_again_quantized": "INT8"}
    feeds = {"x": X, "z": X}
    error = np.abs(run(made, feeds) - run(both_ways(), feeds))
    bounds = [matmul_bound(X, W.T.copy()), matmul_bound(X, W)]
    assert (error <= np.concatenate(bounds)).all()


@pytest.mark.parametrize("entry", [ONE_SCALE, float16_dynamic_qconfig], ids=["int8", "float16"])
def test_equal_numbers_in_two_layouts_are_stored_once(entry: QConfigDynamic) -> None:
    made = quantized(both_ways(), entry)
    assert len(stored(made)) == 1
    assert op_types(made).count("Transpose") >= 1
    feeds = {"x": X, "z": X}
    error = np.abs(run(made, feeds) - run(both_ways(), feeds))
    step = np.abs(W).max() / 64
    lsb_x = (X.max() - X.min()) / 255
    worst = SIDE * (lsb_x * np.abs(W).max() + step / 2 * np.abs(X).max() + step * lsb_x)
    assert error.max() <= worst


def test_a_weight_that_a_float_node_reads_too_stays_for_it() -> None:
    source = model(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], "matmul"),
            helper.make_node("Mul", ["p", "w"], ["y"], "times"),
        ],
        {"w": W},
        {"x": [SIDE, SIDE]},
    )
    made = quantized(source)
    assert stored(made) == {"w": "FLOAT", "w_quantized": "INT8"}
    x = normal(SIDE, SIDE)
    error = np.abs(run(made, {"x": x}) - run(source, {"x": x}))
    assert (error <= matmul_bound(x, W) * np.abs(W)).all()


def test_a_table_that_gather_and_gemm_share_is_right_for_both() -> None:
    """ONNX Runtime's tool transposes the table for Gemm, and Gather reads the transposed one."""
    table = weights(3, SIDE, SIDE)
    text = f"""m (int64[{ROWS}] ids) => (float[{ROWS},{SIDE}] y) {{
      e = Gather(table, ids)
      y = Gemm<transB = 1>(e, table)
    }}"""
    source = parsed(text, {"table": table})
    made = quantized(source, {"Gemm": onnxq_default_dynamic_qconfig})
    ids = np.array([3, 0, 31, 7, 7])
    error = np.abs(run(made, {"ids": ids}) - run(source, {"ids": ids}))
    assert (error <= matmul_bound(table[ids], table.T.copy())).all()


SHARED = f"""m (float[N,{SIDE}] x) => (float[N,{SIDE}] y) {{
  a = MatMul(x, w)
  b = Gemm(a, w)
  c = Gemm<transB = 1>(b, w)
  count = Constant<value = int64 {{2}}>()
  y = Loop (count, , c) <body = l (int64 i, bool k, float[N,{SIDE}] h)
    => (bool kk, float[N,{SIDE}] g) {{ kk = Identity(k) d = MatMul(h, w) g = MatMul(d, w) }}>
}}"""
"""One weight of three MatMuls, and of two more in a body."""


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_blocks_that_several_matmuls_read_are_not_dequantized_in_every_run(dtype: str) -> None:
    weight = NarrowRangeObserver.with_args(dtype=dtype, quant_max=127 if dtype == "int8" else 7)
    source = parsed(SHARED, {"w": W / np.float32(SIDE**0.5)})
    made = quantized(source, QConfigDynamic(weight, Precision.WEIGHT_ONLY_GROUPWISE, 16))
    assert op_types(made).count("MatMulNBits") == 5
    assert "DequantizeLinear" not in op_types(runtime.optimized_graph(made))
    integers = [name for graph in made.graphs() for name in graph.initializers if "packed" in name]
    assert len(integers) == 3  # in the main graph in two layouts, in the body in one
    assert not any("quantized" in name for name in stored(made))
    got, wanted = run(made, {"x": X}), run(source, {"x": X})
    assert np.abs(got - wanted).max() < (0.05 if dtype == "int8" else 0.8)
    ours = this_machine.evaluator(made).run(None, {"x": X})[0]
    assert np.abs(got - ours).max() <= 0.02  # a last digit tips an integer of MatMulNBits


# --- where weights are


def test_a_weight_in_a_constant_node_is_quantized() -> None:
    """ONNX Runtime's tool looks at initializers alone and leaves the MatMul in float."""
    constant = helper.make_node(
        "Constant", [], ["w"], "constant", value=onnx.numpy_helper.from_array(W)
    )
    multiply = helper.make_node("MatMul", ["x", "w"], ["y"], "matmul")
    source = model([constant, multiply], {}, {"x": ["N", SIDE]})
    made = quantized(source)
    assert stored(made) == {"w_quantized": "INT8"}
    error = np.abs(run(made, {"x": X}) - run(source, {"x": X}))
    assert (error <= matmul_bound(X, W)).all()


BRANCHES = f"""m (float[N,{SIDE}] x, bool c) => (float[N,{SIDE}] y) {{
  y = If (c) <then_branch = t () => (float[N,{SIDE}] p) {{ p = MatMul(x, w) }},
              else_branch = e () => (float[N,{SIDE}] q) {{ q = MatMul(x, v) }}>
}}"""


@pytest.mark.parametrize("taken", [True, False])
def test_branches_of_if_are_quantized_with_weights_from_outside(taken: bool) -> None:
    constants = {"w": W, "v": weights(8, SIDE, SIDE)}
    source = parsed(BRANCHES, constants)
    made = quantized(source)
    assert op_types(made).count("MatMulInteger") == 2
    assert stored(made) == {"w_quantized": "INT8", "v_quantized": "INT8"}
    feeds = {"x": X, "c": np.array(taken)}
    error = np.abs(run(made, feeds) - run(source, feeds))
    assert (error <= matmul_bound(X, constants["w" if taken else "v"])).all()


@pytest.mark.parametrize("taken", [True, False])
def test_blocks_in_a_body_have_their_integers_there(taken: bool) -> None:
    """ONNX Runtime refuses a model whose MatMulNBits would read integers from outside."""
    text = BRANCHES.replace("q = MatMul(x, v)", "q = Gemm<transB = 1>(x, w)")
    source = parsed(text, {"w": W})
    entry = QConfigDynamic(
        onnxq_default_dynamic_qconfig.weight, Precision.WEIGHT_ONLY_GROUPWISE, 16
    )
    made = quantized(source, entry)
    feeds = {"x": X, "c": np.array(taken)}
    error = np.abs(run(made, feeds) - run(source, feeds))
    assert (error <= matmul_bound(X, W if taken else W.T.copy())).all()


def test_a_branch_quantizes_what_it_owns_and_the_rest_stays_float() -> None:
    text = BRANCHES.replace("q = MatMul(x, v)", "q = Tanh(x)")
    made = quantized(parsed(text, {"w": W}))
    assert op_types(made).count("MatMulInteger") == 1
    assert "Tanh" in op_types(made)


LOOP = f"""m (float[N,{SIDE}] x) => (float[N,{SIDE}] y) {{
  count = Constant<value = int64 {{1}}>()
  go = Constant<value = bool {{1}}>()
  y = Loop (count, go, x) <body = b (int64 i, bool k, float[N,{SIDE}] h)
    => (bool kk, float[N,{SIDE}] g) {{ kk = Identity(k) g = MatMul(h, w) }}>
}}"""


def test_loop_bodies_are_quantized() -> None:
    source = parsed(LOOP, {"w": W})
    made = quantized(source)
    assert "MatMulInteger" in op_types(made)
    error = np.abs(run(made, {"x": X}) - run(source, {"x": X}))
    assert (error <= matmul_bound(X, W)).all()


SCAN = f"""m (float[{ROWS},1,{SIDE}] x, float[1,{SIDE}] s) => (float[{ROWS},1,{SIDE}] y) {{
  last, y = Scan (s, x) <num_scan_inputs = 1, body = b (float[1,{SIDE}] h, float[1,{SIDE}] t)
    => (float[1,{SIDE}] k, float[1,{SIDE}] o) {{ k = Identity(h) o = MatMul(t, w) }}>
}}"""


def test_scan_bodies_are_quantized() -> None:
    source = parsed(SCAN, {"w": W})
    made = quantized(source)
    assert "MatMulInteger" in op_types(made)
    feeds = {"x": X[:, None], "s": normal(1, SIDE)}
    error = np.abs(run(made, feeds) - run(source, feeds))[:, 0]
    assert all((error[i] <= matmul_bound(X[i : i + 1], W)).all() for i in range(ROWS))


FUNCTION = f"""m (float[N,{SIDE}] x) => (float[N,{SIDE}] y) {{ y = local.linear(x, w) }}
<domain: "local", opset_import: ["" : 18]>
linear (a, b) => (c) {{ c = MatMul(a, b) }}"""


def test_functions_are_inlined_and_quantized() -> None:
    made = quantized(parsed(FUNCTION, {"w": W}))
    assert "MatMulInteger" in op_types(made)
    assert not made.functions


# --- opsets and types


@pytest.mark.parametrize("opset", range(11, 23))
def test_opsets_11_to_22_are_quantized(opset: int) -> None:
    source = linear(opset)
    made = quantized(source)
    assert made.opset_imports[""] >= max(opset, 13)
    error = np.abs(run(made, {"x": X}) - run(source, {"x": X}))
    assert (error <= matmul_bound(X, W)).all()


def test_names_of_new_nodes_and_tensors_give_way_to_those_of_the_model() -> None:
    source = model(
        [
            helper.make_node("MatMul", ["x", "w"], ["w_quantized"], "matmul_sum"),
            helper.make_node("Relu", ["w_quantized"], ["y"], "w_scale"),
        ],
        {"w": W},
        {"x": ["N", SIDE]},
    )
    made = quantized(source)
    names = [v.name for n in made.graph for v in n.outputs] + list(made.graph.initializers)
    assert len(set(names)) == len(names)
    assert len({n.name for n in made.graph}) == len(made.graph)
    run(made, {"x": X})


def test_a_mapping_leaves_named_nodes_and_tensors_in_float() -> None:
    mapping = QConfigMapping(onnxq_default_dynamic_qconfig)
    made = quantized(both_ways(), mapping.set_node("plain", None))
    assert op_types(made).count("MatMulInteger") == 1
    assert stored(made)["w"] == "FLOAT"


def test_a_sum_ahead_of_a_layer_normalization_is_not_fused_with_it() -> None:
    text = """block (float[N,T,32] x) => (float[N,T,32] y)
        { m = MatMul(x, w) a = Add(m, b) s = Add(a, x) y = LayerNormalization(s, b) }"""
    source = parsed(text, {"w": W, "b": normal(SIDE, seed=2)})
    made = quantized(source)
    assert op_types(made)[-2:] == ["Sum", "LayerNormalization"]
    kernels = [node.op_type for node in runtime.optimized_graph(made).graph]
    assert kernels == ["DynamicQuantizeMatMul", "Sum", "LayerNormalization"]
