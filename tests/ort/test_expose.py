from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from onnxq.errors import ModelError, UnsupportedError
from onnxq.ort.expose import expose, observable

NESTED = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[n,3] x, bool outer, bool inner) => (float[n,3] y) {
  a = Relu(x)
  y = If (outer) <
    then_branch = th () => (float[n,3] t2) {
      t1 = Neg(a)
      t2 = If (inner) <
        then_branch = tt () => (float[n,3] u2) { u1 = Abs(t1) u2 = Neg(u1) },
        else_branch = te () => (float[n,3] v) { v = Exp(t1) }
      >
    },
    else_branch = el () => (float[n,3] e) { e = Sigmoid(a) }
  >
}
"""
X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)


def _nested() -> ir.Model:
    return ir.serde.deserialize_model(onnx.parser.parse_model(NESTED))


def _run(model: ir.Model, **flags: bool) -> dict[str, npt.NDArray[np.float32]]:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    feeds = {"x": X} | {name: np.array(flag) for name, flag in flags.items()}
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def test_a_main_graph_tensor_becomes_an_output_under_its_own_name() -> None:
    exposed = expose(_nested(), ["a"])
    assert exposed.outputs == {"a": "a"}
    np.testing.assert_array_equal(
        _run(exposed.model, outer=True, inner=True)["a"], np.maximum(X, 0)
    )


def test_the_original_outputs_stay_first_and_the_original_model_is_untouched() -> None:
    model = _nested()
    before = ir.to_proto(model).SerializeToString()
    exposed = expose(model, ["a", "u1"])
    assert exposed.model.graph.outputs[0].name == "y"
    assert ir.to_proto(model).SerializeToString() == before


def test_a_graph_output_is_not_exposed_twice() -> None:
    assert len(expose(_nested(), ["y"]).model.graph.outputs) == 1


def test_only_the_branches_that_ran_give_elements() -> None:
    tensors = ["t1", "u1", "u2", "v", "e"]
    exposed = expose(_nested(), tensors)
    ran = {
        (True, True): {"t1", "u1", "u2"},
        (True, False): {"t1", "v"},
        (False, True): {"e"},
        (False, False): {"e"},
    }
    for (outer, inner), expected in ran.items():
        got = _run(exposed.model, outer=outer, inner=inner)
        assert {t for t in tensors if got[exposed.outputs[t]].size} == expected


def test_a_branch_tensor_has_its_own_values() -> None:
    exposed = expose(_nested(), ["u1", "u2"])
    got = _run(exposed.model, outer=True, inner=True)
    np.testing.assert_array_equal(got[exposed.outputs["u1"]], np.maximum(X, 0))
    np.testing.assert_array_equal(got[exposed.outputs["u2"]], -np.maximum(X, 0))
    np.testing.assert_array_equal(got["y"], -np.maximum(X, 0))


def test_exposing_keeps_names_unique_even_where_the_model_uses_the_new_name() -> None:
    model = _nested()
    model.graph[0].outputs[0].name = "t1_exposed"
    exposed = expose(model, ["t1"])
    assert exposed.outputs["t1"] not in ("t1", "t1_exposed")


def test_every_tensor_that_can_be_observed_is_listed_in_graph_order() -> None:
    assert observable(_nested()) == ["a", "y", "t1", "t2", "u1", "u2", "v", "e"]


def test_an_unknown_tensor_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ModelError, match=r"tensor 't11' is not in the model\. Did you mean 't1'"):
        expose(_nested(), ["t11"])


def test_a_constant_is_refused() -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Add(x, w) }
    """
    with pytest.raises(ModelError, match="'w' is a constant"):
        expose(ir.serde.deserialize_model(onnx.parser.parse_model(text)), ["w"])


def test_a_tensor_in_a_loop_body_is_refused() -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[3] x, int64 n, bool c) => (float[3] y) {
      y = Loop (n, c, x) <body = b (int64 i, bool ci, float[3] s) => (bool co, float[3] so) {
        co = Identity(ci)
        inner = Relu(s)
        so = Neg(inner)
      }>
    }
    """
    with pytest.raises(UnsupportedError, match="'inner' is inside the body of a Loop or Scan"):
        expose(ir.serde.deserialize_model(onnx.parser.parse_model(text)), ["inner"])


INTEGERS_IN_A_BRANCH = """
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[n,3] x, bool outer) => (float[n,3] y) <float s = {{0.1}}, {kind} z = {{{zero}}}> {{
  y = If (outer) <
    then_branch = th () => (float[n,3] t) {{
      q = QuantizeLinear(x, s, z)
      sum = com.microsoft.QLinearAdd(q, s, z, q, s, z, s, z)
      t = DequantizeLinear(sum, s, z)
    }},
    else_branch = el () => (float[n,3] e) {{ e = Neg(x) }}
  >
}}
"""


@pytest.mark.parametrize(("kind", "zero"), [("int8", 0), ("uint8", 128)])
def test_integers_of_a_branch_go_out_in_their_type_though_the_file_does_not_say_it(
    kind: str, zero: int
) -> None:
    text = INTEGERS_IN_A_BRANCH.format(kind=kind, zero=zero)
    loaded = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    exposed = expose(loaded, ["q", "sum"])  # onnx knows no type of what com.microsoft computes
    integers = (np.rint(X * 10) + zero).astype(kind)
    ran = _run(exposed.model, outer=True)
    np.testing.assert_array_equal(ran[exposed.outputs["q"]], integers)
    assert ran[exposed.outputs["sum"]].dtype == kind
    assert ran[exposed.outputs["sum"]].shape == X.shape
    assert not _run(exposed.model, outer=False)[exposed.outputs["sum"]].size
