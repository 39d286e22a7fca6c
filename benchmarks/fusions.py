"""Time of the forms of float and integer nodes that ONNX Runtime runs fast, beside those it would.

    python -m benchmarks fusions                  # all tables, minutes
    python -m benchmarks fusions norms products   # some of them

One thread, CPU time of that thread; all variants take turns in every round, and a ratio is the
median over the rounds of what was measured in the same round. What is decided from them stands in
onnxq/ort/add_norm.py, onnxq/static/rewrite/qdq.py and operators/microsoft_attention.py.

`norms`: an addition and a normalization behind it, in float: as the one node that ONNX Runtime
makes of Add and LayerNormalization, as Sum and LayerNormalization, and apart (an Add that is read
twice is not fused); and SkipSimplifiedLayerNormalization beside Add and RMSNormalization.
`products`: uint8 integers by an int8 weight with a scale per column, and a float bias, to float32.
`attention`: com.microsoft's Attention in float, as QAttention behind DynamicQuantizeLinear, and
behind QuantizeLinear, its scale known ahead.
`layers`: a layer of BERT base at 128 tokens, and an encoder of six layers, width 384, at 32 and 128
tokens of a dynamic length; post-norm, Gelu by erf, random weights. onnxq as it stands for x86-vnni,
statically and dynamically, beside onnxruntime.quantization per channel in the same rounds.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import Row, Table
from scripts._graphs import model_of
from scripts._peer import dynamic_variants, quantize_static
from scripts._tables import sqnr_db
from scripts._timing import session, taking_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt
    import onnx_ir as ir

    Models = Mapping[str, onnx.ModelProto | ir.Model]
    Feeds = dict[str, npt.NDArray[np.generic]]

MICROSOFT = "com.microsoft"
ROUNDS = 31
COPIES = 8  # of a small node in one session
WIDTHS, ROWS = (384, 768, 1024), (1, 16, 128)
MATMULS = ((256, 256), (256, 1024), (768, 768), (768, 3072), (3072, 768))
MATMUL_ROWS = (1, 32, 128, 512)
HEAD = 64
TARGET = "x86-vnni"
PEER = "quantize_dynamic QInt8 channel"
NORMS = Table(
    "norms",
    {
        **{"width": "", "rows": "", "Sum, norm, us": ".1f", "fused": ".2f", "apart": ".2f"},
        **{"SkipSimplified over Add, RMSNormalization": ".2f"},
    },
    keys=2,
)
MATMUL_TIMES = Table(
    "products",
    {
        **{"rows": "", "K": "", "N": "", "inside, us": ".0f"},
        **{"MatMulIntegerToFloat, Add": ".2f", "QGemm to float32": ".2f"},
        **{"QGemm, DequantizeLinear": ".2f", "float MatMul, Add": ".2f"},
    },
    keys=3,
)
ATTENTION = Table(
    "attention",
    {"width": "", "rows": "", "float, us": ".0f", "float": ".2f", "scale known ahead": ".2f"},
    keys=2,
)
LAYERS = Table(
    "layers",
    {
        **{"model": "", "tokens": "", "variant": "", "CPU ms": ".2f", "over float": ".3f"},
        **{"times as fast": ".2f", "SQNR, dB": ".1f"},
    },
    keys=3,
)
X_SCALE, X_ZERO = np.float32(0.02), np.uint8(120)
make = helper.make_node


def seconds(models: Models, feeds: Mapping[str, Feeds]) -> dict[str, npt.NDArray[np.float64]]:
    """{name: CPU seconds of each round}; feeds by name, or those of "" for all others."""
    runs: dict[str, Callable[[], object]] = {
        name: functools.partial(session(model).run, None, feeds.get(name, feeds.get("", {})))
        for name, model in models.items()
    }
    return taking_turns(runs, ROUNDS)


def over(times: Mapping[str, npt.NDArray[np.float64]], name: str, base: str) -> float:
    """Median of time over that of the base."""
    return float(np.median(times[name] / times[base]))


# --- norms


def norm_model(op_type: str, norm: str, width: int, read_twice: bool) -> onnx.ModelProto:
    """COPIES of a normalization of x + y, one behind the other.

    Args:
        op_type: of the addition; or of both, where `norm` is empty.
        norm: of the normalization.
        width: of the last axis.
        read_twice: whether an output reads the first sum too, and so on: such are not fused.
    """
    nodes, outputs, x = [], [], "x"
    parameters = ["g"] if "Simplified" in op_type or norm.startswith("RMS") else ["g", "b"]
    for i in range(COPIES):
        if norm:
            nodes.append(make(op_type, [x, "y"], [f"s{i}"]))
            nodes.append(make(norm, [f"s{i}", *parameters], [f"z{i}"], epsilon=1e-5))
        else:
            nodes.append(make(op_type, [x, "y", *parameters], [f"z{i}"], domain=MICROSOFT))
        outputs += [f"s{i}"] if read_twice else []
        x = f"z{i}"
    shape: list[int | str] = ["batch", "rows", width]
    ones = {name: np.full(width, 0.9, np.float32) for name in ("g", "b")}
    ends = dict.fromkeys((*outputs, x), shape)
    return model_of(nodes, ones, dict.fromkeys("xy", shape), ends, opset=23)


def norms() -> Iterator[Row]:
    """Microseconds of Sum and LayerNormalization, and what the others take over it."""
    layer = "LayerNormalization"
    for width in WIDTHS:
        models = {
            "sum": norm_model("Sum", layer, width, read_twice=False),
            "fused": norm_model("Add", layer, width, read_twice=False),
            "sum twice": norm_model("Sum", layer, width, read_twice=True),
            "apart": norm_model("Add", layer, width, read_twice=True),
            "simple": norm_model("SkipSimplifiedLayerNormalization", "", width, read_twice=False),
            "rms": norm_model("Add", "RMSNormalization", width, read_twice=False),
        }
        for rows in ROWS:
            random = np.random.default_rng(0)
            x: Feeds = {
                name: random.standard_normal((1, rows, width)).astype(np.float32) for name in "xy"
            }
            times = seconds(models, {"": x})
            us = np.median(times["sum"]) / COPIES * 1e6
            pairs = (("fused", "sum"), ("apart", "sum twice"), ("simple", "rms"))
            yield NORMS.row(width, rows, us, *(over(times, *pair) for pair in pairs))


# --- MatMuls


def matmul_models(rows: int, inner: int, columns: int) -> Models:
    """The same MatMul in each form, and in float."""
    random = np.random.default_rng(0)
    scale = random.uniform(0.001, 0.01, columns).astype(np.float32)
    bias = random.standard_normal(columns).astype(np.float32)
    integers = random.integers(-127, 128, (inner, columns)).astype(np.int8)
    constants: dict[str, npt.NDArray[np.generic]] = {
        "w": integers, "ws": scale, "wz": np.zeros(columns, np.int8), "b": bias,
        "xs": np.asarray(X_SCALE), "xz": np.asarray(X_ZERO), "ys": np.asarray(np.float32(0.5)),
        "yz": np.asarray(np.uint8(128)), "bi": np.rint(bias / (X_SCALE * scale)).astype(np.int32),
        "flat": np.array([rows, inner]), "back": np.array([1, rows, columns]),
        "wf": integers * scale,
    }  # fmt: skip
    left, shape = ["x", "w", "xs", "ws", "xz", "wz"], ["flat", "back"]
    gemm = ["xf", "xs", "xz", "w", "ws", "wz", "bi"]

    def microsoft(op_type: str, inputs: list[str], output: str) -> onnx.NodeProto:
        return make(op_type, inputs, [output], domain=MICROSOFT)

    flat, back = make("Reshape", ["x", shape[0]], ["xf"]), ["t", shape[1]]
    forms: dict[str, list[onnx.NodeProto]] = {
        "inside": [microsoft("MatMulIntegerToFloat", [*left, "b"], "y")],
        "Add": [microsoft("MatMulIntegerToFloat", left, "t"), make("Add", ["t", "b"], ["y"])],
        "QGemm": [flat, microsoft("QGemm", gemm, "t"), make("Reshape", back, ["y"])],
        "QGemm, DQ": [
            flat,
            microsoft("QGemm", [*gemm, "ys", "yz"], "t"),
            make("Reshape", back, ["u"]),
            make("DequantizeLinear", ["u", "ys", "yz"], ["y"]),
        ],
        "float": [make("MatMul", ["x", "wf"], ["t"]), make("Add", ["t", "b"], ["y"])],
    }
    made = {}
    for name, nodes in forms.items():
        kind = TensorProto.FLOAT if name == "float" else TensorProto.UINT8
        used = {slot for node in nodes for slot in node.input}
        graph = helper.make_graph(
            nodes,
            "matmul",
            [helper.make_tensor_value_info("x", kind, (1, rows, inner))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, rows, columns))],
            [numpy_helper.from_array(a, key) for key, a in constants.items() if key in used],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
        made[name] = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return made


def matmuls() -> Iterator[Row]:
    """Microseconds with the bias inside, and what the others take over it."""
    for rows in MATMUL_ROWS:
        for inner, columns in MATMULS:
            integers = np.random.default_rng(1).integers(0, 256, (1, rows, inner)).astype(np.uint8)
            reals = (integers.astype(np.float32) - np.float32(X_ZERO)) * X_SCALE
            feeds: dict[str, Feeds] = {"": {"x": integers}, "float": {"x": reals}}
            times = seconds(matmul_models(rows, inner, columns), feeds)
            us = np.median(times["inside"]) * 1e6
            others = (over(times, n, "inside") for n in ("Add", "QGemm", "QGemm, DQ", "float"))
            yield MATMUL_TIMES.row(rows, inner, columns, us, *others)


# --- attention


def attention_models(x: npt.NDArray[np.float32]) -> Models:
    """One attention of heads of HEAD on x (1, rows, width), whose range the static scale has."""
    random, width = np.random.default_rng(0), x.shape[-1]
    weight = (random.standard_normal((width, 3 * width)) / np.sqrt(width)).astype(np.float32)
    scale = np.asarray(np.abs(weight).max(axis=0) / 127)
    step = (x.max() - x.min()) / 255
    constants: dict[str, npt.NDArray[np.generic]] = {
        "w": np.rint(weight / scale).astype(np.int8), "ws": scale, "b": np.zeros(3 * width),
        "wz": np.zeros(3 * width, np.int8), "s": np.asarray(np.float32(step)),
        "z": np.asarray(np.uint8(np.rint(-x.min() / step))), "wf": weight,
    }  # fmt: skip

    def integers(quantizer: onnx.NodeProto) -> list[onnx.NodeProto]:
        slots = ["q", "w", "b", "s", "ws", "", "z", "wz"]
        heads = make("QAttention", slots, ["y"], domain=MICROSOFT, num_heads=width // HEAD)
        return [quantizer, heads]

    floats = make("Attention", ["x", "wf", "b"], ["y"], domain=MICROSOFT, num_heads=width // HEAD)
    forms = {
        "float": [floats],
        "dynamic": integers(make("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])),
        "static": integers(make("QuantizeLinear", ["x", "s", "z"], ["q"])),
    }
    shape = {"x": ["batch", "rows", width]}
    made = {}
    for name, nodes in forms.items():
        computed = {output for node in nodes for output in node.output}
        used = {slot for node in nodes for slot in node.input} - computed
        own = {key: array for key, array in constants.items() if key in used}
        made[name] = model_of(nodes, own, shape, {"y": shape["x"]}, opset=17)
    return made


def attention() -> Iterator[Row]:
    """Microseconds in float, and times over that of the dynamic form."""
    for width in (256, 768):
        for rows in ROWS:
            x = np.random.default_rng(2).standard_normal((1, rows, width)).astype(np.float32)
            times = seconds(attention_models(x), {"": {"x": x}})
            us = np.median(times["float"]) * 1e6
            cells = (over(times, name, "dynamic") for name in ("float", "static"))
            yield ATTENTION.row(width, rows, us, *cells)


# --- layers


def encoder(rows: int | str, width: int, heads: int, layers: int) -> onnx.ModelProto:
    """Layers of BERT as PyTorch exports them, random weights."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, npt.NDArray[np.generic]] = {
        "split": np.array([0, 0, heads, width // heads]), "merged": np.array([0, 0, width]),
        "root": np.asarray(np.sqrt(width / heads)), "root2": np.asarray(np.sqrt(2.0)),
        "one": np.asarray(1.0), "half": np.asarray(0.5),
        "g": np.ones(width), "zeros": np.zeros(width),
    }  # fmt: skip

    def add(op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        nodes.append(make(op_type, inputs, [output], f"{output}_node", **attributes))
        return output

    def linear(x: str, name: str, inner: int, columns: int) -> str:
        constants[f"{name}_w"] = random.standard_normal((inner, columns)) / np.sqrt(inner)
        constants[f"{name}_b"] = random.standard_normal(columns) * 0.1
        return add("Add", [add("MatMul", [x, f"{name}_w"], f"{name}_m"), f"{name}_b"], name)

    x = "x"
    for i in range(layers):
        q, k, v = (
            add(
                "Transpose",
                [add("Reshape", [linear(x, f"{n}{i}", width, width), "split"], f"{n}{i}_r")],
                f"{n}{i}_t",
                perm=[0, 2, 3, 1] if n == "k" else [0, 2, 1, 3],
            )
            for n in "qkv"
        )
        scores = add("Div", [add("MatMul", [q, k], f"scores{i}"), "root"], f"scaled{i}")
        mixed = add("MatMul", [add("Softmax", [scores], f"shares{i}", axis=-1), v], f"mixed{i}")
        turned = add("Transpose", [mixed], f"turned{i}", perm=[0, 2, 1, 3])
        out = linear(add("Reshape", [turned, "merged"], f"flat{i}"), f"out{i}", width, width)
        middle = add("LayerNormalization", [add("Add", [out, x], f"r{i}"), "g", "zeros"], f"n{i}")
        up = linear(middle, f"up{i}", width, 4 * width)
        erf = add("Erf", [add("Div", [up, "root2"], f"e{i}")], f"f{i}")
        gate = add("Mul", [up, add("Add", [erf, "one"], f"h{i}")], f"gate{i}")
        down = linear(add("Mul", [gate, "half"], f"gelu{i}"), f"down{i}", 4 * width, width)
        total = add("Add", [down, middle], f"t{i}")
        x = add("LayerNormalization", [total, "g", "zeros"], f"y{i}")
    shape = ["batch", rows, width]
    return model_of(nodes, constants, {"x": shape}, {x: shape}, opset=17)


def layer_models(model: onnx.ModelProto, samples: Sequence[Feeds]) -> Models:
    """The model in float, by onnxq and by the peer."""
    with tempfile.TemporaryDirectory() as folder:
        source, path = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        onnx.save(model, source)
        quantize_static(source, path, samples)
        peer = onnx.load(path)
    return {
        "float": model,
        "onnxq, static": onnxq.quantize(model, list(samples), target=TARGET),
        "onnxq, dynamic": onnxq.quantize_dynamic(model, target=TARGET),
        "quantize_static": peer,
        "quantize_dynamic": dynamic_variants(model)[PEER],
    }


SIZES = {
    "BERT layer": (768, 12, 1, "rows", (128,)),
    "6 layers": (384, 12, 6, "rows", (32, 128)),
    "BERT layer, sizes known": (768, 12, 1, "128", (128,)),
}


def layers() -> Iterator[Row]:
    """Time over float, how many times as fast, and SQNR on a sample not seen before."""
    for name, (width, heads, count, rows, lengths) in SIZES.items():
        for length in lengths:
            random = np.random.default_rng(3)
            samples: list[Feeds] = [
                {"x": random.standard_normal((1, length, width)).astype(np.float32)}
                for _ in range(9)
            ]
            model = encoder(int(rows) if rows.isdigit() else rows, width, heads, count)
            models = layer_models(model, samples[1:])
            times = seconds(models, {"": samples[0]})
            wanted = session(model).run(None, samples[0])[0]
            for variant, made in models.items():
                ratio = over(times, variant, "float")
                db = sqnr_db(wanted, session(made).run(None, samples[0])[0])
                ms = np.median(times[variant]) * 1e3
                shown = "" if variant == "float" else db
                yield LAYERS.row(name, length, variant, ms, ratio, 1 / ratio, shown)


PARTS = {"norms": norms, "products": matmuls, "attention": attention, "layers": layers}


@benchmark(NORMS, MATMUL_TIMES, ATTENTION, LAYERS)
@with_names(PARTS)
def measure(names: Sequence[str]) -> Iterator[Row]:
    """The rows of the parts that are asked for."""
    for name in names or PARTS:
        yield from PARTS[name]()
