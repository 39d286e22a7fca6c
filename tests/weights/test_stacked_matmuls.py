from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from onnxq.errors import ModelError
from onnxq.ort.runtime import open_session
from onnxq.weights.plan_weights import plan_weights
from onnxq.weights.stacked_matmuls import split_stacked_matmuls
from onnxq.weights.weight_plan import WeightRequest
from tests.dynamic_models import normal, parsed
from tests.weights.block_models import canonical

if TYPE_CHECKING:
    import onnx

    from onnxq.core.arrays import Array

STACK = normal(4, 64, 32)
OPERANDS = {
    "float[4, t, 64] x": "float[4, t, 32] y",
    "float[1, t, 64] x": "float[4, t, 32] y",
    "float[t, 64] x": "float[4, t, 32] y",
    "float[n, 4, t, 64] x": "float[n, 4, t, 32] y",
}
SIZES = {"n": 2, "t": 5}


def stacked(x: str, y: str) -> onnx.ModelProto:
    return parsed(f"g ({x}) => ({y}) {{ [experts] y = MatMul(x, w) }}", {"w": STACK})


def operand(x: str) -> Array:
    axes = x[x.index("[") + 1 : x.index("]")].split(", ")
    return normal(*(SIZES.get(axis) or int(axis) for axis in axes), seed=3)


@pytest.mark.parametrize(("x", "y"), OPERANDS.items())
def test_a_stack_of_matrices_is_split_without_another_result(x: str, y: str) -> None:
    model = canonical(stacked(x, y))
    (wanted,) = open_session(model).run({"x": operand(x)})
    split_stacked_matmuls(model)
    assert [node.op_type for node in model.graph].count("MatMul") == len(STACK)
    (got,) = open_session(model).run({"x": operand(x)})
    assert got.shape == wanted.shape
    assert (
        np.abs(np.subtract(got, wanted, dtype=np.float32)).max()
        <= 1e-5 * np.abs(np.asarray(wanted, np.float32)).max()
    )


def test_a_stack_whose_operand_has_an_unknown_count_stays_as_it_is() -> None:
    model = canonical(stacked("float[n, t, 64] x", "float[4, t, 32] y"))
    split_stacked_matmuls(model)
    assert [node.op_type for node in model.graph] == ["MatMul"]


@pytest.mark.parametrize("method", ["rtn", "gptq"])
def test_each_matrix_of_a_stack_is_stored_in_groups(method: str) -> None:
    model = stacked("float[4, t, 64] x", "float[4, t, 32] y")
    samples = [{"x": normal(4, 40, 64, seed=seed)} for seed in range(4)]
    made = onnxq.quantize_weights(model, samples, method=method, check=onnxq.Check.NONE)
    assert [node.op_type for node in made.graph].count("MatMulNBits") == len(STACK)


def test_an_einsum_of_experts_is_stored_in_groups() -> None:
    model = parsed(
        "g (float[4, 5, 64] x) => (float[4, 5, 32] y)"
        ' { y = Einsum<equation = "etk,ekn->etn">(x, w) }',
        {"w": STACK},
    )
    made = onnxq.quantize_weights(model, check=onnxq.Check.NONE)
    assert [node.op_type for node in made.graph].count("MatMulNBits") == len(STACK)


@pytest.mark.parametrize("name", ["experts", "experts[0]"])
def test_an_excluded_stack_stays_one_matmul(name: str) -> None:
    model = stacked("float[4, t, 64] x", "float[4, t, 32] y")
    model.graph.node[0].name = name
    other = parsed(
        "g (float[2, 64] z) => (float[2, 8] u) { [up] u = MatMul(z, v) }", {"v": normal(64, 8)}
    )
    model.graph.node.extend(other.graph.node)
    model.graph.input.extend(other.graph.input)
    model.graph.output.extend(other.graph.output)
    model.graph.initializer.extend(other.graph.initializer)
    made = onnxq.quantize_weights(model, exclude=[name], check=onnxq.Check.NONE)
    assert [node.op_type for node in made.graph] == ["MatMul", "MatMulNBits"]


CHOSEN = {
    "Gather": ("int64[n] i", "w = Gather(stack, i)"),
    "GatherND": ("int64[n, 1] i", "w = GatherND(stack, i)"),
}


def chosen(op_type: str) -> onnx.ModelProto:
    """The way of transformers: weights of the chosen experts are gathered, then multiplied."""
    ids, node = CHOSEN[op_type]
    return parsed(
        f"g ({ids}, float[n, 64, 1] x) => (float[n, 32, 1] y) {{ [pick] {node} y = MatMul(w, x) }}",
        {"stack": normal(4, 32, 64)},
    )


@pytest.mark.parametrize(("scheme", "bits"), [("affine", 8), ("symmetric", 8), ("real", 4)])
@pytest.mark.parametrize("op_type", CHOSEN)
def test_gathered_weights_are_stored_in_groups(op_type: str, scheme: str, bits: int) -> None:
    model = chosen(op_type)
    made = onnxq.quantize_weights(model, scheme=scheme, bits=bits, check=onnxq.Check.NONE)
    assert "GatherBlockQuantized" in {node.op_type for node in made.graph}
    ids = np.array([3, 0, -1])
    feeds = {"i": ids if op_type == "Gather" else ids[:, np.newaxis], "x": normal(3, 64, 1)}
    (wanted,) = open_session(canonical(model)).run(feeds)
    (got,) = open_session(made).run(feeds)
    assert (
        np.abs(np.subtract(got, wanted, dtype=np.float32)).max()
        <= 5 / (1 << bits) * np.abs(np.asarray(wanted, np.float32)).max()
    )


def test_rows_that_groups_do_not_divide_stay_float() -> None:
    model = parsed(
        "g (int64[n] i, float[n, 40, 1] x) => (float[n, 32, 1] y)"
        " { [pick] w = Gather(stack, i) y = MatMul(w, x) }",
        {"stack": normal(4, 32, 40)},
    )
    with pytest.raises(ModelError, match="groups of 32 do not divide"):
        plan_weights(canonical(model), WeightRequest())


def test_gathered_weights_stay_float_in_operators_of_onnx_alone() -> None:
    with pytest.raises(ModelError, match="of com\\.microsoft alone"):
        onnxq.quantize_weights(chosen("Gather"), format="qdq", check=onnxq.Check.NONE)


def test_gathered_weights_can_be_excluded() -> None:
    with pytest.raises(ModelError):
        plan_weights(canonical(chosen("Gather")), WeightRequest(exclude=("pick",)))
