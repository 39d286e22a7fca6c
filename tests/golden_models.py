"""Small float models that tests/golden shows quantized; scripts/same_bytes quantizes them as well.

Of onnxq, only documented names are imported here: the models are also given to older commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper, parser

from onnxq.observers import NarrowRangeObserver, NoopObserver, ObserverSpec
from tests.examples import model, weights

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles

GRAPHS = {
    "conv_relu": "c = Conv(x, w, b) y = Relu(c)",
    "residual": "c = Conv(x, w, b) d = Relu(c) e = Conv(d, v) s = Add(e, d) y = Relu(s)",
    "float_between": "c = Conv(x, w) a = AveragePool<kernel_shape=[1,1]>(c) y = Conv(a, v)",
    "pool_shares": "c = Conv(x, w) p = MaxPool<kernel_shape=[2,2]>(c) y = Conv(p, v)",
    "shared_weight": "c = Conv(x, w) y = Conv(c, w)",
    "relu_alone": "c = Conv(x, w) r = Relu(c) y = Add(c, r)",
}
"""Bodies of `conv_model` whose quantized graphs are golden text, in both formats."""

BODIES = {
    **GRAPHS,
    "silu": "c = Conv(x, w) s = Sigmoid(c) m = Mul(c, s) y = Conv(m, v)",
    "pad": "c = Conv(x, w) p = Pad(c, pads) y = Conv(p, v)",
    "concat": "c = Conv(x, w) d = Conv(c, v) e = Concat<axis=1>(c, d) y = MaxPool"
    "<kernel_shape=[2,2]>(e)",
    "movement": "c = Conv(x, w) p = MaxPool<kernel_shape=[2,2]>(c) t = Transpose<perm=[0,1,3,2]>(p)"
    " u = MaxPool<kernel_shape=[2,2]>(t) y = Conv(u, v)",
    "relu6": "c = Conv(x, w) r = Clip(c, zero, six) y = Conv(r, v)",
    "erf": "c = Conv(x, w) h = Erf(c) y = Conv(h, v)",
    "matmul": "c = Conv(x, w) m = MatMul(c, k) a = Add(m, kb) y = Relu(a)",
    "attention": "c = Conv(x, w) d = Conv(x, v) m = MatMul(c, d) s = Softmax(m) y = MatMul(s, c)",
}
"""More of them, with the constants that they read in CONSTANTS."""

CONSTANTS: dict[str, np.ndarray] = {
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "k": np.random.default_rng(5).standard_normal((6, 5)).astype(np.float32),
    "kb": np.random.default_rng(6).standard_normal(5).astype(np.float32),
}


def conv_model(
    body: str, outputs: str = "float[N,8,H,W] y", constants: dict[str, np.ndarray] | None = None
) -> ir.Model:
    """A graph on x float[N,8,6,6] given as ONNX text; w is a random 1x1 weight, b a bias."""
    made = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 17]>'
        f" g (float[N,8,6,6] x) => ({outputs}) {{ {body} }}"
    )
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {
        "w": rng.standard_normal((8, 8, 1, 1)).astype(np.float32),
        "v": rng.standard_normal((8, 8, 1, 1)).astype(np.float32),
        "b": rng.standard_normal(8).astype(np.float32),
        "zero": np.array(0, np.float32),
        "six": np.array(6, np.float32),
        **(constants or {}),
    }
    named = {v.name: v for n in made.graph for v in n.inputs if v is not None}
    for name, array in arrays.items():
        if name in named:
            named[name].const_value = ir.Tensor(array, name=name)
            named[name].type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
            named[name].shape = ir.Shape(array.shape)
            made.graph.register_initializer(named[name])
    return made


def data(n: int = 8) -> list[dict[str, Singles]]:
    """Batches for `conv_model`."""
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((2, 8, 6, 6)).astype(np.float32)} for _ in range(n)]


SIDE = 32
INT8 = NarrowRangeObserver.with_args()
INT4 = NarrowRangeObserver.with_args(dtype="int4", quant_max=7)
HALF = NoopObserver.with_args(dtype="float16")


def one(op_type: str, shapes: list[tuple[int, ...]], x: list[Any], **attributes: Any) -> Any:
    """The operator on x and constant weights of these shapes."""
    names = "wrb"[: len(shapes)]
    constants = {n: weights(i, *s) for i, (n, s) in enumerate(zip(names, shapes, strict=True))}
    return model(
        [helper.make_node(op_type, ["x", *names], ["y"], "node", **attributes)], constants, {"x": x}
    )


def shared() -> onnx.ModelProto:
    """Two MatMuls of one x, as Q and K are, and the bias of one."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"], "query"),
        helper.make_node("MatMul", ["x", "v"], ["k"], "key"),
        helper.make_node("Add", ["q", "b"], ["s"], "bias"),
        helper.make_node("Mul", ["s", "k"], ["y"], "mul"),
    ]
    constants = {"w": weights(0, SIDE, SIDE), "v": weights(1, SIDE, SIDE), "b": weights(2, SIDE)}
    return model(nodes, constants, {"x": ["N", SIDE]})


