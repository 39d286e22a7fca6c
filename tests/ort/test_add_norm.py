"""The node that ONNX Runtime makes of Add and LayerNormalization, asked of it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.graph.types import infer_types
from onnxq.ort import runtime
from onnxq.ort.add_norm import is_fused, write_sums

FUSED = "SkipLayerNormalization"
NORM = "z = LayerNormalization (s, g, b)"


def model_of(x: str, y: str, body: str = NORM, outputs: str = "float[a,b,c] z") -> ir.Model:
    """The graph s = x + y, then the body; g and b are its constants (8,), p is (5, 8)."""
    vector = ",".join(["0.5"] * 8)
    text = f"""<ir_version: 9, opset_import: ["": 17]>
        graph (float[{x}] x, float[{y}] y) => ({outputs})
        <float[8] g = {{{vector}}}, float[8] b = {{{vector}}},
         float[5,8] p = {{{",".join(["0.5"] * 40)}}}>
        {{ s = Add (x, y) {body} }}"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    infer_types(model)
    return model


def ops(model: ir.Model) -> set[str]:
    return {node.op_type for node in model.graph}


@pytest.mark.parametrize(
    "body",
    [
        NORM,
        "z = LayerNormalization (s, g)",
        "z = LayerNormalization <axis = 2> (s, g, b)",
        "z, mean = LayerNormalization (s, g, b) y1 = Neg (mean)",
    ],
)
@pytest.mark.parametrize("shape", ["2,5,8", "N,T,8", "N,T,C"])
def test_it_makes_one_node_of_an_add_and_leaves_a_sum(shape: str, body: str) -> None:
    model = model_of(shape, shape, body)
    assert is_fused(model.graph.node(0))
    assert FUSED in ops(runtime.optimized_graph(model))
    write_sums(model)
    write_sums(model)
    assert {"Sum", "LayerNormalization"} <= ops(model)
    assert "Add" not in ops(model)
    assert FUSED not in ops(runtime.optimized_graph(model))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ("5,8", "5,8"),
        ("1,2,5,8", "1,2,5,8"),
        ("2,5,8", "1,5,8"),
        ("1,5,8", "2,5,8"),
        ("N,5,8", "1,5,8"),
        ("2,5,8", "5,8"),
    ],
)
def test_an_add_that_it_leaves_by_its_sizes_stays(x: str, y: str) -> None:
    model = model_of(x, y)
    assert not is_fused(model.graph.node(0))
    assert FUSED not in ops(runtime.optimized_graph(model))
    write_sums(model)
    assert "Sum" not in ops(model)


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        (f"{NORM} n = Neg (s)", "float[a,b,c] z, float[a,b,c] n"),
        (NORM, "float[a,b,c] z, float[2,5,8] s"),
        ("z = LayerNormalization <axis = 1> (s, p)", "float[a,b,c] z"),
    ],
)
def test_an_add_that_it_leaves_by_its_readers_stays(body: str, outputs: str) -> None:
    model = model_of("2,5,8", "2,5,8", body, outputs)
    assert not is_fused(model.graph.node(0))
    assert FUSED not in ops(runtime.optimized_graph(model))


def test_sizes_of_two_names_may_turn_out_equal() -> None:
    assert is_fused(model_of("N,S,8", "N,T,8").graph.node(0))


def test_a_sum_is_the_same_addition_to_100_db() -> None:
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal((2, 5, 8)).astype(np.float32) for name in "xy"}
    model = model_of("2,5,8", "2,5,8")
    results = []
    for write in (lambda _: None, write_sums):
        write(model)
        with runtime.open_session(model) as session:
            results.append(np.asarray(session.run(feeds)[0], np.float64))
    wanted, got = results
    noise = np.square(got - wanted).sum() / np.square(wanted).sum()
    assert noise < 10**-10
