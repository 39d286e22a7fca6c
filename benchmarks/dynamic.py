"""Speed of dynamic quantization: MatMuls by shape, and an encoder layer of BERT base.

    python -m benchmarks dynamic shapes
    python -m benchmarks dynamic layer

One thread, CPU time of that thread; all variants take turns in every round, and a ratio is the
median over the rounds of what was measured in the same round. Above 1, the variant is faster.

`shapes`: Gemm with a bias and a Relu behind it, weights (K, N), M rows, in float and in each
dynamic form; float runs the two nodes as one kernel, which no dynamic form does, so that other
MatMuls gain at least as much. A session has up to 16 of them, each with an input and a weight
of its own, and the time of a session with these inputs and no MatMul is taken off: what is left is
what a MatMul costs inside a model. The same numbers go to
onnxq/targets/product_speedups.csv, which planning uses.
`layer`: 12 heads, width 768, inner width 3072, at sequence 128 and 1; against float and against
onnxruntime.quantization.quantize_dynamic in each of its variants.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import Row, Table
from benchmarks.parts.speedups import write_speedups
from onnxq.observers import LeastErrorObserver, NarrowRangeObserver, ObserverSpec
from onnxq.operator import Precision
from onnxq.qconfig import QConfigDynamic, QConfigMapping
from onnxq.targets.speedups import LINEAR_OPS
from scripts._graphs import model_of, proto_of
from scripts._peer import DYNAMIC_VARIANTS, dynamic_variants
from scripts._timing import ratios, session, taking_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt
    import onnx_ir as ir

    Sessions = Mapping[str, onnxruntime.InferenceSession]

OPSET = 20
WIDTH, HEADS, INNER = 768, 12, 3072
ROUNDS = 31
ROWS = (1, 4, 16, 64, 256)
QPARAMS = (32, 64, 128, 256, 512, 2048)
SHAPES = [(k, n) for k in QPARAMS for n in QPARAMS]
COPIES = 16  # MatMuls in one session
WEIGHT_BYTES = 2**20  # of one session in float, but for two MatMuls: they stay in the L2 cache
PRECISIONS: dict[tuple[str, int], tuple[Precision, ObserverSpec]] = {
    ("dynamic_int8", 8): (Precision.DYNAMIC_INT8, NarrowRangeObserver.with_args()),
    ("weight_only_groupwise", 8): (
        Precision.WEIGHT_ONLY_GROUPWISE,
        NarrowRangeObserver.with_args(),
    ),
    ("weight_only_groupwise", 4): (
        Precision.WEIGHT_ONLY_GROUPWISE,
        LeastErrorObserver.with_args(dtype="int4"),
    ),
    ("weight_only_groupwise", 2): (
        Precision.WEIGHT_ONLY_GROUPWISE,
        LeastErrorObserver.with_args(dtype="int2"),
    ),
}
ONE_SCALE, STORED = "integer 8, one scale", "stored 8"
VARIANTS = (ONE_SCALE, STORED, *(f"{name} {bits}" for name, bits in PRECISIONS))
SHAPE_SPEEDUPS = Table("shapes", {"K x N": "", "M": "", **dict.fromkeys(VARIANTS, ".2f")}, keys=2)
OTHERS = ("float", *DYNAMIC_VARIANTS)
LAYER = Table(
    "layer",
    {
        **{"sequence": "", "variant": "", "MB": ".1f", "CPU ms": ".2f"},
        **dict.fromkeys(OTHERS, ".2f"),
    },
    keys=2,
)
EMPTY = "no MatMul"


# --- shapes


def matmuls(k: int, n: int, copies: int) -> onnx.ModelProto:
    """Gemm and Relu, as often as that, each with an input, a weight and a bias of its own."""
    rng = np.random.default_rng(0)
    nodes = []
    constants: dict[str, npt.NDArray[np.generic]] = {}
    for i in range(copies):
        nodes.append(helper.make_node("Gemm", [f"x{i}", f"w{i}", f"b{i}"], [f"p{i}"], f"gemm{i}"))
        nodes.append(helper.make_node("Relu", [f"p{i}"], [f"y{i}"], f"relu{i}"))
        constants[f"w{i}"] = rng.standard_normal((k, n)) / np.sqrt(k)
        constants[f"b{i}"] = rng.standard_normal(n)
    inputs: dict[str, list[int | str]] = {f"x{i}": ["rows", k] for i in range(copies)}
    outputs: dict[str, list[int | str]] = {f"y{i}": ["rows", n] for i in range(copies)}
    return model_of(nodes, constants, inputs, outputs, OPSET)


def no_matmul(k: int, copies: int) -> onnx.ModelProto:
    """The same inputs, and next to nothing done with them."""
    shape = helper.make_node("Shape", ["x0"], ["y0"], start=1)
    made = model_of([shape], {}, {f"x{i}": ["rows", k] for i in range(copies)}, {}, OPSET)
    made.graph.output.append(helper.make_tensor_value_info("y0", TensorProto.INT64, [1]))
    return made


def quantized(
    model: onnx.ModelProto, precision: Precision, weight: ObserverSpec, target: str = "portable"
) -> ir.Model:
    """Every MatMul in that precision, whatever the target thinks of it."""
    mapping = QConfigMapping().set_global(QConfigDynamic(weight, precision))
    return onnxq.quantize_dynamic(model, mapping, target=target, objective="size")


def shape_sessions(k: int, n: int, copies: int) -> dict[str, onnxruntime.InferenceSession]:
    """Nothing, float and each variant."""
    model = matmuls(k, n, copies)
    one_scale = NarrowRangeObserver.with_args(ch_axis=None)
    sessions = {
        EMPTY: session(no_matmul(k, copies)),
        "float": session(model),
        ONE_SCALE: session(quantized(model, Precision.DYNAMIC_INT8, one_scale)),
        STORED: session(quantized(model, Precision.WEIGHT_ONLY, NarrowRangeObserver.with_args())),
    }
    for (name, bits), (precision, weight) in PRECISIONS.items():
        sessions[f"{name} {bits}"] = session(quantized(model, precision, weight))
    return sessions


def bound_runs(sessions: Sessions, rows: int, k: int) -> dict[str, Callable[[], object]]:
    """Runs whose inputs are in place already; of the outputs, one is handed back."""
    runs: dict[str, Callable[[], object]] = {}
    rng = np.random.default_rng(rows)
    for name, each in sessions.items():
        binding = each.io_binding()
        for value in each.get_inputs():
            x = rng.standard_normal((rows, k)).astype(np.float32)
            binding.bind_ortvalue_input(value.name, onnxruntime.OrtValue.ortvalue_from_numpy(x))
        binding.bind_output("y0")
        runs[name] = functools.partial(each.run_with_iobinding, binding)
    return runs


def measured() -> Iterator[tuple[int, int, dict[str, list[float]]]]:
    """(K, N, {variant: speedup per number of rows}) of every shape."""
    for k, n in SHAPES:
        copies = min(COPIES, max(2, WEIGHT_BYTES // (4 * k * n)))
        sessions = shape_sessions(k, n, copies)
        speedups: dict[str, list[float]] = {}
        for rows in ROWS:
            times = taking_turns(bound_runs(sessions, rows, k), ROUNDS)
            for name in VARIANTS:
                speedup = (times["float"] - times[EMPTY]) / (times[name] - times[EMPTY])
                speedups.setdefault(name, []).append(float(np.median(speedup)))
        yield k, n, speedups


def shapes() -> Iterator[Row]:
    """Speedups by shape; product_speedups.csv is written for planning."""
    found = {}
    for k, n, speedups in measured():
        found[k, n] = speedups
        for i, rows in enumerate(ROWS):
            yield SHAPE_SPEEDUPS.row(f"{k} x {n}", rows, *(speedups[name][i] for name in VARIANTS))
    by_precision = {
        (" ".join(LINEAR_OPS), precision, bits, k, n): speedups[f"{precision} {bits}"]
        for precision, bits in PRECISIONS
        for (k, n), speedups in found.items()
    }
    write_speedups("product_speedups.csv", ROWS, by_precision)


# --- layer


def layer() -> onnx.ModelProto:
    """Attention and feed-forward with residuals and layer normalization behind them, as in BERT."""
    rng = np.random.default_rng(0)
    constants: dict[str, npt.NDArray[np.generic]] = {}
    nodes: list[onnx.NodeProto] = []

    def node(op_type: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op_type, inputs, [output], output, **attributes))
        return output

    def linear(x: str, name: str, k: int, n: int) -> str:
        constants[f"{name}_w"] = rng.standard_normal((k, n)) / np.sqrt(k)
        constants[f"{name}_b"] = rng.standard_normal(n) * 0.1
        y = node("MatMul", [x, f"{name}_w"], f"{name}_matmul")
        return node("Add", [y, f"{name}_b"], name)

    def norm(x: str, name: str) -> str:
        constants[f"{name}_gamma"] = np.ones(WIDTH, np.float32)
        constants[f"{name}_beta"] = np.zeros(WIDTH, np.float32)
        inputs = [x, f"{name}_gamma", f"{name}_beta"]
        return node("LayerNormalization", inputs, name, axis=-1, epsilon=1e-12)

    constants["heads"] = np.array([0, 0, HEADS, WIDTH // HEADS], np.int64)
    constants["flat"] = np.array([0, 0, WIDTH], np.int64)
    constants["root"] = np.array(np.sqrt(WIDTH // HEADS), np.float32)
    split = {}
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        y = node("Reshape", [linear("x", name, WIDTH, WIDTH), "heads"], f"{name}_heads")
        split[name] = node("Transpose", [y], f"{name}_turned", perm=perm)
    scores = node("MatMul", [split["q"], split["k"]], "scores")
    scores = node("Softmax", [node("Div", [scores, "root"], "scaled")], "shares", axis=-1)
    mixed = node("MatMul", [scores, split["v"]], "mixed")
    mixed = node("Transpose", [mixed], "mixed_turned", perm=[0, 2, 1, 3])
    mixed = node("Reshape", [mixed, "flat"], "mixed_flat")
    first = norm(node("Add", [linear(mixed, "out", WIDTH, WIDTH), "x"], "residual1"), "norm1")
    inner = node("Gelu", [linear(first, "inner", WIDTH, INNER)], "gelu")
    second = node("Add", [linear(inner, "outer", INNER, WIDTH), first], "residual2")
    norm(second, "y")
    shape: list[int | str] = ["batch", "rows", WIDTH]
    return model_of(nodes, constants, {"x": shape}, {"y": shape}, OPSET)


def layers() -> Iterator[Row]:
    """Each variant against float and against each of the peer's."""
    model = layer()
    models: dict[str, onnx.ModelProto | ir.Model] = {"float": model, **dynamic_variants(model)}
    for objective in ("speed", "size"):
        name = f"onnxq {objective}"
        models[name] = onnxq.quantize_dynamic(model, target="auto", objective=objective)
    weight = LeastErrorObserver.with_args(dtype="int4")
    models["onnxq blocks 4"] = quantized(model, Precision.WEIGHT_ONLY_GROUPWISE, weight)
    sessions = {name: session(each) for name, each in models.items()}
    for length in (128, 1):
        x = np.random.default_rng(1).standard_normal((1, length, WIDTH)).astype(np.float32)
        for name, row in ratios(sessions, x, 41).items():
            size = proto_of(models[name]).ByteSize() / 1e6
            yield LAYER.row(length, name, size, row[""] * 1e3, *(row[other] for other in OTHERS))


PARTS = {"shapes": shapes, "layer": layers}


@benchmark(LAYER, SHAPE_SPEEDUPS)
@with_names(PARTS)
def measure(names: Sequence[str]) -> Iterator[Row]:
    """The rows of the parts that are asked for."""
    for name in names or PARTS:
        yield from PARTS[name]()
