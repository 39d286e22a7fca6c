"""Unfolded nodes: their matrices give the node's result, in every case of its operator."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxq import catalog
from onnxq.operator import Case, Rule, Unfolded
from onnxq.ort import runtime

OPERATORS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def model_of(op_type: str, case: Case) -> ir.Model:
    """The case as a model: constants are initializers."""
    given: list[ir.Value] = []
    constants: list[ir.Value] = []
    for slot, array in enumerate(case.inputs):
        assert array is not None
        kind = ir.TensorType(ir.DataType.FLOAT)
        value = ir.Value(name=f"i{slot}", shape=ir.Shape(array.shape), type=kind)
        if slot in case.constants:
            value.const_value = ir.Tensor(array, name=value.name)
        (constants if slot in case.constants else given).append(value)
    attributes = ir.convenience.convert_attributes(dict(case.attributes or {}))  # type: ignore[arg-type]  # as onnx takes them
    node = ir.Node("", op_type, [*given, *constants], attributes, name="n")
    node.outputs[0].name, node.outputs[0].type = "y", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(
        given,
        [node.outputs[0]],
        nodes=[node],
        initializers=constants,
        opset_imports={"": case.opset},
        name="g",
    )
    return ir.Model(graph, ir_version=10)


def weighted_cases() -> list[tuple[str, Case]]:
    """Cases of the operators in which the second input is a weight."""
    found = []
    for op_type in OPERATORS:
        operator = catalog.find(op_type, "")
        assert operator is not None
        for case in operator.cases():
            if 1 not in case.constants:
                continue
            rule = operator.rule(model_of(op_type, case).graph[0])
            if isinstance(rule, Rule) and rule.weight is not None:
                found.append((op_type, case))
    return found


CASES = weighted_cases()


@pytest.mark.parametrize(("op_type", "case"), CASES, ids=[f"{o}-{c.name}" for o, c in CASES])
def test_matrices_give_the_result_of_the_node(op_type: str, case: Case) -> None:
    model = model_of(op_type, case)
    operator = catalog.find(op_type, "")
    assert operator is not None
    node = model.graph[0]
    unfolded, rule = operator.unfolded(node), operator.rule(node)
    assert isinstance(unfolded, Unfolded)
    assert isinstance(rule, Rule)
    assert rule.weight is not None
    x, w, *bias = (np.asarray(array, np.float32) for array in case.inputs)
    with runtime.open_session(model, threads=1) as session:
        y = session.run({"i0": x})[0].astype(np.float32)
    rows, results = (unfolded.rows(x, slice(None)), unfolded.results(y, slice(None)))
    matrix = unfolded.matrix(w)
    assert rows.shape[1] == results.shape[1] == unfolded.places(x)
    added = bias[0].reshape(len(matrix), 1, -1) if bias else 0.0
    made = np.matmul(rows, np.swapaxes(matrix, 1, 2)) + added
    np.testing.assert_allclose(made, results, rtol=1e-4, atol=1e-4)  # sums in another order
    assert np.array_equal(unfolded.weight(np.array(matrix)), w)
    assert np.array_equal(unfolded.rows(x, slice(1, None, 3)), rows[:, 1::3])
    assert np.array_equal(unfolded.results(y, slice(1, None, 3)), results[:, 1::3])
    along = [-1 if axis == rule.weight.axis % w.ndim else 1 for axis in range(w.ndim)]
    channels = np.arange(w.shape[rule.weight.axis]).reshape(along)
    by_row = unfolded.matrix(np.broadcast_to(channels, w.shape))
    assert (by_row == by_row[..., :1]).all()
