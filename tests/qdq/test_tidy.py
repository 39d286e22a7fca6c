from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.ort import runtime
from onnxq.qdq.tidy import as_format, count_quantizers, output_scales, tidy_quantized
from tests.op_types import op_types

if TYPE_CHECKING:
    import numpy.typing as npt

Q, DQ = "QuantizeLinear", "DequantizeLinear"
HEADER = """<ir_version: 10, opset_import: ["" : 21]>
g (float[b,2,4,4] x) => (float[b,?,?,?] y)
<float s = {0.1}, uint8 z = {10}, float t = {0.05}, uint8 zero = {0},
 int8[2,2,1,1] w = {1, 2, -3, 4}, float[2] ws = {0.1, 0.2}, int8[2] wz = {0, 0},
 float lo = {0.0}, float six = {6.0}, float one = {1.0}, float two = {2.0}, float three = {3.0},
 int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}, int64[2] space = {2, 3}>
{
  xq = QuantizeLinear(x, s, z)
  xd = DequantizeLinear(xq, s, z)
  BODY
}
"""


def model_of(*lines: str) -> ir.Model:
    text = HEADER.replace("BODY", "\n  ".join(lines))
    return ir.from_proto(onnx.parser.parse_model(text))


def run(model: ir.Model, seed: int = 0) -> npt.NDArray[np.float32]:
    x = np.random.default_rng(seed).normal(size=(2, 2, 4, 4)).astype(np.float32) * 3
    with runtime.open_session(model, optimization=runtime.Optimization.NONE) as session:
        return np.asarray(session.run({"x": x})[0], np.float32)


def tidied(model: ir.Model) -> ir.Model:
    """The rewritten model, which gives the same numbers."""
    wanted = run(model)
    copy = model.clone()
    tidy_quantized(copy)
    np.testing.assert_array_equal(run(copy), wanted)
    return copy


def test_data_movement_gets_integers_of_its_own() -> None:
    model = tidied(
        model_of(
            "p = MaxPool<kernel_shape=[2,2]>(xd)",
            "y = Transpose<perm=[0,2,1,3]>(p)",
        )
    )
    assert op_types(model) == [Q, DQ, "MaxPool", Q, DQ, "Transpose", Q, DQ]
    ((name, scale),) = output_scales(model)
    assert name == "y"
    assert scale == pytest.approx(0.1)


def test_what_only_runs_on_integers_is_written_on_integers() -> None:
    model = tidied(model_of('y = Pad<mode="reflect">(xd, pads)'))
    assert op_types(model) == [Q, DQ, "Pad", DQ] or op_types(model) == [Q, "Pad", DQ]


def test_a_clamp_before_q_goes_where_its_range_covers_the_integers() -> None:
    model = tidied(
        model_of(
            "a = Add(xd, xd)",
            "r = Relu(a)",
            "rq = QuantizeLinear(r, t, zero)",
            "y = DequantizeLinear(rq, t, zero)",
        )
    )
    assert op_types(model) == [Q, DQ, "Add", Q, DQ]


def test_a_clamp_that_cuts_integers_off_becomes_one_on_integers() -> None:
    model = tidied(
        model_of(
            "a = Add(xd, xd)",
            "c = Clip(a, lo, six)",
            "cq = QuantizeLinear(c, s, z)",
            "y = DequantizeLinear(cq, s, z)",
        )
    )
    assert op_types(model) == [Q, DQ, "Add", Q, "Clip", DQ]
    assert model.graph[4].inputs[0].dtype == ir.DataType.UINT8  # type: ignore[union-attr]


def test_clamps_behind_one_another_end_where_the_last_one_says() -> None:
    model = tidied(
        model_of(
            "a = Add(xd, xd)",
            "c = Clip(a, lo, one)",
            "d = Clip(c, two, three)",
            "cq = QuantizeLinear(d, s, z)",
            "y = DequantizeLinear(cq, s, z)",
        )
    )
    assert op_types(model).count("Clip") == 1


def test_a_clamp_of_integers_is_one_on_integers() -> None:
    model = tidied(model_of("y = Clip(xd, lo, six)"))
    assert op_types(model) == [Q, "Clip", DQ]


def test_a_clamp_between_equal_qparams_is_one_clip_on_integers() -> None:
    model = tidied(
        model_of(
            "r = Relu(xd)",
            "rq = QuantizeLinear(r, s, z)",
            "y = DequantizeLinear(rq, s, z)",
        )
    )
    assert op_types(model) == [Q, "Clip", DQ]


def test_rounding_twice_to_one_qparams_is_rounding_once() -> None:
    model = tidied(model_of("a = QuantizeLinear(xd, s, z)", "y = DequantizeLinear(a, s, z)"))
    assert op_types(model) == [Q, DQ]


def test_a_transposed_weight_is_stored_transposed() -> None:
    model = tidied(
        model_of(
            "wd = DequantizeLinear<axis=0>(w, ws, wz)",
            "wt = Transpose<perm=[1,0,2,3]>(wd)",
            "c = Conv(xd, wt)",
            "cq = QuantizeLinear(c, s, z)",
            "y = DequantizeLinear(cq, s, z)",
        )
    )
    assert "Transpose" not in op_types(model)
    weight = next(node for node in model.graph if node.attributes.get_int("axis", 0) == 1)
    assert weight.op_type == DQ


def test_a_mean_over_space_is_a_global_pool_right_before_its_q() -> None:
    model = tidied(
        model_of(
            "m = ReduceMean<keepdims=1>(xd, space)",
            "r = Transpose<perm=[1,0,2,3]>(m)",
            "rq = QuantizeLinear(r, t, z)",
            "y = DequantizeLinear(rq, t, z)",
        )
    )
    found = op_types(model)
    assert found[found.index("GlobalAveragePool") + 1] == Q


def test_a_value_that_others_read_unrounded_is_not_rounded() -> None:
    model = tidied(
        model_of(
            "a = Add(xd, xd)",
            "p = Transpose<perm=[0,1,3,2]>(a)",
            "pq = QuantizeLinear(p, t, z)",
            "pd = DequantizeLinear(pq, t, z)",
            "y = Add(a, pd)",
        )
    )
    assert op_types(model).count(Q) == 2


def test_marks_stay_only_before_what_is_quantized_again() -> None:
    kept = tidied(
        model_of(
            "m = Max(xd)",
            "e = Sigmoid(m)",
            "eq = QuantizeLinear(e, t, z)",
            "y = DequantizeLinear(eq, t, z)",
        )
    )
    assert "Max" in op_types(kept)
    gone = tidied(model_of("m = Max(xd)", "y = Sigmoid(m)"))
    assert "Max" not in op_types(gone)


def test_integers_are_named_after_their_tensors_and_qparams_are_counted() -> None:
    model = tidied(model_of("y = Relu(xd)"))
    names = {value.name for node in model.graph for value in node.outputs}
    assert "x_quantized" in names
    assert "y_quantized" in names
    assert count_quantizers(model) == 1


def test_qoperator_says_so_in_the_metadata() -> None:
    model = tidied(model_of("y = MaxPool<kernel_shape=[2,2]>(xd)"))
    made = as_format(model, "qoperator")
    assert made.metadata_props["onnxq.format"] == "qoperator"
    np.testing.assert_array_equal(run(made), run(model))
