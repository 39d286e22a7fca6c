from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from onnxq.checking.differences import Unit
from onnxq.checking.end_to_end import EndToEnd
from onnxq.ort import runtime
from tests.examples import as_ir, model, quantized_matmul, weights
from tests.this_machine import SATURATION_MODE

if TYPE_CHECKING:
    from onnxq.core.arrays import Array


def feeds() -> dict[str, Array]:
    return {"x": weights(0, 3, 8)}


def wanted() -> dict[str, Array]:
    with runtime.open_session(as_ir(quantized_matmul(np.array(3, np.uint8)))) as session:
        return dict(zip(session.outputs, session.run(feeds()), strict=True))


def test_equal_outputs_do_not_differ() -> None:
    whole = EndToEnd(as_ir(quantized_matmul(np.array(3, np.uint8))), 1, SATURATION_MODE)
    assert not whole.differs(feeds(), wanted())
    (output,) = whole.outputs()
    assert (output.name, output.elements, output.differing) == ("y", 24, 0)
    assert output.unit == Unit.SCALE


def test_outputs_that_differ_are_counted_in_steps_of_their_scale() -> None:
    whole = EndToEnd(as_ir(quantized_matmul(np.array(3, np.uint8))), 1, SATURATION_MODE)
    y = wanted()["y"].astype(np.float32)
    y[0, 0] += np.float32(3 * 0.02)
    assert whole.differs(feeds(), {"y": y})
    (output,) = whole.outputs()
    assert (output.differing, output.largest) == (1, 3)


def test_what_differed_before_a_batch_that_cannot_run_is_still_told() -> None:
    whole = EndToEnd(as_ir(quantized_matmul(np.array(3, np.uint8))), 1, SATURATION_MODE)
    assert whole.differs(feeds(), {"y": wanted()["y"].astype(np.float32) + 1})
    assert not whole.differs({"x": weights(0, 3, 7)}, wanted())
    assert whole.counts.problem
    (output,) = whole.outputs()
    assert output.differing == output.elements == 24


def test_float_outputs_differ_in_ulps() -> None:
    target = as_ir(quantized_matmul(np.array(3, np.uint8), requantized=False))
    whole = EndToEnd(target, 1, SATURATION_MODE)
    with runtime.open_session(target) as session:
        (y,) = session.run(feeds())
    assert not whole.differs(feeds(), {"y": y})
    assert whole.outputs()[0].unit == Unit.ULP


def test_the_first_node_in_the_order_of_the_other_graph_is_named() -> None:
    whole = EndToEnd(as_ir(quantized_matmul(np.array(3, np.uint8))), 1, SATURATION_MODE)
    integers = np.zeros((3, 8), np.uint8)
    results = {("x_q", "x_quantized"): integers, ("matmul", "product_quantized"): integers}
    whole.explain(feeds(), wanted(), results)
    assert whole.counts.first_difference == "x_q"


def test_nodes_are_matched_by_name_where_values_are_called_otherwise() -> None:
    whole = EndToEnd(as_ir(quantized_matmul(np.array(3, np.uint8))), 1, SATURATION_MODE)
    integers = np.zeros((3, 8), np.uint8)
    whole.explain(feeds(), wanted(), {("matmul_token_4", "else"): integers})
    assert whole.counts.first_difference == "matmul_token_4"


def test_a_product_of_scales_is_not_what_is_in_front_of_an_output() -> None:
    make = helper.make_node
    nodes = [
        make("Mul", ["s", "s"], ["scales"], "scales"),
        make("Mul", ["x", "scales"], ["scaled"], "scaled"),
        make("Softmax", ["scaled"], ["y"], "softmax"),
        make("Add", ["x", "scales"], ["z"], "add"),
    ]
    source = model(nodes, {"s": np.array(0.3, np.float32)}, {"x": ["N", 8]}, {"y": 1, "z": 1})
    whole = EndToEnd(as_ir(source), 1, SATURATION_MODE)
    other = np.ones((3, 8), np.float32)
    assert whole.differs(feeds(), {"y": other, "z": other})
    whole.explain(feeds(), {"y": other, "z": other}, {})
    assert [o.behind for o in whole.outputs()] == ["Softmax 'softmax'", "Mul 'scales'"]


@pytest.mark.parametrize("op_type", ["Frob", "MatMul"])
def test_what_cannot_run_is_a_problem_not_an_exception(op_type: str) -> None:
    """Frob has no implementation; this MatMul is refused when it runs."""
    node = helper.make_node(op_type, ["x", "w"], ["y"], "node")
    whole = EndToEnd(
        as_ir(model([node], {"w": weights(1, 5, 5)}, {"x": ["N", 8]})), 1, SATURATION_MODE
    )
    assert not whole.differs(feeds(), {"y": weights(0, 3, 5)})
    assert f"{op_type}" in whole.counts.problem
    assert whole.outputs() == ()


def test_tensors_of_a_sequence_are_compared_one_by_one() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n,3] x) => (seq(float[n,3]) y)
      { a = Neg(x) y = SequenceConstruct(a, x) }"""
    whole = EndToEnd(ir.from_onnx_text(text), 1, SATURATION_MODE)
    x = weights(0, 2, 3)
    assert not whole.differs({"x": x}, {"y": [-x, x]})  # type: ignore[dict-item]
    assert whole.outputs()[0].elements == 12
    assert whole.differs({"x": x}, {"y": [-x, x + 1]})  # type: ignore[dict-item]
    assert not whole.outputs()[0].problem
    whole.differs({"x": x}, {"y": [-x]})  # type: ignore[dict-item]
    assert "as many tensors" in whole.outputs()[0].problem
