from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.graph.passes.names import UniqueNames
from tests.examples import tensor_of

if TYPE_CHECKING:
    from tests.graph.conftest import Parse, Run

TWO_BRANCHES = """g (bool c, float[2] x) => (float[2] y) {
    [n] t = Relu(x)
    [n] y = If(c) <then_branch = a () => (float[2] p) { [n] s = Neg(t) p = Abs(s) },
                   else_branch = b () => (float[2] p) { [n] s = Neg(t) p = Exp(s) }> }"""


def names(model: ir.Model) -> list[str | None]:
    return [v.name for n in model.graph.all_nodes() for v in n.outputs]


def test_names_are_unique_over_branches_and_the_first_keeps_its_own(parse: Parse) -> None:
    model = parse(TWO_BRANCHES)
    assert UniqueNames()(model).modified
    assert names(model) == ["t", "y", "s", "p", "s_1", "p_1"]
    assert [n.name for n in model.graph.all_nodes()] == [
        "n",
        "n_1",
        "n_2",
        "Abs_p",
        "n_3",
        "Exp_p_1",
    ]
    assert not UniqueNames()(model).modified


def test_the_model_still_runs_the_same(parse: Parse, run: Run) -> None:
    model = parse(TWO_BRANCHES.replace("[n]", ""))
    feeds = {"c": np.array(False), "x": np.array([1, -1], np.float32)}
    before = run(model, feeds)[0]
    UniqueNames()(model)
    np.testing.assert_array_equal(run(model, feeds)[0], before)


def test_inputs_outputs_and_weights_of_the_main_graph_come_first(parse: Parse) -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) {
        u = If(c) <then_branch = a () => (float[2] w) { w = Neg(x) },
                   else_branch = b () => (float[2] y) { y = Neg(x) }>
        y = Add(u, w) }""",
        {"w": np.ones(2, np.float32)},
    )
    UniqueNames()(model)
    assert "w" in model.graph.initializers
    assert model.graph.outputs[0].name == "y"
    assert names(model) == ["u", "w_1", "y_1", "y"]


def test_absent_optional_outputs_stay_absent(parse: Parse) -> None:
    model = parse(
        "g (float[2,1,4] x) => (float[1,1,3] h) { _, h = GRU<hidden_size=3>(x, w, r) }",
        {"w": np.ones((1, 9, 4), np.float32), "r": np.ones((1, 9, 3), np.float32)},
    )
    gru = model.graph.node(0)
    gru.outputs[0].name = ""
    UniqueNames()(model)
    assert [v.name for v in gru.outputs] == ["", "h"]


def test_a_renamed_weight_leaves_the_shared_tensor_alone(parse: Parse) -> None:
    model = parse(TWO_BRANCHES)
    tensor = ir.tensor(np.ones(2, np.float32), name="t")
    branch = model.graph.node(1).attributes["then_branch"].as_graph()
    weight = ir.Value(name="t", const_value=tensor, type=ir.TensorType(tensor.dtype))
    branch.register_initializer(weight)
    branch.node(1).replace_input_with(0, weight)
    UniqueNames()(model)
    assert weight.name == "t_1"
    assert tensor_of(weight).name == "t_1"
    assert tensor.name == "t"


def test_unnamed_values_get_names() -> None:
    x = ir.val("x", ir.DataType.FLOAT, [1])
    first = ir.node("Relu", [x])
    second = ir.node("Relu", first.outputs)
    model = ir.Model(ir.Graph([x], second.outputs, nodes=[first, second]), ir_version=10)
    first.outputs[0].name = None
    first.name = None
    UniqueNames()(model)
    assert all(names(model))
    assert all(n.name for n in model.graph)
