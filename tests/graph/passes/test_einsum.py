from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from onnxq.graph.passes.einsum import EinsumToMatMul, read_equation
from onnxq.graph.types import infer_types
from tests.op_types import op_types
from tests.this_machine import TARGET

if TYPE_CHECKING:
    import onnx_ir as ir

    from tests.graph.conftest import Feeds, Numbers, Parse, Run

SIZES = dict(zip("abcdehkqt", (2, 3, 6, 5, 4, 3, 7, 2, 5), strict=True))


def array(letters: str, seed: int) -> Numbers:
    shape = [SIZES[c] for c in letters]
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model_of(parse: Parse, equation: str, weights: Feeds) -> ir.Model:
    """Sizes of the first axis of what is computed are open."""
    first, second = equation.partition("->")[0].split(",")
    given = {"x": first, "w": second}
    typed = (
        f"float[{','.join(['N', *(str(SIZES[c]) for c in letters[1:])])}] {name}"
        for name, letters in given.items()
        if name not in weights
    )
    text = f'g ({", ".join(typed)}) => (float r) {{ [e] y = Einsum<equation="{equation}">(x, w)'
    model = parse(text + " r = Relu(y) }", weights)
    infer_types(model)
    return model


@pytest.mark.parametrize(
    ("equation", "wanted"),
    [
        ("btc,ck->btk", ["MatMul", "Relu"]),
        ("btc,kc->btk", ["MatMul", "Relu"]),
        ("btc,kc", ["MatMul", "Transpose", "Relu"]),
        ("bct,ck->bkt", ["Transpose", "MatMul", "Transpose", "Relu"]),
        ("btc,ech->beth", ["MatMul", "Reshape", "Transpose", "Relu"]),
        ("bthd,hdc->btc", ["Reshape", "MatMul", "Relu"]),
        ("beth,ehc->betc", ["MatMul", "Relu"]),
        ("bteh,ehc->btec", ["Transpose", "MatMul", "Transpose", "Relu"]),
    ],
)
def test_an_einsum_with_a_constant_is_a_matmul(
    equation: str, wanted: list[str], parse: Parse, run: Run
) -> None:
    first, second = equation.partition("->")[0].split(",")
    x, w = array(first, 0), array(second, 1)
    model = model_of(parse, equation, {"w": w})
    (before,) = run(model, {"x": x})
    assert EinsumToMatMul()(model).modified
    assert op_types(model) == wanted
    named = {node.op_type: node for node in model.graph}
    assert named["MatMul"].name == "e"
    assert named["Relu"].inputs[0] is not None
    assert named["Relu"].inputs[0].name == "y"
    np.testing.assert_allclose(run(model, {"x": x})[0], before, rtol=1e-5, atol=1e-5)


def test_a_constant_on_the_left_comes_to_the_right(parse: Parse, run: Run) -> None:
    x, w = array("kc", 0), array("bct", 1)
    model = model_of(parse, "kc,bct->bkt", {"x": x})
    (before,) = run(model, {"w": w})
    assert EinsumToMatMul()(model).modified
    assert op_types(model) == ["Transpose", "MatMul", "Transpose", "Relu"]
    np.testing.assert_allclose(run(model, {"w": w})[0], before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("equation", ["bhqd,bhkd->bhqk", "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd"])
def test_matmuls_of_what_is_computed(equation: str, parse: Parse, run: Run) -> None:
    first, second = equation.partition("->")[0].split(",")
    feeds = {"x": array(first, 0), "w": array(second, 1)}
    model = model_of(parse, equation, {})
    (before,) = run(model, feeds)
    assert EinsumToMatMul()(model).modified
    assert "Einsum" not in op_types(model)
    np.testing.assert_allclose(run(model, feeds)[0], before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "equation",
    [
        "ab,cd->abcd",
        "ab,ab->ab",
        "aab,bc->ac",
        "ab,bc->c",
        "...a,ab",
        "ab,bc,cd->ad",
        "ab->ba",
    ],
)
def test_other_equations_are_no_matmul(equation: str) -> None:
    assert read_equation(equation, (2, 2)) is None


def test_an_ellipsis_is_written_out() -> None:
    found = read_equation("...b,bc->...c", (3, 2))
    assert found is not None
    assert (found.ahead, found.summed, found.columns) == ("da", "b", "c")
    both = read_equation("...ij,...jk->...ik", (4, 4))
    assert both is not None
    assert len(both.batch) == 2
    assert read_equation("...b,bc->...c", (None, 2)) is None


def test_a_size_of_one_stands_for_any_and_stays(parse: Parse) -> None:
    text = 'g (float[N,1] x) => (float[N,5] y) { y = Einsum<equation="ab,bc->ac">(x, w) }'
    model = parse(text, {"w": np.ones((4, 5), np.float32)})
    infer_types(model)
    assert not EinsumToMatMul()(model).modified


def test_axes_that_would_have_to_be_merged_of_a_computed_operand_stay(parse: Parse) -> None:
    model = model_of(parse, "btc,ech->beth", {})
    assert not EinsumToMatMul()(model).modified


def test_experts_are_quantized(parse: Parse) -> None:
    generator = np.random.default_rng(0)
    w = generator.standard_normal((4, 64, 32)).astype(np.float32)
    text = "g (float[N,16,64] x) => (float[N,4,16,32] y) {"
    model = parse(text + ' [e] y = Einsum<equation="btc,ech->beth">(x, w) }', {"w": w})
    x = generator.standard_normal((8, 16, 64)).astype(np.float32)
    made = onnxq.quantize(model, {"x": x}, target=TARGET)
    assert "Einsum" not in op_types(made)
    assert onnxq.cross_check(made, {"x": x}).exact
