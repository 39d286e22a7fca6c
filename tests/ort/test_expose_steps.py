from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.graph.types import infer_types
from onnxq.operator import Case, Precision
from onnxq.operators.gru import GRU
from onnxq.ort import runtime
from onnxq.ort.expose_steps import Steps, expose_steps
from tests.operators.dynamic_case import dynamic_model

if TYPE_CHECKING:
    from collections.abc import Collection

CASES = {case.name: case for case in GRU().cases()}


def model_of(case: Case) -> ir.Model:
    return dynamic_model(GRU(), case, Precision.DYNAMIC_INT8)


def quantizes(node: ir.Node) -> bool:
    return node.op_type == "DynamicQuantizeLinear"


def test_each_step_of_a_body_is_one_slice() -> None:
    case = CASES["backward"]
    model = model_of(case)
    names = expose_steps(model, quantizes).outputs
    state = "node_scan0_h"
    assert state in names
    with runtime.open_session(model, threads=1) as session:
        wanted = ["out0", names[state]]
        y, states = (
            np.asarray(a) for a in session.run({"in0": np.asarray(case.inputs[0])}, wanted)
        )
    assert states.shape == (5, 2, 4)
    assert not states[0].any()  # starts from zeros
    assert np.array_equal(states[1:], y[:0:-1, 0])  # in the order in which the steps run


def test_a_body_whose_inputs_have_no_shape_is_left_alone() -> None:
    model = model_of(CASES["plain"])
    (scan,) = (node for node in model.graph if node.op_type == "Scan")
    scan.attributes["body"].as_graph().inputs[1].shape = None
    steps = expose_steps(model, quantizes)
    assert not steps.outputs
    assert set(steps.hidden.values()) == {"it is in the body of a Scan whose inputs have no shapes"}
    assert len(scan.outputs) == 2


LOOP = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[n] x, int64 count, bool c) => (float[n] last, float[t,n] all) {
  last, all = Loop (count, c, x) <body = b (int64 i, bool k, float[n] h)
    => (bool again, float[n] h2, float[n] shown) {
      again = Identity(k) twice = Add(h, h) h2 = Neg(twice) shown = Identity(h2)
    }>
}
"""


def opened(text: str, ops: Collection[str]) -> tuple[ir.Model, Steps]:
    model = ir.from_proto(onnx.parser.parse_model(text))
    infer_types(model)
    return model, expose_steps(model, lambda node: node.op_type in ops)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_each_step_of_a_loop_is_one_entry_of_a_sequence(count: int) -> None:
    model, steps = opened(LOOP, ["Add"])
    assert list(steps.outputs) == ["h", "twice"]
    x = np.array([1, -2], np.float32)
    feeds = {"x": x, "count": np.array(count), "c": np.array(True)}
    with runtime.open_session(model, threads=1) as session:
        last, stacked, h, twice = session.run(feeds)
    states = [x * np.float32((-2) ** step) for step in range(count + 1)]
    assert np.array_equal(last, states[-1])
    assert len(stacked) == len(h) == len(twice) == count
    for step in range(count):
        assert np.array_equal(h[step], states[step])
        assert np.array_equal(twice[step], -states[step + 1])
        assert np.array_equal(stacked[step], states[step + 1])


def test_nothing_is_added_where_no_node_is_wanted() -> None:
    model, steps = opened(LOOP, [])
    assert (steps.outputs, steps.hidden) == ({}, {})
    assert [len(node.outputs) for node in model.graph] == [2]


def test_types_that_do_not_go_out_are_named() -> None:
    text = LOOP.replace(
        "twice = Add(h, h)",
        "one = Constant<value = float {1}>() z = Constant<value_int = 0>() "
        "z4 = Cast<to = 22>(z) q = QuantizeLinear(h, one, z4) twice = DequantizeLinear(q, one)",
    )
    _, steps = opened(text, ["QuantizeLinear", "DequantizeLinear"])
    assert "twice" in steps.outputs
    assert steps.hidden["q"] == (
        "'q' in the body of a Loop or Scan is INT4, which cannot be handed out step by step"
    )


def test_names_of_the_model_are_not_taken() -> None:
    model, steps = opened(LOOP.replace("all", "twice_steps"), ["Add"])
    assert steps.outputs["twice"] not in ("twice", "twice_steps")
    names = [v.name for g in model.graphs() for node in g for v in node.outputs]
    assert len(names) == len(set(names))
