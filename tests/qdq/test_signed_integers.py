from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import onnxq
from onnxq.checking.cross_check import cross_check
from onnxq.observers import MinMaxObserver, NarrowRangeObserver
from onnxq.ort import facts
from onnxq.ort.runtime import Optimization, open_session
from onnxq.qconfig import Choice, QConfig, QConfigMapping
from onnxq.qdq.signed_integers import keep_loadable
from tests.examples import ALL_INTEGERS, as_ir, model, weights

if TYPE_CHECKING:
    import numpy.typing as npt

make = helper.make_node
INT8 = (
    QConfigMapping(
        QConfig(MinMaxObserver.with_args(dtype="qint8"), NarrowRangeObserver.with_args())
    )
    .set_op_type("Add", None)
    .set_choice(Choice.ALL_INTEGERS)
)
X: npt.NDArray[np.float32] = weights(3, 2, 5, 8)


def biased(opset: int = 21, batch: int | str = 2, bias: tuple[int, ...] = (6,)) -> ir.Model:
    """Y = Relu(X W + B), read by a MatMul of its own bias, which is made at run time."""
    nodes = [
        make("MatMul", ["x", "w"], ["a"], "first"),
        make("Add", ["b", "a"], ["c"], "add"),
        make("Relu", ["c"], ["r"], "relu"),
        make("MatMul", ["r", "v"], ["d"], "second"),
        make("ReduceSum", ["x", "all"], ["s"], "sum", keepdims=0),
        make("Relu", ["s"], ["run_time_bias"], "relu2"),
        make("Add", ["d", "run_time_bias"], ["y"], "add2"),
    ]
    constants = {
        "w": weights(0, 8, 6),
        "b": weights(1, *bias),
        "v": weights(2, 6, 8),
        "all": np.array([0, 1]),
    }
    return as_ir(model(nodes, constants, {"x": [batch, 5, 8]}, opset=opset))


def ranks(quantized: ir.Model) -> dict[str, list[int]]:
    """Ranks of what each Add adds."""
    adds = [node for node in quantized.graph if node.op_type == "Add"]
    shapes = {str(n.name): [v.shape for v in n.inputs if v is not None] for n in adds}
    return {name: sorted(len(s) for s in found if s is not None) for name, found in shapes.items()}


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("opset", [20, 21])
@pytest.mark.parametrize("batch", [2, "N"])
def test_a_bias_behind_int8_integers_loads_and_gives_the_same_integers(
    form: str, opset: int, batch: int | str
) -> None:
    source = biased(opset, batch)
    quantized = onnxq.quantize(source, [{"x": X}], qconfig=INT8, target="arm64", format=form)
    cross_check(quantized, [{"x": X}]).check(max_output_lsb=1)


def test_a_bias_inside_of_a_float_result_needs_no_axis_in_front() -> None:
    for mapping in (INT8, ALL_INTEGERS.set_op_type("Add", None)):
        made = onnxq.quantize(biased(21), [{"x": X}], qconfig=mapping, target="arm64")
        assert ranks(made) == {"add2": [1, 3]}


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("opset", [20, 21])
@pytest.mark.parametrize(
    "movement",
    [
        make("Transpose", ["r"], ["m"], "move", perm=[0, 2, 3, 1]),
        make("MaxPool", ["r"], ["m"], "move", kernel_shape=[2, 2]),
        make("Unsqueeze", ["r", "axis"], ["m"], "move"),
    ],
)
@pytest.mark.parametrize("output", ["m", "y"])
def test_integers_that_are_moved_in_float_load_and_stay_the_same(
    form: str, opset: int, movement: onnx.NodeProto, output: str
) -> None:
    nodes = [
        make("Conv", ["x", "w"], ["c"], "conv"),
        make("Relu", ["c"], ["r"], "relu"),
        movement,
        make("Exp", ["m"], ["y"], "exp"),
    ]
    constants = {"w": weights(0, 4, 3, 1, 1), "axis": np.array([1])}
    proto = model(nodes, constants, {"x": ["N", 3, 5, 4]}, {output: 1, "r": 1}, opset=opset)
    x = [{"x": weights(1, 2, 3, 5, 4)}]
    quantized = onnxq.quantize(as_ir(proto), x, qconfig=INT8, target="arm64", format=form)
    cross_check(quantized, x).check(max_output_lsb=4)
    copies = [n for n in quantized.graph if n.op_type == "Max"]
    assert len(copies) == (opset == 21)


def test_the_second_time_changes_nothing() -> None:
    quantized = onnxq.quantize(biased(), [{"x": X}], qconfig=INT8, target="arm64")
    before = [v.name for n in quantized.graph for v in n.inputs if v is not None]
    keep_loadable(quantized)
    assert [v.name for n in quantized.graph for v in n.inputs if v is not None] == before


