"""The node that ONNX Runtime makes of MatMul and Add, asked of the installed version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.ort import runtime
from onnxq.ort.matmul_add import matmul_add, matmul_add_of
from tests.graph.qdq import Graph

if TYPE_CHECKING:
    import onnx_ir as ir


def model_of(shape: tuple[int | str, ...], bias: tuple[int, ...], swapped: bool) -> ir.Model:
    g = Graph()
    g.op("MatMul", [g.qdq("x"), g.weight((6, 5), 1)], "m")
    random = np.random.default_rng(3).standard_normal(bias)
    operands = ["m", g.constant("b", random, np.float32)]
    g.op("Add", operands[::-1] if swapped else operands, "s")
    return g.model(g.qdq("s", 0.05, 77), shape=shape)


def node_of(model: ir.Model, op_type: str) -> ir.Node:
    return next(node for node in model.graph if node.op_type == op_type)


@pytest.mark.parametrize("swapped", [False, True], ids=["matmul first", "bias first"])
@pytest.mark.parametrize(
    "bias", [(5,), (1, 5), (4, 5), (4, 1), (1,), (), (1, 1, 5)], ids=lambda b: "x".join(map(str, b))
)
@pytest.mark.parametrize(
    "shape", [(4, 6), ("N", 6), (2, 4, 6), (2, "T", 6), (6,)], ids=lambda s: "x".join(map(str, s))
)
def test_it_makes_a_gemm_and_rounds_its_bias_where_we_say(
    shape: tuple[int | str, ...], bias: tuple[int, ...], swapped: bool
) -> None:
    model = model_of(shape, bias, swapped)
    found = matmul_add(node_of(model, "MatMul"))
    assert found is not None
    assert found.slot == (0 if swapped else 1)
    behind = matmul_add_of(node_of(model, "Add"))
    assert behind is not None
    assert behind.matmul is found.matmul
    made = {node.op_type for node in runtime.optimized_graph(model).graph}
    assert found.becomes_gemm == bool(made & {"Gemm", "QGemm"})
    assert found.rounds_bias == ("QGemm" in made)


def test_a_matmul_that_others_read_has_no_bias() -> None:
    g = Graph()
    g.op("MatMul", [g.qdq("x"), g.weight((6, 5), 1)], "m")
    g.op("Add", ["m", g.vector(5)], "s")
    g.op("Mul", ["m", "s"], "y")
    model = g.model("y", shape=(4, 6))
    assert matmul_add(node_of(model, "MatMul")) is None
    assert matmul_add_of(node_of(model, "Add")) is None
    assert matmul_add(node_of(model, "Add")) is None
