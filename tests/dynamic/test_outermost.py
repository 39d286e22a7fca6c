from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.tape import Tape

from onnxq.dynamic.rewrite_dynamic import Outermost
from onnxq.observers import MinMaxObserver
from onnxq.operator import Precision
from onnxq.ort import runtime
from onnxq.qconfig import QConfigDynamic, float16_dynamic_qconfig, onnxq_default_dynamic_qconfig
from tests import this_machine
from tests.dynamic.test_cells_in_loops import around, body_of, constants, inside, looped
from tests.dynamic_models import SIDE, normal, op_types, parsed, quantized, run, stored

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx

INT8 = onnxq_default_dynamic_qconfig.weight
STORED = QConfigDynamic(INT8, Precision.WEIGHT_ONLY)
WITH_ZERO_POINT = QConfigDynamic(
    MinMaxObserver.with_args(dtype="quint8", qscheme="per_tensor_affine"), Precision.WEIGHT_ONLY
)
REAL = f"float[N,{SIDE}]"
QUARTER = np.float32(0.25)
W = normal(SIDE, SIDE) * QUARTER

EVERYWHERE = f"""m ({REAL} x, bool c) => ({REAL} y) {{
  count = Constant<value = int64 {{4}}>()
  a = MatMul(x, w)
  b = If (c) <then_branch = t () => ({REAL} p) {{ p = MatMul(a, w) }},
              else_branch = e () => ({REAL} q) {{ r = Tanh(a) q = MatMul(r, w) }}>
  y = Loop (count, , b) <body = l (int64 i, bool k, {REAL} h) => (bool kk, {REAL} g) {{
    kk = Identity(k)
    g = Loop (count, , h) <body = m (int64 j, bool n, {REAL} s) => (bool nn, {REAL} f) {{
      nn = Identity(n) u = MatMul(s, w) f = Tanh(u) }}>
  }}>
}}"""
"""One weight, read in the main graph, in both branches of an If, and in a Loop in a Loop."""


def in_main(made: ir.Model) -> list[str]:
    return [node.op_type for node in made.graph]


def in_bodies(made: ir.Model) -> set[str]:
    return {node.op_type for node in made.graph.all_nodes() if node.graph is not made.graph}


def floats_in_memory(made: ir.Model, size: int) -> int:
    """Constant float tensors of as many numbers in the graph that ONNX Runtime runs."""
    constants = [v.const_value for g in runtime.optimized_graph(made).graphs()
                 for v in g.initializers.values()]  # fmt: skip
    return sum(t is not None and t.dtype == ir.DataType.FLOAT and t.size == size for t in constants)


@pytest.mark.parametrize("place", [around, inside, constants])
@pytest.mark.parametrize(
    ("entry", "chain"),
    [
        (STORED, ["Cast", "Mul", "Transpose"]),
        (WITH_ZERO_POINT, ["Cast", "Sub", "Mul", "Transpose"]),
        (float16_dynamic_qconfig, ["Cast", "Transpose"]),
    ],
)
def test_weights_of_a_body_are_dequantized_in_front_of_the_loop(
    entry: QConfigDynamic, chain: list[str], place: Callable[[onnx.ModelProto], None]
) -> None:
    proto = looped("LSTM")
    place(proto)
    made = quantized(proto, entry)
    assert in_main(made)[: 2 * len(chain)] == chain * 2
    assert in_bodies(made).isdisjoint({"Cast", "Sub", "Transpose"})
    x = normal(3, 2, 8)
    y = run(made, {"x": x})
    assert np.abs(y - run(proto, {"x": x})).max() < 0.02
    assert np.allclose(this_machine.evaluator(made).run(None, {"x": x})[0], y, atol=1e-6)


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("entry", [STORED, float16_dynamic_qconfig])
def test_all_graphs_that_read_a_weight_share_its_numbers(
    entry: QConfigDynamic, taken: bool
) -> None:
    source = parsed(EVERYWHERE, {"w": W})
    made = quantized(source, entry)
    assert len(set(stored(made)) - {"count"}) == 1
    assert in_bodies(made) == {"MatMul", "Tanh", "Identity", "Loop"}
    assert floats_in_memory(made, W.size) == 1
    feeds = {"x": normal(3, SIDE), "c": np.array(taken)}
    assert np.abs(run(made, feeds) - run(source, feeds)).max() < 0.05


