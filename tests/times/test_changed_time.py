"""Differences of a model's time against two predictions of the whole model."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.graph.sizes import sizes_of
from onnxq.graph.walk import node_name
from onnxq.operator import Precision
from onnxq.times import costs_of
from onnxq.times.changed_time import ChangedTime
from onnxq.times.time_model import predicted, step_of, walked

if TYPE_CHECKING:
    from onnxq.times import Costs

FORMS = (Precision.FLOAT, Precision.INT8, Precision.INT8_FLOAT_OUTPUT, None)
OPERATORS = ("Conv", "Relu", "Add", "Sigmoid", "Mul", "Transpose")
SHAPE = (1, 32, 8, 8)
W = np.ones((32, 32, 1, 1), np.float32)


def _form(forms: dict[str, Precision | None], node: ir.Node) -> Precision | None:
    return forms[node_name(node)]


def costs() -> Costs:
    table = costs_of("x86-vnni")
    assert table is not None
    return table


def random_model(seed: int, count: int = 24) -> ir.Model:
    """Operators of one shape that read any of the results before them."""
    rng = np.random.default_rng(seed)
    made, nodes = ["x"], []
    for i in range(count):
        kind = str(rng.choice(OPERATORS))
        operands = [str(rng.choice(made[-4:])) for _ in range(2 if kind in ("Add", "Mul") else 1)]
        inputs = [*operands, "w"] if kind == "Conv" else operands
        attributes: dict[str, Any] = {"perm": [0, 1, 3, 2]} if kind == "Transpose" else {}
        nodes.append(onnx.helper.make_node(kind, inputs, [f"v{i}"], name=f"n{i}", **attributes))
        made.append(f"v{i}")
    ends = [onnx.helper.make_tensor_value_info(name, 1, SHAPE) for name in made[-2:]]
    x = onnx.helper.make_tensor_value_info("x", 1, SHAPE)
    graph = onnx.helper.make_graph(nodes, "g", [x], ends, [onnx.numpy_helper.from_array(W, "w")])
    opsets = [onnx.helper.make_opsetid("", 20)]
    return ir.from_proto(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10))


@pytest.mark.parametrize("seed", range(12))
def test_difference_is_that_of_two_predictions(seed: int) -> None:
    model, table, rng = random_model(seed), costs(), np.random.default_rng(seed)
    sizes = sizes_of(model, {"x": SHAPE})
    forms = {node_name(node): FORMS[rng.integers(4)] for node in model.graph}
    found = walked(model, forms, sizes, table)
    times, base = ChangedTime(model, found, table), predicted(model, found, table).ns
    nodes = list(model.graph)
    for size in (0, 1, 2, 5, len(nodes)):
        moved = {nodes[i] for i in rng.choice(len(nodes), size, replace=False)}
        other = forms | {node_name(node): Precision.FLOAT for node in moved}
        whole = predicted(model, walked(model, other, sizes, table), table).ns
        changed = [node for node in moved if forms[node_name(node)] is not Precision.FLOAT]
        got = times.ns(changed, functools.partial(_form, other))
        assert got == pytest.approx(whole - base, rel=1e-9, abs=1e-6 * base)


def test_one_node_of_a_long_chain_walks_its_neighbours_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [
        onnx.helper.make_node("Elu", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(99)
    ]
    ends = [onnx.helper.make_tensor_value_info(name, 1, SHAPE) for name in ("v0", "v99")]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:])
    opsets = [onnx.helper.make_opsetid("", 20)]
    model = ir.from_proto(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10))
    forms = {node_name(node): Precision.INT8 for node in model.graph}
    sizes = sizes_of(model, {"v0": SHAPE})
    times = ChangedTime(model, walked(model, forms, sizes, costs()), costs())
    walks = Mock(wraps=step_of)
    monkeypatch.setattr("onnxq.times.changed_time.step_of", walks)
    middle = model.graph.node("n50")
    times.ns([middle], lambda n: Precision.FLOAT if n is middle else Precision.INT8)
    assert [call.args[0].name for call in walks.call_args_list] == ["n50", "n51"]
