"""Small models that mutations start from, each with what a real one brings."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

import onnxq

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onnxq.core.arrays import Array

BATCHES = 2


def _weights(model: onnx.ModelProto, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    """The model with normal float32 weights of these names and shapes."""
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        array = (rng.standard_normal(shape) * 0.3).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def _ints(model: onnx.ModelProto, **values: list[int]) -> onnx.ModelProto:
    for name, value in values.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    return model


def cnn() -> onnx.ModelProto:
    """Convolutions, BatchNormalization, pooling, a residual sum, Gemm."""
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        cnn (float[N, 3, 8, 8] x) => (float[N, 5] y) {
            c1 = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w1, b1)
            n1 = BatchNormalization(c1, s, b, m, v)
            r1 = Relu(n1)
            c2 = Conv<pads = [1, 1, 1, 1]>(r1, w2)
            sum = Add(r1, c2)
            p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(sum)
            g = GlobalAveragePool(p)
            f = Flatten(g)
            y = Gemm<transB = 1>(f, w3, b3)
        }""")
    model = _weights(
        model, w1=(4, 3, 3, 3), b1=(4,), s=(4,), b=(4,), m=(4,), w2=(4, 4, 3, 3), w3=(5, 4), b3=(5,)
    )
    model.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "v"))
    return model


def transformer() -> onnx.ModelProto:
    """An embedding, one attention block, LayerNormalization; sizes computed by Shape and Gather."""
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        transformer (int64[B, 6] ids) => (float[B, 6, 8] y) {
            e = Gather(table, ids)
            q0 = MatMul(e, wq)
            q1 = Add(q0, bq)
            shape = Shape(e)
            batch = Gather(shape, zero)
            b1 = Unsqueeze(batch, axis)
            heads = Concat<axis = 0>(b1, rest)
            q2 = Reshape(q1, heads)
            q = Transpose<perm = [0, 2, 1, 3]>(q2)
            k = Transpose<perm = [0, 2, 3, 1]>(q2)
            qk = MatMul(q, k)
            scaled = Div(qk, two)
            a = Softmax<axis = -1>(scaled)
            av = MatMul(a, q)
            t = Transpose<perm = [0, 2, 1, 3]>(av)
            flat = Concat<axis = 0>(b1, whole)
            o = Reshape(t, flat)
            o1 = MatMul(o, wo)
            r = Add(o1, e)
            n = LayerNormalization<axis = -1>(r, g, b)
            h = MatMul(n, w1)
            er = Erf(h)
            hg = Mul(h, er)
            y = MatMul(hg, w2)
        }""")
    model = _weights(
        model, table=(11, 8), wq=(8, 8), bq=(8,), wo=(8, 8), g=(8,), b=(8,), w1=(8, 16), w2=(16, 8)
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array(2, np.float32), "two"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), "zero"))
    return _ints(model, axis=[0], rest=[6, 2, 4], whole=[6, 8])


def bodies() -> onnx.ModelProto:
    """If with Conv in a branch that owns weights, and a Loop around a MatMul."""
    then = helper.make_graph(
        [helper.make_node("MatMul", ["h", "wt"], ["then_y"], "then_matmul")],
        "then",
        [],
        [helper.make_tensor_value_info("then_y", TensorProto.FLOAT, None)],
    )
    rng = np.random.default_rng(1)
    inner = rng.standard_normal((4, 4)).astype(np.float32)
    then.initializer.append(numpy_helper.from_array(inner, "wt"))
    other = helper.make_graph(
        [helper.make_node("Relu", ["h"], ["else_y"], "else_relu")],
        "else",
        [],
        [helper.make_tensor_value_info("else_y", TensorProto.FLOAT, None)],
    )
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["carried", "wl"], ["next"], "loop_matmul"),
            helper.make_node("Identity", ["go_in"], ["go_out"], "go"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go_in", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"], "first"),
        helper.make_node("ReduceSum", ["h"], ["total"], "total", keepdims=0),
        helper.make_node("Greater", ["total", "limit"], ["cond"], "compare"),
        helper.make_node("If", ["cond"], ["c"], "choice", then_branch=then, else_branch=other),
        helper.make_node("Loop", ["trips", "yes", "c"], ["y"], "repeat", body=body),
    ]
    graph = helper.make_graph(
        nodes,
        "bodies",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
    )
    graph.initializer.extend(
        [
            numpy_helper.from_array(np.array(0, np.float32), "limit"),
            numpy_helper.from_array(np.array(3, np.int64), "trips"),
            numpy_helper.from_array(np.array(True), "yes"),
        ]
    )
    opsets = [helper.make_opsetid("", 17)]
    return _weights(
        helper.make_model(graph, ir_version=9, opset_imports=opsets), w0=(4, 4), wl=(4, 4)
    )


def functions() -> onnx.ModelProto:
    """A function with a weight of its own, which another one calls."""
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17, "local" : 1]>
        functions (float[N, 4] x) => (float[N, 4] y) {
            h = local.twice(x)
            y = MatMul(h, w)
        }
        <domain: "local", opset_import: ["" : 17, "local" : 1]>
        twice (a) => (c) { b = local.layer(a) c = local.layer(b) }
        <domain: "local", opset_import: ["" : 17]>
        layer (a) => (d) { v = Constant() b = MatMul(a, v) d = Relu(b) }""")
    rng = np.random.default_rng(2)
    weight = numpy_helper.from_array(rng.standard_normal((4, 4)).astype(np.float32), "inner")
    constant = model.functions[1].node[0]
    constant.attribute.append(helper.make_attribute("value", weight))
    return _weights(model, w=(4, 4))


