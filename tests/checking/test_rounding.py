from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxq
from onnxq import reference
from onnxq.checking import rounding
from onnxq.checking.cross_check import cross_check
from onnxq.errors import VerificationError
from onnxq.reference.float_nodes import FloatNodes
from tests.dynamic_models import normal, parsed
from tests.examples import model, weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir
    from onnx.reference.op_run import OpRun

    from onnxq.core.arrays import Array

make = helper.make_node
LAYERS, WIDTH = 24, 32
FORMER_BOUND = 16  # ulps, whatever the depth


@functools.cache
def deep() -> ir.Model:
    """24 layers of MatMul, Add, Tanh, a sum and LayerNormalization, their weights in float16.

    Sums are Add, which ONNX Runtime fuses with LayerNormalization: as other tools write them.
    """
    nodes, constants, x = [], {"g": np.ones(WIDTH, np.float32)}, "x"
    for i in range(LAYERS):
        constants[f"w{i}"] = np.sign(weights(i, WIDTH, WIDTH)) * np.float32(1.5 * WIDTH**-0.5)
        constants[f"b{i}"] = weights(i + 99, WIDTH)
        nodes += [
            make("MatMul", [x, f"w{i}"], [f"m{i}"], f"matmul{i}"),
            make("Add", [f"m{i}", f"b{i}"], [f"a{i}"]),
            make("Tanh", [f"a{i}"], [f"t{i}"]),
            make("Add", [x, f"t{i}"], [f"s{i}"]),
            make("LayerNormalization", [f"s{i}", "g"], [f"l{i}"]),
        ]
        x = f"l{i}"
    nodes.append(make("Mul", [x, x], ["y"]))
    source = model(nodes, constants, {"x": ["N", 4, WIDTH]}, opset=17)
    made = onnxq.quantize_dynamic(source, dtype="float16")
    for node in made.graph:
        node.op_type = "Add" if node.op_type == "Sum" else node.op_type
    return made


def scale(monkeypatch: pytest.MonkeyPatch, name: str, factor: float) -> None:
    """From now on that float node of the evaluator is wrong by that factor."""
    alone = FloatNodes.__call__

    def wrong(
        self: FloatNodes, node: onnx.NodeProto, opsets: Mapping[str, int]
    ) -> reference.RunNode:
        run = alone(self, node, opsets)
        if node.name != name:
            return run
        return lambda inputs: [np.multiply(y, y.dtype.type(factor)) for y in run(inputs)]

    monkeypatch.setattr(FloatNodes, "__call__", wrong)


SAMPLES = [{"x": weights(1, 2, 4, WIDTH) * np.float32(10)}]


def test_what_24_float_layers_round_is_rounding() -> None:
    found = cross_check(deep(), SAMPLES)
    (output,) = found.outputs
    assert output.largest > FORMER_BOUND
    assert found.is_rounding(output)
    found.check()


@pytest.mark.parametrize("layer", [3, 23])
def test_a_layer_that_is_wrong_by_a_thousandth_is_not(
    monkeypatch: pytest.MonkeyPatch, layer: int
) -> None:
    scale(monkeypatch, f"matmul{layer}", 1.001)
    found = cross_check(deep(), SAMPLES)
    (output,) = found.outputs
    assert 0 < output.rounding < output.largest
    with pytest.raises(VerificationError, match="output 'y'"):
        found.check()


