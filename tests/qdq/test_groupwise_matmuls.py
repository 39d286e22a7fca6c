"""Stored MatMuls that become MatMulNBits: our rules beside what ONNX Runtime does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import onnxq
from onnxq.ort import runtime
from onnxq.ort.version import installed
from onnxq.qdq.float_matmul import keep_float_matmul
from onnxq.reference import integer_form
from tests.dynamic_models import normal, op_types, parsed
from tests.examples import as_ir

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

K, N = 64, 24
BLOCKED = {"axis": 0, "block_size": 32}
SIZES = {"vector": (N,), "row": (1, N), "one": (1,), "number": (), "cube": (1, 1, N)}
SIZES |= {"rows": (4, N), "column": (4, 1), "v": (K, N)}
GRIDS = {
    "u": (TensorProto.FLOAT, 1e-3),
    "z": (TensorProto.UINT16, 9),
    "b": (TensorProto.UINT8, 9),
}
"""Scale and zero points of 16 and 8 bits, for QuantizeLinear in a body."""


def stored(
    body: str,
    x: tuple[int | str, ...] = ("B", K),
    scale: tuple[int, ...] = (2, N),
    kind: str = "int4",
    layout: Mapping[str, int] = BLOCKED,
) -> ir.Model:
    """A model in ONNX's words behind w = DequantizeLinear(integers), with biases of every shape."""
    integers = np.random.default_rng(0).integers(-7, 8, (K, N)).astype(np.int8)
    types = {"int4": TensorProto.INT4, "int8": TensorProto.INT8}
    arrays = {"s": np.full(scale, 0.1, np.float32)}
    arrays |= {"t": arrays["s"]} if ", t)" in body else {}
    arrays |= {n: np.ones(size, np.float32) for n, size in SIZES.items()}
    constants = [helper.make_tensor("c", types[kind], (K, N), integers.reshape(-1).tolist())]
    constants += [
        helper.make_tensor(n, TensorProto.FLOAT, a.shape, a.reshape(-1).tolist())
        for n, a in arrays.items()
        if n in ("s", "t") or f"{n})" in body.replace(",", ")")
    ]
    constants += [
        helper.make_tensor(name, kind, (), [number])
        for name, (kind, number) in GRIDS.items()
        if re.search(rf"Linear\(.*\b{name}\b", body)
    ]
    nodes = [helper.make_node("DequantizeLinear", ["c", "s"], ["w"])]
    nodes[0].attribute.extend(helper.make_attribute(n, v) for n, v in layout.items())
    nodes += as_nodes(body)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x)
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [given], [out], constants)
    opsets = [helper.make_opsetid("", 21)]
    return as_ir(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def as_nodes(body: str) -> list[onnx.NodeProto]:
    """Nodes of `result = Operator(inputs) attribute=number; ...`."""
    found = []
    for line in body.split(";"):
        result, _, call = line.strip().partition(" = ")
        op_type, _, rest = call.partition("(")
        inputs, _, given = rest.partition(")")
        attributes: dict[str, list[int] | float | int] = {
            name: [1, 0] if value == "turn" else float(value) if "." in value else int(value)
            for name, value in (pair.split("=") for pair in given.split())
        }
        slots = [name.strip() for name in inputs.split(",")]
        node = helper.make_node(op_type, slots, [result])
        node.attribute.extend(helper.make_attribute(n, v) for n, v in attributes.items())
        found.append(node)
    return found


BODIES = {
    "MatMul": "y = MatMul(x, w)",
    "Gemm": "y = Gemm(x, w)",
    "Gemm beta alone": "y = Gemm(x, w) beta=0.5",
    "Gemm alpha": "y = Gemm(x, w) alpha=0.5",
    "Gemm beta": "y = Gemm(x, w, vector) beta=0.5",
    **{f"Gemm + {n}": f"y = Gemm(x, w, {n})" for n in ("vector", "row", "one", "number")},
    **{f"Add {n}": f"h = MatMul(x, w); y = Add(h, {n})" for n in [*SIZES][:5]},
    "Relu out": "h = MatMul(x, w); y = Relu(h)",
    "Relu": "h = MatMul(x, w); r = Relu(h); y = Neg(r)",
    "Clip": "h = MatMul(x, w); r = Clip(h); y = Neg(r)",
    "Tanh": "h = MatMul(x, w); r = Tanh(h); y = Neg(r)",
    "Relu read twice": "h = MatMul(x, w); r = Relu(h); y = Add(r, r)",
    "matmul read twice": "h = MatMul(x, w); r = Relu(h); y = Add(r, h)",
    "Identity, Relu": "h = MatMul(x, w); i = Identity(h); r = Relu(i); y = Neg(r)",
    "Relu, Identity out": "h = MatMul(x, w); r = Relu(h); y = Identity(r)",
    "Add, Relu": "h = MatMul(x, w); a = Add(h, vector); r = Relu(a); y = Neg(r)",
    "Gemm, Relu": "h = Gemm(x, w, vector); r = Relu(h); y = Neg(r)",
    "residual": "g = Gemm(x, v); h = MatMul(x, w); y = Add(h, g)",
    "sum of two, stored first": "h = MatMul(x, w); g = MatMul(x, v); y = Add(h, g)",
    "sum of two, stored second": "g = MatMul(x, v); h = MatMul(x, w); y = Add(h, g)",
    "sum of two, the other way": "g = MatMul(x, v); h = MatMul(x, w); y = Add(g, h)",
    "Gemm, turned": "h = Gemm(x, w); y = Transpose(h) perm=turn",
    "Gemm + bias, turned": "h = Gemm(x, w, vector); y = Transpose(h) perm=turn",
}  # fmt: skip


def both_make_it(model: ir.Model) -> tuple[bool, bool]:
    """Whether (ONNX Runtime, the reference) make MatMulNBits of the MatMul."""
    theirs = op_types(runtime.optimized_graph(model))
    return "MatMulNBits" in theirs, "MatMulNBits" in op_types(integer_form(model))


@pytest.mark.parametrize("name", BODIES)
def test_the_reference_makes_what_onnxruntime_makes(name: str) -> None:
    rows: list[tuple[int | str, ...]] = [("B", K)]
    if "Gemm" not in BODIES[name]:
        rows.append(("B", 3, K))
    for x in rows:
        theirs, ours = both_make_it(stored(BODIES[name], x))
        assert ours == theirs, x


BETWEEN = {
    "x": "y = MatMul(d, w)",
    "result": "h = MatMul(x, w); q = QuantizeLinear(h, u, z); y = DequantizeLinear(q, u, z)",
    "8 bits ahead": "h = MatMul(x, w); q = QuantizeLinear(h, u, b); y = DequantizeLinear(q, u, b)",
    "both": "h = MatMul(d, w); q = QuantizeLinear(h, u, z); y = DequantizeLinear(q, u, z)",
    "Relu": "h = MatMul(d, w); r = Relu(h); q = QuantizeLinear(r, u, z);"
    " y = DequantizeLinear(q, u, z)",
    "Add": "h = MatMul(d, w); a = Add(h, vector); q = QuantizeLinear(a, u, z);"
    " y = DequantizeLinear(q, u, z)",
    "Gemm": "h = Gemm(d, w, vector); q = QuantizeLinear(h, u, z); y = DequantizeLinear(q, u, z)",
    "8 bits, then 16": "p = QuantizeLinear(x, u, b); e = DequantizeLinear(p, u, b);"
    " h = MatMul(e, w); q = QuantizeLinear(h, u, z); y = DequantizeLinear(q, u, z)",
    "16 bits, then 8": "h = MatMul(d, w); q = QuantizeLinear(h, u, b);"
    " y = DequantizeLinear(q, u, b)",
}


@pytest.mark.parametrize("scale", [(), (N,), (2, N)], ids=["one scale", "per output", "blocks"])
@pytest.mark.parametrize("name", BETWEEN)
def test_matmuls_between_q_and_dq_are_packed_as_the_facts_say(
    name: str, scale: tuple[int, ...]
) -> None:
    ahead = "p = QuantizeLinear(x, u, z); d = DequantizeLinear(p, u, z); "
    body = ahead * ("(d," in BETWEEN[name]) + BETWEEN[name]
    made = stored(body, scale=scale, kind="int8", layout=BLOCKED if len(scale) > 1 else {"axis": 1})
    theirs, ours = both_make_it(made)
    assert ours == theirs
    if scale == (N,):
        onnxq.cross_check(made, {"x": normal(5, K)}).check()
    keep_float_matmul(made)
    assert both_make_it(made) == (False, False)
    before = ir.to_proto(made).SerializeToString()
    keep_float_matmul(made)
    assert ir.to_proto(made).SerializeToString() == before


@pytest.mark.parametrize("bias", ["rows", "column"])
def test_a_matrix_that_is_added_makes_a_gemm_of_known_sizes(bias: str) -> None:
    model = stored(f"h = MatMul(x, w); y = Add(h, {bias})", (4, K))
    assert both_make_it(model) == (False, False)


@pytest.mark.parametrize(
    ("matmul", "made"),
    [("y = Gemm(t, w)", False), ("y = MatMul(t, w)", True),
     ("h = MatMul(t, w); y = Add(h, vector)", False)],
)  # fmt: skip
def test_turned_rows_of_a_gemm_stay(matmul: str, made: bool) -> None:
    model = stored(f"t = Transpose(x) perm=turn; {matmul}", (K, "B"))
    assert both_make_it(model) == (made, made)


@pytest.mark.parametrize("kind", ["int4", "int8"])
@pytest.mark.parametrize(
    ("scale", "layout", "made"),
    [
        ((2, N), {"axis": -2, "block_size": 32}, False),  # axis 0 in other words
        ((8, N), {"axis": 0, "block_size": 8}, False),
        ((1, N), {"axis": 0, "block_size": 256}, True),
        ((1, N), {"axis": 0, "block_size": 512}, installed() >= (1, 32)),
        ((N,), {"axis": 1}, True),  # one scale per output, without blocks
        ((), {"axis": 1}, True),
        ((1,), {"axis": 1}, False),
        ((K,), {"axis": 0}, False),
    ],
)
def test_only_integers_in_these_layouts_are_taken(
    kind: str, scale: tuple[int, ...], layout: dict[str, int], made: bool
) -> None:
    model = stored("y = MatMul(x, w)", scale=scale, kind=kind, layout=layout)
    assert both_make_it(model) == (made, made)


@pytest.mark.parametrize("scale", [(), (N,)], ids=["one scale", "one per output"])
def test_stored_matrices_without_blocks_round_activations_in_blocks_of_32(
    scale: tuple[int, ...],
) -> None:
    model = stored("y = MatMul(x, w)", scale=scale, kind="int8", layout={"axis": 1})
    onnxq.cross_check(model, {"x": normal(5, K)}).check()


@pytest.mark.parametrize(
    "body", ["h = MatMul(x, w); y = Mul(h, s)", "h = MatMul(x, w); y = Mul(h, t)"]
)
@pytest.mark.parametrize("scale", [(), (N,)], ids=["one scale", "one per output"])
def test_a_scale_that_another_node_reads_keeps_the_matrix_from_being_packed(
    body: str, scale: tuple[int, ...]
) -> None:
    made = stored(body, scale=scale, kind="int8", layout={"axis": 1})
    theirs, ours = both_make_it(made)
    assert ours == theirs
    assert ours == (scale == (N,) and "t)" in body)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("scheme", ["affine", "symmetric"])
def test_dequantized_files_compute_what_the_reference_says(bits: int, scheme: str) -> None:
    """MatMuls of every kind in a row: two that end in a Relu, a Gemm, a bias of rank 2."""
    text = """g (float[n, 40] x) => (float[n, 12] y) {
        a = MatMul(x, w1)  b = Relu(a)  c = MatMul(b, w2)  d = Add(c, row)
        e = MatMul(d, w3)  f = Add(e, b3)  r = Relu(f)
        y = Gemm<transB = 1>(r, w4, b4)
    }"""
    arrays = {"w1": normal(40, 24), "w2": normal(24, 16), "row": normal(1, 16)}
    arrays |= {"w3": normal(16, 20), "b3": normal(20), "w4": normal(12, 20), "b4": normal(12)}
    made = onnxq.quantize_weights(
        parsed(text, arrays),
        bits=bits,
        group_size=16,
        scheme=scheme,
        method="rtn",
        format="qdq",
    )
    assert op_types(made).count("DequantizeLinear") == 4
    onnxq.cross_check(made, {"x": normal(5, 40)}).check()
