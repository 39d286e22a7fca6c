from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import ModelError
from onnxq.graph.checks import check_quantizable

if TYPE_CHECKING:
    from tests.graph.conftest import Parse


def test_a_float_model_passes(parse: Parse) -> None:
    check_quantizable(
        parse("g (float[2] x) => (float[2] y) { y = Add(x, w) }", {"w": np.ones(2, "f")})
    )


def test_a_graph_without_nodes_is_refused(parse: Parse) -> None:
    with pytest.raises(ModelError, match="nothing to quantize"):
        check_quantizable(parse("g (float[2] x) => (float[2] x) { }"))


@pytest.mark.parametrize(
    "node",
    [
        "y = QuantizeLinear(x, s)",
        "q = QuantizeLinear(x, s) y = DequantizeLinear(q, s)",
        "y = QLinearMatMul(x, s, s, s, s, s, s, s)",
        "y = MatMulInteger(x, s)",
        "y = ConvInteger(x, s)",
        "y, a, b = DynamicQuantizeLinear(x)",
    ],
)
def test_a_quantized_model_is_refused_and_the_node_named(node: str, parse: Parse) -> None:
    model = parse(f"g (float[2] x, float s) => (float[2] y) {{ [culprit] {node} }}")
    with pytest.raises(ModelError, match=r"quantized already: node 'culprit'.*float model"):
        check_quantizable(model)


def test_quantized_nodes_of_microsoft_are_found_in_branches(parse: Parse) -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) {
        y = If(c) <then_branch = t () => (float[2] p) { p = QLinearAdd(x, x, x, x, x, x, x, x) },
                   else_branch = e () => (float[2] q) { q = Neg(x) }> }"""
    )
    branch = model.graph.node(0).attributes["then_branch"].as_graph()
    branch.node(0).domain = "com.microsoft"
    with pytest.raises(ModelError, match="'p' is a QLinearAdd"):
        check_quantizable(model)
    branch.node(0).domain = "my.own"
    check_quantizable(model)


def test_models_of_double_alone_are_refused_with_the_remedy(parse: Parse) -> None:
    model = parse("g (double[2] x) => (double[2] y) { y = Relu(x) }")
    with pytest.raises(ModelError, match=r"tensor 'x' is double.*model.float\(\)"):
        check_quantizable(model)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2] x) => (float[2] y) { a = Cast<to=11>(x) b = Mul(a, w) y = Cast<to=1>(b) }",
        "g (float[2] x) => (double[2] y) { a = Cast<to=11>(x) y = Mul(a, w) }",
    ],
)
def test_double_beside_float32_passes(text: str, parse: Parse) -> None:
    check_quantizable(parse(text, {"w": np.ones(2)}))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_float_of_16_bits_passes(name: str, parse: Parse) -> None:
    check_quantizable(parse(f"g ({name}[2] x) => ({name}[2] y) {{ y = Relu(x) }}"))


@pytest.mark.parametrize("op_type", ["MatMulNBits", "GatherBlockQuantized", "QMoE"])
def test_weights_in_groups_pass(op_type: str, parse: Parse) -> None:
    model = parse(f"g (float[2, 2] x, int8[2] w) => (float[2, 2] y) {{ y = {op_type}(x, w) }}")
    model.graph.node(0).domain = "com.microsoft"
    check_quantizable(model)