def around_softmax() -> onnx.ModelProto:
    """DQ -> Softmax, in float -> Q -> DQ, with integers of 16 bits."""
    constants: dict[str, Array] = {
        "s": np.array(1e-4, np.float32),
        "z": np.array(1 << 15, np.uint16),
        "t": np.array(1e-6, np.float32),
        "n": np.array(0, np.uint16),
    }
    nodes = [
        make("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        make("DequantizeLinear", ["q", "s", "z"], ["f"], "dq"),
        make("Softmax", ["f"], ["g"], "node"),
        make("QuantizeLinear", ["g", "t", "n"], ["gq"], "gq"),
        make("DequantizeLinear", ["gq", "t", "n"], ["y"], "gdq"),
    ]
    return model(nodes, constants, {"x": ["N", 64]}, opset=21)


def test_integers_next_to_a_tie_may_tip_and_everything_behind_them_agrees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scale(monkeypatch, "node", 1 + 2**-22)
    found = cross_check(around_softmax(), onnxq.Samples({"x": weights(0, 512, 64)}, batch_size=512))
    (output,) = found.outputs
    assert 0 < output.differing < output.elements / 100
    assert (output.unit, output.largest) == ("LSB of its scale", 1)
    assert found.first_difference == ""
    assert found.is_rounding(output)


def test_integers_that_rounding_does_not_reach_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    scale(monkeypatch, "node", 1 + 2**-12)
    found = cross_check(around_softmax(), onnxq.Samples({"x": weights(0, 64, 64)}, batch_size=64))
    assert found.first_difference == "gq"
    assert not found.is_rounding(found.outputs[0])


def test_a_number_of_float16_may_be_the_next_one_where_it_lies_next_to_a_tie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [
        make("MatMul", ["x", "w"], ["p"], "matmul"),
        make("Cast", ["p"], ["y"], "half", to=TensorProto.FLOAT16),
    ]
    half = model(nodes, {"w": weights(1, 64, 64)}, {"x": ["N", 64]}, {"y": TensorProto.FLOAT16})
    made = onnxq.quantize_dynamic(half, objective="size")
    for factor, is_rounding in ((1 + 2**-22, True), (1 + 2**-9, False)):
        with monkeypatch.context() as patch:
            scale(patch, "matmul", factor)
            found = cross_check(made, onnxq.Samples({"x": weights(0, 512, 64)}, batch_size=512))
        assert found.outputs[0].differing == 0 or found.is_rounding(found.outputs[0]) is is_rounding


def test_channels_last_are_put_into_our_order() -> None:
    ours = np.arange(24, dtype=np.uint8).reshape(1, 2, 3, 4)
    last = rounding.as_laid_out(np.moveaxis(ours, 1, -1), ours)
    assert last is not None
    assert np.array_equal(last, ours)
    assert rounding.as_laid_out(np.zeros((5, 5), np.uint8), ours) is None  # cannot be told apart


@pytest.mark.parametrize("dtype", ["uint16", "int16"])
def test_a_float_conv_behind_integers_of_16_bits_is_no_failure(dtype: str) -> None:
    """ONNX Runtime has no integer kernel for these integers, and fuses Conv with Relu in float."""
    kind = np.dtype(dtype)
    constants: dict[str, Array] = {
        "s": np.array(1e-4, np.float32),
        "z": np.array(np.iinfo(kind).max // 2, kind),
        "w": weights(1, 8, 4, 3, 3),
        "b": weights(2, 8),
    }
    nodes = [
        make("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        make("DequantizeLinear", ["q", "s", "z"], ["f"], "dq"),
        make("Conv", ["f", "w", "b"], ["c"], "conv"),
        make("Sigmoid", ["c"], ["g"], "sigmoid"),
        make("QuantizeLinear", ["g", "s", "z"], ["gq"], "gq"),
        make("DequantizeLinear", ["gq", "s", "z"], ["y"], "gdq"),
    ]
    source = model(nodes, constants, {"x": ["N", 4, 9, 9]}, opset=21)
    found = cross_check(source, onnxq.Samples({"x": weights(0, 16, 4, 9, 9)}, batch_size=16))
    assert not found.unchecked
    found.check()


BODIES = {
    "Loop": """turns = Constant<value = int64 {3}>()  y = Loop (turns, , x) <
      body = b (int64 i, bool c, float[n,4,32] s) => (bool k, float[n,4,32] o)
      { k = Identity(c)  h = MatMul(s, w)  e = Erf(h)  p = Mul(h, e)  o = MatMul(p, v) }>""",
    "If": """c = Constant<value = bool {1}>()  y = If (c) <
      then_branch = t () => (float[n,4,32] a)
        { h = MatMul(x, w)  e = Erf(h)  p = Mul(h, e)  g = MatMul(p, v)  q = MatMul(g, w)
          z = Erf(q)  r = Mul(q, z) a = MatMul(r, v) },
      else_branch = f () => (float[n,4,32] b) { b = Neg(x) }>""",
}


def stored_in_a_body(kind: str) -> tuple[ir.Model, dict[str, Array]]:
    """Float nodes ahead of MatMuls that round activations to int8, in a body."""
    text = f"g (float[n,4,32] x) => (float[n,4,32] y) {{ {BODIES[kind]} }}"
    source = parsed(text, {n: weights(i, 32, 32) for i, n in enumerate("wv")})
    return onnxq.quantize_weights(source, method="rtn"), {"x": weights(7, 64, 4, 32)}


@pytest.mark.parametrize("kind", BODIES)
def test_what_float_nodes_in_bodies_round_is_rounding(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Erf is off by ulps, which tips int8 activations of the MatMuls behind it."""
    made, feeds = stored_in_a_body(kind)
    scale(monkeypatch, "Erf_e", 1 + 2**-22)
    findings = cross_check(made, feeds)
    (output,) = findings.outputs
    assert output.differing
    assert output.largest > FORMER_BOUND
    findings.check()


@pytest.mark.parametrize("kind", BODIES)
def test_a_node_in_a_body_that_is_wrong_by_a_tenth_is_not(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, feeds = stored_in_a_body(kind)
    scale(monkeypatch, "Erf_e", 1.1)
    with pytest.raises(VerificationError, match="output 'y', end to end"):
        cross_check(made, feeds).check()


def runs_in_branches(depth: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often nodes of branches run for the bounds of a cross-check."""
    text = "h = MatMul(x, w)  e = Erf(h)  p = Mul(h, e)  b0 = MatMul(p, v)"
    for i in range(depth):
        text = f"""c{i} = Constant<value = bool {{1}}>()  b{i + 1} = If (c{i}) <
          then_branch = t{i} () => (float[n,4,32] b{i}) {{ {text} }},
          else_branch = f{i} () => (float[n,4,32] m{i}) {{ m{i} = Neg(x) }}>"""
    text = f"g (float[n,4,32] x) => (float[n,4,32] b{depth}) {{ {text} }}"
    source = parsed(text, {n: weights(i, 32, 32) for i, n in enumerate("wv")})
    made = onnxq.quantize_weights(source, method="rtn")
    ran: list[str] = []
    once = reference.run_node

    def counted(node: OpRun, *args: Any) -> tuple[Any, ...]:
        ran.append(node.op_type)
        return once(node, *args)

    with monkeypatch.context() as patch:
        patch.setattr(reference, "run_node", counted)
        scale(patch, "Erf_e", 1 + 2**-22)
        cross_check(made, {"x": weights(7, 64, 4, 32)})
    return len(ran)


def test_branches_in_branches_run_as_often_as_those_around(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many = (runs_in_branches(depth, monkeypatch) for depth in (2, 6))
    assert 0 < many <= 4 * few  # a run more per level: at most 3 times; twice per level: 16 times


def test_the_bound_of_a_matmul_in_blocks_goes_through_what_is_behind_it() -> None:
    """Zero points are subtracted behind the sum: near 0, results are less exact than they look."""
    text = "g (float[n, 72] x) => (float[n, 24] y) { h = MatMul(x, w)  r = Tanh(h)  y = Neg(r) }"
    made = onnxq.quantize_weights(
        parsed(text, {"w": normal(72, 24, seed=7)}), group_size=128, method="rtn", format="qdq"
    )
    onnxq.cross_check(made, {"x": normal(15, 72)}).check()


def test_the_bound_of_a_matmul_in_a_body_does_so_too() -> None:
    """Weights that are all zero leave what the subtraction of zero points rounds."""
    text = """
    g (float[n, 72] x) => (float[n, 24] y) {
      c = Constant<value = bool {1}>()
      y = If (c) <
        then_branch = t () => (float[n, 24] a) { h = MatMul(x, w)  a = Sign(h) },
        else_branch = f () => (float[n, 24] b) { b = MatMul(x, w) }>
    }
    """
    zeros = parsed(text, {"w": np.zeros((72, 24), np.float32)})
    made = onnxq.quantize_weights(zeros, bits=8, method="rtn")
    onnxq.cross_check(made, {"x": normal(15, 72)}).check()
