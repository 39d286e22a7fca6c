"""Speed of dynamically quantized com.microsoft Attention, alone and in a fused layer of BERT base.

    python -m benchmarks attention sizes
    python -m benchmarks attention layer
    python -m benchmarks attention pairs

One thread, CPU time of that thread; all variants take turns in every round, and a ratio is the
median over the rounds of what was measured in the same round. Above 1, the variant is faster.

`sizes`: Attention of heads of 64 by hidden size and sequence, batch 1, against float: as QAttention
with a scale per column, which onnxq writes; with an attention_bias, which QAttention lacks, against
float with one; with one scale; with its product split off, as DynamicQuantizeMatMul, Split and
MultiHeadAttention; and with stored weights. A session has several of them, and the time of a
session without any is taken off. The same numbers go to
onnxq/targets/attention_speedups.csv, which planning uses.
`layer`: 12 heads, width 768, inner width 3072, in the operators that ONNX Runtime's transformer
tools fuse, at sequence 128, 16 and 1; against float and against
onnxruntime.quantization.quantize_dynamic in each of its variants, with the SQNR of the output.
`pairs`: of these, onnxq's and the peer's two by two, with no other model in the caches.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import onnxq
from benchmarks.dynamic import quantized
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import Row, Table
from benchmarks.parts.speedups import write_speedups
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Precision
from scripts._graphs import model_of
from scripts._peer import DYNAMIC_VARIANTS, dynamic_variants
from scripts._tables import sqnr_db
from scripts._timing import ratios, session, taking_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

MICROSOFT = "com.microsoft"
HEAD = 64
SIZES = (64, 128, 256, 512, 768, 1024)
ROWS = (1, 16, 128)
ROUNDS = 31
TRIES, PAIR_ROUNDS = 5, 201
COPIES = 8  # in one session
WEIGHT_BYTES = 2**21  # of one session in float, but for two attentions
WIDTH, HEADS, INNER = 768, 12, 3072
CHOSEN, BIASED = "QAttention", "attention_bias"
ONE_SCALE, SPLIT, STORED = "one scale", "product split off", "weight_only"
EMPTY, FLOAT_BIASED = "no attention", "float, attention_bias"
VARIANTS = (CHOSEN, BIASED, ONE_SCALE, SPLIT, STORED)
LENGTHS = (128, 16, 1)
OTHERS = ("float", *DYNAMIC_VARIANTS)
SIZE_SPEEDUPS = Table(
    "sizes",
    {"hidden": "", "rows": "", "float, us": ".0f", **dict.fromkeys(VARIANTS, ".2f")},
    keys=2,
)
LAYER = Table(
    "layer",
    {
        **{"sequence": "", "variant": "", "SQNR, dB": ".1f", "CPU ms": ".2f"},
        **dict.fromkeys(OTHERS, ".2f"),
    },
    keys=2,
)
PAIRS = Table(
    "pairs",
    {
        **{"sequence": "", "variant": "", "beside": "", "times as fast": ".2f"},
        **{"in five tries": ""},
    },
    keys=3,
)
SCORES = "scores"  # an attention_bias


def hidden_model(
    nodes: list[onnx.NodeProto],
    constants: Mapping[str, npt.NDArray[np.generic]],
    inputs: Mapping[str, int],
    outputs: Mapping[str, int],
) -> onnx.ModelProto:
    """A model of tensors (batch, rows, width)."""

    def shapes(widths: Mapping[str, int]) -> dict[str, list[int | str]]:
        return {name: ["batch", "rows", width] for name, width in widths.items()}

    return model_of(nodes, constants, shapes(inputs), shapes(outputs), opset=17)


# --- sizes


def attentions(hidden: int, copies: int, *more: str) -> onnx.ModelProto:
    """Attention as often as that, each with an input and a weight of its own.

    Args:
        hidden: size.
        copies: how often.
        more: inputs behind the bias; SCORES is one of the model.
    """
    rng = np.random.default_rng(0)
    nodes = []
    constants: dict[str, npt.NDArray[np.generic]] = {}
    for i in range(copies):
        slots = [f"x{i}", f"w{i}", f"b{i}", *more]
        nodes.append(
            helper.make_node(
                "Attention",
                slots,
                [f"y{i}"],
                f"attention{i}",
                domain=MICROSOFT,
                num_heads=max(hidden // HEAD, 1),
            )
        )
        constants[f"w{i}"] = rng.standard_normal((hidden, 3 * hidden)) / np.sqrt(hidden)
        constants[f"b{i}"] = rng.standard_normal(3 * hidden) * 0.1
    ends = [{f"{end}{i}": hidden for i in range(copies)} for end in "xy"]
    made = hidden_model(nodes, constants, *ends)
    if SCORES in more:
        shape: list[int | str] = [1, max(hidden // HEAD, 1), "rows", "rows"]
        made.graph.input.append(helper.make_tensor_value_info(SCORES, TensorProto.FLOAT, shape))
    return made


def no_attention(hidden: int, copies: int) -> onnx.ModelProto:
    """The same inputs, and next to nothing done with them."""
    shape = helper.make_node("Shape", ["x0"], ["y0"], start=2)
    made = hidden_model([shape], {}, {f"x{i}": hidden for i in range(copies)}, {})
    made.graph.output.append(helper.make_tensor_value_info("y0", TensorProto.INT64, [1]))
    return made


def split_off(model: onnx.ModelProto) -> onnx.ModelProto:
    """Each DynamicQuantizeLinear and QAttention as a MatMul, Split and MultiHeadAttention."""
    nodes: list[onnx.NodeProto] = []
    sources = {n.output[0]: n.input[0] for n in model.graph.node if n.op_type != "QAttention"}
    sizes = {t.name: t.dims[0] for t in model.graph.initializer if t.name.startswith("b")}
    for node in model.graph.node:
        if node.op_type != "QAttention":
            continue
        integers, weight, bias, _, scale = node.input[:5]
        stem = node.name
        slots = [sources[integers], weight, scale, "", bias]
        nodes.append(
            helper.make_node("DynamicQuantizeMatMul", slots, [f"{stem}_qkv"], domain=MICROSOFT)
        )
        parts = [f"{stem}_{part}" for part in "qkv"]
        third = numpy_helper.from_array(np.array([sizes[bias] // 3] * 3, np.int64), f"{stem}_sizes")
        model.graph.initializer.append(third)
        nodes.append(helper.make_node("Split", [f"{stem}_qkv", third.name], parts, axis=2))
        heads = next(a.i for a in node.attribute if a.name == "num_heads")
        nodes.append(
            helper.make_node(
                "MultiHeadAttention", parts, node.output[:1], domain=MICROSOFT, num_heads=heads
            )
        )
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def size_sessions(hidden: int, copies: int) -> dict[str, onnxruntime.InferenceSession]:
    """Nothing, float and each variant."""
    model = attentions(hidden, copies)
    columns, one = NarrowRangeObserver.with_args(), NarrowRangeObserver.with_args(ch_axis=None)
    chosen = quantized(model, Precision.DYNAMIC_INT8, columns)
    biased = attentions(hidden, copies, "", "", SCORES)
    return {
        EMPTY: session(no_attention(hidden, copies)),
        "float": session(model),
        CHOSEN: session(chosen),
        FLOAT_BIASED: session(biased),
        BIASED: session(quantized(biased, Precision.DYNAMIC_INT8, columns)),
        ONE_SCALE: session(quantized(model, Precision.DYNAMIC_INT8, one)),
        SPLIT: session(split_off(ir.to_proto(chosen))),
        STORED: session(quantized(model, Precision.WEIGHT_ONLY, columns)),
    }


def bound_run(each: onnxruntime.InferenceSession, rows: int) -> Callable[[], object]:
    """A run whose inputs are in place already; of the outputs, one is handed back."""
    binding, rng = each.io_binding(), np.random.default_rng(0)
    for value in each.get_inputs():
        sizes = {"batch": 1, "rows": rows}
        shape = [sizes.get(size, size) for size in value.shape]
        x = rng.standard_normal(shape).astype(np.float32)
        binding.bind_ortvalue_input(value.name, onnxruntime.OrtValue.ortvalue_from_numpy(x))
    binding.bind_output("y0")
    return lambda: each.run_with_iobinding(binding)


def sizes() -> Iterator[Row]:
    """Speedups by size; attention_speedups.csv is written for planning."""
    tables: dict[str, dict[int, list[float]]] = {CHOSEN: {}, BIASED: {}}
    for hidden in SIZES:
        copies = min(COPIES, max(2, WEIGHT_BYTES // (12 * hidden * hidden)))
        sessions = size_sessions(hidden, copies)
        for rows in ROWS:
            runs = {n: bound_run(each, rows) for n, each in sessions.items()}
            times = taking_turns(runs, ROUNDS)
            net = {n: t - times[EMPTY] for n, t in times.items()}
            plain = net["float"]
            rivals = [net[FLOAT_BIASED] if name == BIASED else plain for name in VARIANTS]
            speedups = [float(np.median(t / net[n])) for n, t in zip(VARIANTS, rivals, strict=True)]
            for name, table in tables.items():
                table.setdefault(hidden, []).append(speedups[VARIANTS.index(name)])
            yield SIZE_SPEEDUPS.row(hidden, rows, plain.min() / copies * 1e6, *speedups)
    kinds = {"Attention": tables[CHOSEN], "MultiHeadAttention": tables[BIASED]}
    by_kind = {
        (kind, "dynamic_int8", 8, hidden, 3 * hidden): found
        for kind, table in kinds.items()
        for hidden, found in table.items()
    }
    write_speedups("attention_speedups.csv", ROWS, by_kind)


# --- layer


def layer() -> onnx.ModelProto:
    """Attention, SkipLayerNormalization and BiasGelu of com.microsoft, and three MatMul."""
    rng = np.random.default_rng(0)
    constants: dict[str, npt.NDArray[np.generic]] = {}
    nodes: list[onnx.NodeProto] = []

    def node(op_type: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op_type, inputs, [output], output, **attributes))
        return output

    def weight(name: str, k: int, n: int) -> list[str]:
        constants[f"{name}_w"] = rng.standard_normal((k, n)) / np.sqrt(k)
        constants[f"{name}_b"] = rng.standard_normal(n) * 0.1
        return [f"{name}_w", f"{name}_b"]

    def norm(x: str, skip: str, bias: str, name: str) -> str:
        constants[f"{name}_gamma"] = np.ones(WIDTH, np.float32)
        constants[f"{name}_beta"] = np.zeros(WIDTH, np.float32)
        inputs = [x, skip, f"{name}_gamma", f"{name}_beta", bias]
        return node("SkipLayerNormalization", inputs, name, domain=MICROSOFT, epsilon=1e-12)

    heads = node(
        "Attention", ["x", *weight("qkv", WIDTH, 3 * WIDTH)], "mixed", domain=MICROSOFT,
        num_heads=HEADS,
    )  # fmt: skip
    out, bias = weight("out", WIDTH, WIDTH)
    first = norm(node("MatMul", [heads, out], "projected"), "x", bias, "norm1")
    up, bias = weight("inner", WIDTH, INNER)
    inner = node("MatMul", [first, up], "raised")
    inner = node("BiasGelu", [inner, bias], "gelu", domain=MICROSOFT)
    down, bias = weight("outer", INNER, WIDTH)
    norm(node("MatMul", [inner, down], "lowered"), first, bias, "y")
    made = hidden_model(nodes, constants, {"x": WIDTH}, {"y": WIDTH})
    widths = {
        name: INNER if name in ("raised", "gelu") else WIDTH for n in nodes for name in n.output
    }
    typed = hidden_model([], {}, {name: width for name, width in widths.items() if name != "y"}, {})
    made.graph.value_info.extend(typed.graph.input)  # quantize_dynamic refuses the model without
    return made


def layers() -> Iterator[Row]:
    """Each variant against float and against each of the peer's."""
    model = layer()
    models: dict[str, onnx.ModelProto | ir.Model] = {"float": model, **dynamic_variants(model)}
    for objective in ("speed", "size"):
        for target in ("auto", "portable"):
            made = onnxq.quantize_dynamic(model, target=target, objective=objective)
            models[f"onnxq {objective}, {target}"] = made
    sessions = {name: session(each) for name, each in models.items()}
    for length in LENGTHS:
        x = sample(length)
        wanted = sessions["float"].run(None, {"x": x})[0]
        for name, row in ratios(sessions, x, 41).items():
            sqnr = sqnr_db(wanted, sessions[name].run(None, {"x": x})[0])
            shown = None if np.isinf(sqnr) else sqnr
            yield LAYER.row(length, name, shown, row[""] * 1e3, *(row[other] for other in OTHERS))