def test_steps_that_are_written_out_share_the_numbers() -> None:
    steps = " ".join(f"h{i + 1} = Gemm<transB = 1>(h{i}, w)" for i in range(4))
    source = parsed(f"m ({REAL} x) => ({REAL} y) {{ h0 = Relu(x) {steps} y = Relu(h4) }}", {"w": W})
    made = quantized(source, STORED)
    assert in_main(made)[:4] == ["Cast", "Mul", "Transpose", "Relu"]
    assert in_main(made).count("Mul") == 1
    feeds = {"x": normal(3, SIDE)}
    assert np.abs(run(made, feeds) - run(source, feeds)).max() < 0.5


def test_the_integers_of_a_recurrence_are_cut_in_front_of_the_loop_around_it() -> None:
    gru = "s, last = GRU<hidden_size = 8>(h, w, r) axes = Constant<value = int64[1] {1}>()"
    source = parsed(
        f"""m (float[5,2,8] x) => (float[5,2,8] y) {{
          count = Constant<value = int64 {{2}}>()
          y = Loop (count, , x) <body = l (int64 i, bool k, float[5,2,8] h)
            => (bool kk, float[5,2,8] g) {{ kk = Identity(k) {gru} g = Squeeze(s, axes) }}>
        }}""",
        {"w": normal(1, 24, 8) * QUARTER, "r": normal(1, 24, 8, seed=1) * QUARTER},
    )
    made = quantized(source, QConfigDynamic(INT8, Precision.DYNAMIC_INT8))
    assert in_main(made)[:3] == ["Reshape", "Gather", "Split"]
    assert "MatMulInteger" in in_bodies(made)
    x = normal(5, 2, 8)
    y = run(made, {"x": x})
    assert np.abs(y - run(source, {"x": x})).max() < 0.05
    assert np.array_equal(this_machine.evaluator(made).run(None, {"x": x})[0], y)


def test_blocks_stay_where_onnx_runtime_looks_for_them() -> None:
    made = quantized(looped("RNN"), QConfigDynamic(INT8, Precision.WEIGHT_ONLY_GROUPWISE, 16))
    assert op_types(made).count("DequantizeLinear") == 2
    assert "DequantizeLinear" not in in_main(made)
    optimized = op_types(runtime.optimized_graph(made))
    assert optimized.count("MatMulNBits") == 2


def test_the_body_of_a_float_model_stays_as_it_is() -> None:
    proto = looped("RNN")
    inside(proto)
    before = body_of(proto).SerializeToString()
    quantized(proto, STORED)
    assert body_of(proto).SerializeToString() == before


def test_what_reads_an_activation_or_a_graph_input_is_not_constant() -> None:
    x = ir.Value(name="x")
    default = ir.Value(name="d", const_value=ir.tensor(W, name="d"))
    graph = ir.Graph([x, default], [], nodes=[], name="main")
    graph.register_initializer(default)
    tape = Tape()
    integers = tape.initializer(ir.tensor(W, name="integers"))
    first, second = tape.op("Cast", [integers], {"to": 1}), tape.op("Mul", [default, integers])
    third = tape.op("Mul", [first, x])
    result = tape.op("Neg", [first])
    found = Outermost(graph).constant_nodes(tape.nodes, [result])
    assert list(found) == [first.producer()]
    assert second.producer() not in found
    assert third.producer() not in found


def test_equal_nodes_are_taken_once() -> None:
    integers = ir.Value(name="integers", const_value=ir.tensor(W, name="integers"))
    graph = ir.Graph([], [], nodes=[ir.node("Identity", [integers])], name="main")
    outermost = Outermost(graph)
    nodes = [ir.node("Cast", [integers], {"to": to}) for to in (1, 1, 10)]
    reader = ir.node("Neg", [nodes[1].outputs[0]])
    taken = [outermost.take(node) for node in nodes]
    assert taken == [nodes[0], nodes[0], nodes[2]]
    assert reader.inputs[0] is nodes[0].outputs[0]
    assert [node.op_type for node in graph] == ["Cast", "Cast", "Identity"]
    assert len(integers.uses()) == 3