def table() -> onnx.ModelProto:
    """The rows of a table that ids name."""
    node = helper.make_node("Gather", ["w", "ids"], ["y"], "node")
    graph = helper.make_graph(
        [node],
        "table",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["N"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights(0, 40, SIDE), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def recurrent(op_type: str, gates: int) -> onnx.ModelProto:
    """Five steps of two samples."""
    shapes = [(1, gates * SIDE, 8), (1, gates * SIDE, SIDE), (1, 2 * gates * SIDE)]
    made: onnx.ModelProto = one(op_type, shapes, [5, 2, 8], hidden_size=SIDE)
    return made


class Dynamic(NamedTuple):
    """A model, the observer of its weights, and the name of the Precision (None: chosen)."""

    model: onnx.ModelProto
    weight: ObserverSpec
    form: str | None


DYNAMIC = {
    "matmul_integer": Dynamic(shared(), INT8, "dynamic_int8"),
    "gemm_integer": Dynamic(
        one("Gemm", [(8, SIDE), (8,)], ["N", SIDE], transB=1), INT8, "dynamic_int8"
    ),
    "matmul_blocks": Dynamic(
        one("MatMul", [(SIDE, 8)], ["N", SIDE]), INT4, "weight_only_groupwise"
    ),
    "matmul_half": Dynamic(one("MatMul", [(SIDE, 8)], ["N", SIDE]), HALF, None),
    "lstm_integer": Dynamic(recurrent("LSTM", 4), INT8, "dynamic_int8"),
    "gru_integer": Dynamic(recurrent("GRU", 3), INT8, "dynamic_int8"),
    "gru_stored": Dynamic(recurrent("GRU", 3), INT8, "weight_only"),
    "gather_stored": Dynamic(table(), INT8, "weight_only"),
    "gather_blocks": Dynamic(table(), INT4, "weight_only_groupwise"),
    "conv_stored": Dynamic(one("Conv", [(4, 3, 3, 3), (4,)], ["N", 3, 6, 6]), INT8, "weight_only"),
}

EVERYTHING = """g (float[N,3,6,6] x, bool c) => (float[] y, float[] z) {
    k = Constant<value = float {0.5}>()
    wt = Transpose<perm=[1,0,2,3]>(w)
    a = Conv(x, wt)
    n = BatchNormalization(a, gamma, beta, mean, var)
    r = Relu(n)
    parts = Reshape(r, split)
    swapped = Transpose<perm=[0,2,1,3,4]>(parts)
    shuffled = Reshape(swapped, merged)
    d, mask = Dropout(shuffled)
    i = Identity(d)
    h3 = Add(i, three) h6 = Clip(h3, zero, six) hx = Mul(i, h6) h = Div(hx, six)
    gd = Div(h, root) ge = Erf(gd) g1 = Add(ge, one) gx = Mul(h, g1) g = Mul(gx, half)
    lm = ReduceMean<axes=[-1]>(g) lc = Sub(g, lm) ls = Mul(lc, lc) lv = ReduceMean<axes=[-1]>(ls)
    le = Add(lv, eps) lr = Sqrt(le) ld = Div(lc, lr)
    ln = Mul(ld, gain)
    m = ReduceMean<axes=[-2,-1], keepdims=0>(ln)
    t = local.twice(m)
    y = Identity(t)
    dead = Neg(t)
    z = If(c) <
        then_branch = p () => (float[] out) {
            l = Constant<value = float {0}>() [same] s = Identity(t) out = Max(s, l) },
        else_branch = q () => (float[] out) {
            l = Constant<value = float {2}>() [same] s = Mul(t, l) out = Identity(s) }> }
<domain: "local", opset_import: ["" : 13]> twice (v) => (u) { u = Add(v, v) }"""


def everything() -> ir.Model:
    """A graph in which every canonical pass has work."""
    header = '<ir_version: 10, opset_import: ["" : 13, "local" : 1]>\n'
    proto = parser.parse_model(header + EVERYTHING)
    rng = np.random.default_rng(0)
    arrays = {n: rng.uniform(0.5, 2, 4) for n in ("gamma", "beta", "mean", "var")}
    numbers = {"zero": 0.0, "eps": 1e-5, "half": 0.5, "one": 1.0, "three": 3.0, "six": 6.0}
    arrays["gain"] = np.arange(4.0)
    arrays |= {n: np.array(v) for n, v in {**numbers, "root": np.sqrt(2)}.items()}
    for name, array in {"w": rng.normal(size=(3, 4, 3, 3)), **arrays}.items():
        proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    for name, sizes in {"split": [0, 2, 2, 4, 4], "merged": [0, 4, 4, 4]}.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.array(sizes), name))
    return ir.from_proto(proto)