def sample(length: int) -> npt.NDArray[np.float32]:
    """One random sequence."""
    return np.random.default_rng(1).standard_normal((1, length, WIDTH)).astype(np.float32)


def pairs() -> Iterator[Row]:
    """The peer's default and its best, each alone with one of onnxq's."""
    model = layer()
    models: dict[str, onnx.ModelProto | ir.Model] = {**dynamic_variants(model)}
    for objective in ("speed", "size"):
        made = onnxq.quantize_dynamic(model, target="auto", objective=objective)
        models[f"onnxq {objective}"] = made
    tensor, channel = (f"quantize_dynamic QInt8 {kind}" for kind in ("tensor", "channel"))
    rivals = (("onnxq speed", tensor), ("onnxq speed", channel), ("onnxq size", channel))
    for length, (ours, theirs) in itertools.product(LENGTHS, rivals):
        tries = []
        for _ in range(TRIES):
            sessions = {name: session(models[name]) for name in (ours, theirs)}
            tries.append(ratios(sessions, sample(length), PAIR_ROUNDS)[ours][theirs])
        every = " ".join(f"{ratio:.2f}" for ratio in sorted(tries))
        yield PAIRS.row(length, ours, theirs, np.median(tries), every)


PARTS = {"sizes": sizes, "layer": layers, "pairs": pairs}


@benchmark(SIZE_SPEEDUPS, LAYER, PAIRS)
@with_names(PARTS)
def measure(names: Sequence[str]) -> Iterator[Row]:
    """The rows of the parts that are asked for."""
    for name in names or PARTS:
        yield from PARTS[name]()
