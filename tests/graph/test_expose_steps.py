from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq import runtime
from onnxq.graph.expose_steps import expose_steps
from onnxq.operator import Case, DynamicForm
from onnxq.operators.gru import GRU
from tests.operators.dynamic_case import dynamic_model

if TYPE_CHECKING:
    import onnx_ir as ir

CASES = {case.name: case for case in GRU().cases()}


def model_of(case: Case) -> ir.Model:
    return dynamic_model(GRU(), case, DynamicForm.INTEGER)


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
