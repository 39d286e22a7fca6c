"""Cells as PyTorch exports them, in the body of a Loop: quantized, near float, exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxq.checking.cross_check import cross_check
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.pipeline import quantize_dynamic
from tests import this_machine
from tests.cell_bounds import GATES, Cell
from tests.dynamic_models import F32, op_types, parsed, quantized, run, stored

if TYPE_CHECKING:
    from collections.abc import Callable

INPUTS, HIDDEN, BATCH = 8, 16, 3
MATMULS = """
  xt = Gather<axis = 0>(x, i)
  p = Gemm<transB = 1>(xt, w, wb)
  q = Gemm<transB = 1>(h, r, rb)
"""
STEPS_OF = {
    "RNN": "s = Add(p, q) h2 = Tanh(s)",
    "GRU": """
      p_r, p_z, p_n = Split<axis = 1, num_outputs = 3>(p)
      q_r, q_z, q_n = Split<axis = 1, num_outputs = 3>(q)
      a_r = Add(p_r, q_r) g_r = Sigmoid(a_r)
      a_z = Add(p_z, q_z) g_z = Sigmoid(a_z)
      m = Mul(q_n, g_r) a_n = Add(p_n, m) n = Tanh(a_n)
      d = Sub(h, n) e = Mul(d, g_z) h2 = Add(e, n)
    """,
    "LSTM": """
      s = Add(p, q)
      s_i, s_f, s_g, s_o = Split<axis = 1, num_outputs = 4>(s)
      g_i = Sigmoid(s_i) g_f = Sigmoid(s_f) g_g = Tanh(s_g) g_o = Sigmoid(s_o)
      fc = Mul(g_f, c) ig = Mul(g_i, g_g) c2 = Add(fc, ig)
      t = Tanh(c2) h2 = Mul(g_o, t)
    """,
}
"""h2 (and c2) of p = x W' + b and q = h R' + b."""


def weights_of(kind: str) -> dict[str, F32]:
    rng, rows = np.random.default_rng(len(kind)), GATES[kind] * HIDDEN
    shapes = {"w": (rows, INPUTS), "r": (rows, HIDDEN), "wb": (rows,), "rb": (rows,)}
    return {n: rng.uniform(-0.25, 0.25, shape).astype(np.float32) for n, shape in shapes.items()}


def cell_of(kind: str) -> Cell:
    return Cell(kind, **{name: x.astype(np.float64) for name, x in weights_of(kind).items()})


def looped(kind: str) -> onnx.ModelProto:
    """The last h of a cell over x (T, N, INPUTS); weights around the body."""
    state = f"float[N,{HIDDEN}]"
    cell = kind == "LSTM"
    return parsed(
        f"""m (float[T,N,{INPUTS}] x) => (float[N,{HIDDEN}] y) {{
          zero = Constant<value = float {{0}}>()
          axes = Constant<value = int64[1] {{0}}>()
          hidden = Constant<value = int64[1] {{{HIDDEN}}}>()
          steps = Shape<start = 0, end = 1>(x)
          count = Squeeze(steps, axes)
          batch = Shape<start = 1, end = 2>(x)
          shape = Concat<axis = 0>(batch, hidden)
          h0 = Expand(zero, shape)
          y{", last" if cell else ""} = Loop (count, , h0{", h0" if cell else ""}) <body = b
            (int64 i, bool k, {state} h{f", {state} c" if cell else ""})
            => (bool kk, {state} h2{f", {state} c2" if cell else ""}) {{
              {MATMULS} {STEPS_OF[kind]} kk = Identity(k)
            }}>
        }}""",
        weights_of(kind),
    )


def body_of(proto: onnx.ModelProto) -> onnx.GraphProto:
    (loop,) = (node for node in proto.graph.node if node.op_type == "Loop")
    (body,) = (a.g for a in loop.attribute if a.name == "body")
    assert isinstance(body, onnx.GraphProto)
    return body


def around(_: onnx.ModelProto) -> None:
    """Weights stay in the main graph."""


def inside(proto: onnx.ModelProto) -> None:
    """Weights become initializers of the body."""
    body_of(proto).initializer.extend(proto.graph.initializer)
    del proto.graph.initializer[:]


def constants(proto: onnx.ModelProto) -> None:
    """Weights become Constant nodes of the body."""
    body = body_of(proto)
    made = [
        onnx.helper.make_node("Constant", [], [t.name], f"constant_{t.name}", value=t)
        for t in proto.graph.initializer
    ]
    nodes = [*made, *body.node]
    del body.node[:], proto.graph.initializer[:]
    body.node.extend(nodes)


PLACES = (around, inside, constants)


def draw(steps: int, batch: int = BATCH) -> F32:
    return np.random.default_rng(7).standard_normal((steps, batch, INPUTS)).astype(np.float32)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", GATES)
def test_cells_are_quantized_near_float_and_exact(
    kind: str, place: Callable[[onnx.ModelProto], None]
) -> None:
    proto = looped(kind)
    place(proto)
    made = quantized(proto)
    assert op_types(made).count("MatMulInteger") == 2
    assert "Gemm" not in op_types(made)
    assert sorted(stored(made).values()).count("INT8") == 2
    cell = cell_of(kind)
    for steps in (1, 2, 6):
        x = draw(steps)
        y = run(made, {"x": x})
        wanted, bound = cell.bound(x.astype(np.float64))
        assert (np.abs(y - run(proto, {"x": x})) <= bound).all()
        assert (np.abs(y - wanted) <= bound).all()
        assert np.array_equal(this_machine.evaluator(made).run(None, {"x": x})[0], y)
    assert bound.max() < 0.5 or kind == "RNN"  # says something: h reaches 1


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(("steps", "batch"), [(0, 3), (4, 0), (1, 1)])
def test_no_steps_no_rows_and_one(kind: str, steps: int, batch: int) -> None:
    proto = looped(kind)
    made = quantized(proto)
    x = draw(steps, batch)
    y = run(made, {"x": x})
    assert y.shape == run(proto, {"x": x}).shape == (batch, HIDDEN)
    assert np.array_equal(this_machine.evaluator(made).run(None, {"x": x})[0], y)


@pytest.mark.parametrize("kind", GATES)
def test_cells_so_small_stay_in_float_for_speed_and_are_quantized_for_size(kind: str) -> None:
    proto, x = looped(kind), draw(5)
    with pytest.warns(UserWarning, match="nothing is quantized"):
        assert op_types(quantize_dynamic(proto)).count("Gemm") == 2
    made = quantize_dynamic(proto, objective=Objective.SIZE)
    stored = [value for graph in made.graphs() for value in graph.initializers.values()]
    assert [str(value.dtype) for value in stored].count("INT8") == 2  # and computed in float
    bound = cell_of(kind).bound(x.astype(np.float64))[1]
    assert (np.abs(run(made, {"x": x}) - run(proto, {"x": x})) <= bound).all()


@pytest.mark.parametrize("kind", GATES)
def test_every_step_is_checked_against_the_kernels(kind: str) -> None:
    findings = cross_check(quantized(looped(kind)), [{"x": draw(4)}])
    findings.check()
    matmuls = [n.elements for n in findings.nodes if n.op_type == "DynamicQuantizeMatMul"]
    assert matmuls == [4 * BATCH * GATES[kind] * HIDDEN] * 2
    assert not findings.unchecked


def test_the_weights_of_a_body_may_be_those_of_the_model_around_it() -> None:
    """One table, read in front of the Loop and inside of it, is stored once."""
    proto = looped("RNN")
    proto.graph.node.insert(
        0, onnx.helper.make_node("Gemm", ["first", "w"], ["before"], "before", transB=1)
    )
    proto.graph.input.append(onnx.helper.make_tensor_value_info("first", 1, ["N", INPUTS]))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("before", 1, ["N", HIDDEN]))
    made = quantized(proto)
    assert sorted(stored(made).values()).count("INT8") == 2
    feeds = {"x": draw(3), "first": draw(1)[0]}
    wanted = feeds["first"] @ numpy_helper.to_array(proto.graph.initializer[0]).T
    before = this_machine.evaluator(made).run(["before"], feeds)[0]
    assert np.abs(before - wanted).max() < 0.1