BODIES = {
    "If": """y = If (c) <
        then_branch = a () => (float[] u) { u = ReduceSum <keepdims = 0> (t) },
        else_branch = b () => (float[] v) { v = ReduceMax <keepdims = 0> (t) }
    >""",
    "Loop": """y = Loop (n, c, zero) <
        body = b (int64 i, bool go, float[] sum) => (bool on, float[] more) {
            on = Identity(go)
            part = ReduceSum <keepdims = 0> (t)
            more = Add(sum, part)
        }
    >""",
    "Scan": """y = Scan <num_scan_inputs = 1,
        body = b (float[] x_i) => (float[] y_i) {
            part = ReduceSum <keepdims = 0> (t)
            y_i = Add(x_i, part)
        }
    > (three)""",
    "If in a Loop": """y = Loop (n, c, zero) <
        body = b (int64 i, bool go, float[] sum) => (bool on, float[] more) {
            on = Identity(go)
            more = If (c) <
                then_branch = a1 () => (float[] u) { u = ReduceSum <keepdims = 0> (t) },
                else_branch = b1 () => (float[] v) { v = ReduceMax <keepdims = 0> (t) }
            >
        }
    >""",
}
MOVERS = {
    "MaxPool": "t = MaxPool <kernel_shape = [2, 2]> (d)",
    "Reshape": "t = Reshape(d, four_by_sixteen)",
    "Slice": "t = Slice(d, one, two, one)",
    "Squeeze": "t = Squeeze(d)",
    "Transpose": "t = Transpose(d)",
    "Unsqueeze": "t = Unsqueeze(d, one)",
    "Transpose behind Identity": "i = Identity(d) t = Transpose(i)",
    "Squeeze behind Slice": "i = Slice(d, one, two, one) t = Squeeze(i)",
}
READERS = {"alone": "", "beside a node": "z = Abs(t)", "beside an output": ""}


def read_by_a_body(mover: str, body: str, readers: str) -> ir.Model:
    """Dequantized integers that are moved, and read by a body."""
    more = {"beside a node": ", float[] z", "beside an output": ", float[] t"}.get(readers, "")
    return ir.from_onnx_text(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 4, 4, 4] x, bool c) => (float[] y{more})
        <float s = {{0.1}}, uint8 k = {{128}}, int64[2] four_by_sixteen = {{4, 16}},
         int64[1] one = {{1}}, int64[1] two = {{2}}, int64 n = {{2}}, float zero = {{0}},
         float[3] three = {{1, 2, 3}}> {{
            q = QuantizeLinear(x, s, k)
            d = DequantizeLinear(q, s, k)
            {MOVERS[mover]}
            {BODIES[body]}
            {READERS[readers]}
        }}
    """)


def test_every_operator_that_is_moved_past_is_among_the_movers() -> None:
    assert {name for name in MOVERS if " " not in name} == {
        fact.op_type for fact in facts.FACTS if fact.moved_past
    }


@pytest.mark.parametrize(
    ("body", "readers"),
    [*((body, "alone") for body in BODIES), *(("If", others) for others in list(READERS)[1:])],
)
@pytest.mark.parametrize("mover", MOVERS)
def test_what_a_body_reads_behind_a_mover_runs(mover: str, body: str, readers: str) -> None:
    # ONNX Runtime ends its process of each of these, were there no copy
    found = read_by_a_body(mover, body, readers)
    keep_loadable(found)
    feeds = {"x": weights(0, 1, 4, 4, 4), "c": np.array(1, bool)}
    with (
        open_session(found, threads=1) as session,
        open_session(found, threads=1, optimization=Optimization.NONE) as plain,
    ):
        for y, wanted in zip(session.run(feeds), plain.run(feeds), strict=True):
            np.testing.assert_allclose(y.astype(np.float64), wanted.astype(np.float64), rtol=1e-6)


def branch(number: int) -> onnx.GraphProto:
    """Neg of t."""
    name = f"y{number}"
    y = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
    return helper.make_graph([make("Neg", ["t"], [name], name)], f"branch{number}", [], [y])


def test_quantize_keeps_integers_ahead_of_what_a_body_reads() -> None:
    # a node of these that is left in float shows that ONNX Runtime's process died
    nodes = [
        make("Conv", ["x", "w"], ["a"], "conv", pads=[1, 1]),
        make("Transpose", ["a"], ["t"], "moved", perm=[2, 0, 1]),
        make("If", ["c"], ["y"], "if", then_branch=branch(1), else_branch=branch(2)),
    ]
    source = model(nodes, {"w": weights(0, 16, 16, 3)}, {"x": [1, 16, 64], "c": []})
    source.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.BOOL
    samples = {"x": weights(1, 8, 1, 16, 64), "c": np.array([0, 1] * 4, bool)}
    quantized = onnxq.quantize(source, samples, qconfig=ALL_INTEGERS, target="x86-vnni")
    assert quantized.verdict is not None
    assert quantized.verdict.left_in_float == ()
    assert "QuantizeLinear" in [node.op_type for node in quantized.graph]