def recurrent() -> onnx.ModelProto:
    """An LSTM and a linear layer."""
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        recurrent (float[5, N, 4] x) => (float[5, N, 3] y) {
            h, last, cell = LSTM<hidden_size = 6>(x, w, r, b)
            s = Squeeze(h, axis)
            y = MatMul(s, o)
        }""")
    return _ints(_weights(model, w=(1, 24, 4), r=(1, 24, 6), b=(1, 48), o=(6, 3)), axis=[1])


def old() -> onnx.ModelProto:
    """Opset 11: attributes that are inputs now, Upsample's successor, Pad, Split, Slice."""
    model = parser.parse_model("""
        <ir_version: 6, opset_import: ["" : 11]>
        old (float[1, 4, 6, 6] x) => (float[1, 4, 12, 12] y, float[1, 2, 4, 4] z) {
            c = Conv<kernel_shape = [1, 1]>(x, w)
            k = Clip(c, low, high)
            up = Resize<mode = "nearest">(k, roi, scales)
            y = Sigmoid(up)
            first, second = Split<axis = 1, split = [2, 2]>(k)
            both = Mul(first, second)
            cut = Slice(both, starts, ends, axes)
            u = Unsqueeze<axes = [0]>(cut)
            z = Squeeze<axes = [0]>(u)
        }""")
    for name, value in {"low": 0.0, "high": 6.0}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    for name, values in {"roi": [], "scales": [1, 1, 2, 2]}.items():
        array = np.array(values, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return _ints(_weights(model, w=(4, 4, 1, 1)), starts=[1, 1], ends=[5, 5], axes=[2, 3])


def folded() -> onnx.ModelProto:
    """Constants computed from constants, of the kind that exporters leave."""
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        folded (float[N, 4] x) => (float[N, M] y) {
            t = Transpose(w)
            s = Shape(w)
            n = Gather(s, zero)
            r = Reshape(t, shape)
            k = Mul(r, half)
            e = Expand(half, s)
            z = ConstantOfShape(s)
            ks = Add(k, e)
            kz = Sub(ks, z)
            c = Cast<to = 1>(kz)
            p = Pad(c, pads)
            y0 = MatMul(x, p)
            y = Where(yes, y0, y0)
        }""")
    model.graph.initializer.extend(
        [
            numpy_helper.from_array(np.array(0.5, np.float32), "half"),
            numpy_helper.from_array(np.array(0, np.int64), "zero"),
            numpy_helper.from_array(np.array(True), "yes"),
        ]
    )
    return _ints(_weights(model, w=(4, 4)), shape=[4, 4], pads=[0, 0, 0, 1])


def half() -> onnx.ModelProto:
    """The CNN in float16."""
    model = cnn()
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return model


def sequences() -> onnx.ModelProto:
    """A sequence and text beside numbers."""
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        sequences (float[N, 4] x) => (float[N, 4] y, string[2] words) {
            parts = SplitToSequence<axis = 1, keepdims = 1>(x)
            z = ConcatFromSequence<axis = 1>(parts)
            y = MatMul(z, w)
            words = Identity(texts)
        }""")
    texts = numpy_helper.from_array(np.array(["a", "é"], object), "texts")
    model.graph.initializer.append(texts)
    return _weights(model, w=(4, 4))


FLOAT: dict[str, Callable[[], onnx.ModelProto]] = {
    "cnn": cnn,
    "transformer": transformer,
    "bodies": bodies,
    "functions": functions,
    "recurrent": recurrent,
    "old": old,
    "folded": folded,
    "half": half,
    "sequences": sequences,
}


@functools.cache
def float_model(name: str) -> bytes:
    """The float model of that name in FLOAT."""
    made = FLOAT[name]()
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


QUANTIZED = ("qdq", "qoperator", "dynamic")
QUANTIZABLE = ("cnn", "transformer", "bodies", "functions", "recurrent", "old", "sequences")
"""Float models that have all of these forms."""


_MADE: dict[tuple[str, str], bytes] = {}
"""Quantized models that `make_all` made ahead; others are made where they are asked for."""


def make_all() -> None:
    """Quantizes all models ahead of the forks of workers, in a process of its own.

    ONNX Runtime's sessions leave threads behind, which a fork would not copy.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        names = list(itertools.product(QUANTIZABLE, QUANTIZED))
        _MADE.update(zip(names, pool.map(quantized_model, *zip(*names, strict=True)), strict=True))


def quantized_model(name: str, form: str) -> bytes:
    """A float model, quantized by onnxq, in one of the forms of QUANTIZED."""
    if (name, form) not in _MADE:
        _MADE[name, form] = _quantized_model(name, form)
    return _MADE[name, form]


def _quantized_model(name: str, form: str) -> bytes:
    import onnx_ir as ir

    proto = onnx.load_from_string(float_model(name))
    if form == "dynamic":
        made = onnxq.quantize_dynamic(proto, objective="size", check=onnxq.Check.NONE)
    else:
        made = onnxq.quantize(proto, samples(name), format=form, check=onnxq.Check.NONE)
    made.metadata_props.clear()  # names the float model: a mutated one would be refused by its hash
    return bytes(ir.to_proto(made).SerializeToString())


def samples(name: str) -> Mapping[str, Array]:
    """Arrays for the inputs of a float model, two samples of each; the first axis counts them."""
    proto = onnx.load_from_string(float_model(name))
    rng = np.random.default_rng(3)
    arrays: dict[str, Array] = {}
    for value in proto.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [d.dim_value or BATCHES for d in dims]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype.kind == "f":
            arrays[value.name] = rng.standard_normal(shape).astype(dtype)
        else:
            arrays[value.name] = rng.integers(0, 10, shape).astype(dtype)
    return arrays
