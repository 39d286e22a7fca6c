"""Speed of dynamic quantization: matrix products by shape, and an encoder layer of BERT base.

    python scripts/bench_dynamic.py shapes
    python scripts/bench_dynamic.py layer

One thread, CPU time of that thread; all variants take turns in every round, and a ratio is the
median over the rounds of what was measured in the same round. Above 1, the variant is faster.

`shapes`: Gemm with a bias and a Relu behind it, weights (K, N), M rows, in float and in each
dynamic form; float runs the two nodes as one kernel, which no dynamic form does, so that other
products gain at least as much. A session has up to 16 of them, each with an input and a weight of
its own, and the time of a session with these inputs and no product is taken off: what is left is
what a product costs inside a model. Prints a table for people, and writes the same numbers to
onnxq/targets/product_gains.csv, which planning uses.
`layer`: 12 heads, width 768, inner width 3072, at sequence 128 and 1; against float and against
onnxruntime.quantization.quantize_dynamic in each of its variants.
What both printed is in scripts/bench_dynamic.md.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType

import onnxq
from onnxq.observers import LeastErrorObserver, NarrowRangeObserver, ObserverSpec
from onnxq.operator import DynamicForm
from onnxq.qconfig import QConfigDynamic, QConfigMapping
from onnxq.targets.gains import PRODUCT_OPS
from scripts._gains import write_gains

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt

    Sessions = Mapping[str, onnxruntime.InferenceSession]
    Floats = npt.NDArray[np.float32]

WIDTH, HEADS, INNER = 768, 12, 3072
ROUNDS = 31
TIME_S = 0.002  # of one variant in one round, at least
ROWS = (1, 4, 16, 64, 256)
GRID = (32, 64, 128, 256, 512, 2048)
SHAPES = [(k, n) for k in GRID for n in GRID]
COPIES = 16  # products in one session
WEIGHT_BYTES = 2**20  # of one session in float, but for two products: they stay in the L2 cache
FORMS: dict[tuple[str, int], tuple[DynamicForm, ObserverSpec]] = {
    ("integer", 8): (DynamicForm.INTEGER, NarrowRangeObserver.with_args()),
    ("blocks", 8): (DynamicForm.BLOCKS, NarrowRangeObserver.with_args()),
    ("blocks", 4): (DynamicForm.BLOCKS, LeastErrorObserver.with_args(dtype="int4")),
    ("blocks", 2): (DynamicForm.BLOCKS, LeastErrorObserver.with_args(dtype="int2")),
}
ONE_SCALE, STORED = "integer 8, one scale", "stored 8"
EMPTY = "no product"
# not `from onnxruntime.quantization import quantize`: a function of that name shadows the module
peer = importlib.import_module("onnxruntime.quantization.quantize")


def session(model: onnx.ModelProto | ir.Model) -> onnxruntime.InferenceSession:
    """One thread, full optimization."""
    proto = ir.to_proto(model) if isinstance(model, ir.Model) else model
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def ratios(sessions: Sessions, x: Floats, rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """{a: {b: median of time of b / time of a}}; "" of every a holds its least time in seconds."""
    feeds = {"x": x}
    runs = {name: functools.partial(each.run, None, feeds) for name, each in sessions.items()}
    times = taking_turns(runs, rounds)
    return {
        a: {"": float(mine.min())}
        | {b: float(np.median(theirs / mine)) for b, theirs in times.items()}
        for a, mine in times.items()
    }


def taking_turns(
    runs: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, npt.NDArray[np.float64]]:
    """{name: seconds of one run, in each round}."""
    repeat = {}
    for name, run in runs.items():
        run()
        start = time.thread_time()
        run()
        repeat[name] = max(1, round(TIME_S / max(time.thread_time() - start, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    for turn in range(rounds):
        for name in order if turn % 2 else reversed(order):
            start = time.thread_time()
            for _ in range(repeat[name]):
                runs[name]()
            times[name].append((time.thread_time() - start) / repeat[name])
    return {name: np.array(each) for name, each in times.items()}


# --- shapes


def products(k: int, n: int, copies: int) -> onnx.ModelProto:
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
    return _model(nodes, constants, inputs, outputs)


def no_product(k: int, copies: int) -> onnx.ModelProto:
    """The same inputs, and next to nothing done with them."""
    shape = helper.make_node("Shape", ["x0"], ["y0"], start=1)
    graph = helper.make_graph(
        [shape],
        "bench",
        [_value(f"x{i}", ["rows", k]) for i in range(copies)],
        [helper.make_tensor_value_info("y0", TensorProto.INT64, [1])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _value(name: str, shape: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model(
    nodes: list[onnx.NodeProto],
    constants: Mapping[str, npt.NDArray[np.generic]],
    inputs: Mapping[str, list[int | str]],
    outputs: Mapping[str, list[int | str]],
) -> onnx.ModelProto:
    initializers = [
        numpy_helper.from_array(x.astype(np.float32) if x.dtype.kind == "f" else x, name)
        for name, x in constants.items()
    ]
    graph = helper.make_graph(
        nodes,
        "bench",
        [_value(name, shape) for name, shape in inputs.items()],
        [_value(name, shape) for name, shape in outputs.items()],
        initializers,
    )
    opset = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9)


def quantized(
    model: onnx.ModelProto, form: DynamicForm, weight: ObserverSpec, target: str = "portable"
) -> ir.Model:
    """Every product in that form, whatever the target thinks of it."""
    mapping = QConfigMapping().set_global(QConfigDynamic(weight, form))
    return onnxq.quantize_dynamic(model, mapping, target=target, objective="size")


def shape_sessions(k: int, n: int, copies: int) -> dict[str, onnxruntime.InferenceSession]:
    """Nothing, float and each variant."""
    model = products(k, n, copies)
    one_scale = NarrowRangeObserver.with_args(ch_axis=None)
    sessions = {
        EMPTY: session(no_product(k, copies)),
        "float": session(model),
        ONE_SCALE: session(quantized(model, DynamicForm.INTEGER, one_scale)),
        STORED: session(quantized(model, DynamicForm.STORED, NarrowRangeObserver.with_args())),
    }
    for (name, bits), (form, weight) in FORMS.items():
        sessions[f"{name} {bits}"] = session(quantized(model, form, weight))
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
    """(K, N, {variant: gain per number of rows}) of every shape."""
    for k, n in SHAPES:
        copies = min(COPIES, max(2, WEIGHT_BYTES // (4 * k * n)))
        sessions = shape_sessions(k, n, copies)
        gains: dict[str, list[float]] = {}
        for rows in ROWS:
            times = taking_turns(bound_runs(sessions, rows, k), ROUNDS)
            for name in (ONE_SCALE, STORED, *(f"{name} {bits}" for name, bits in FORMS)):
                gain = (times["float"] - times[EMPTY]) / (times[name] - times[EMPTY])
                gains.setdefault(name, []).append(float(np.median(gain)))
        yield k, n, gains


def print_shapes() -> None:
    """A table for people, and product_gains.csv for planning."""
    head = [ONE_SCALE, STORED, *(f"{name} {bits}" for name, bits in FORMS)]
    print("| K x N | M | " + " | ".join(head) + " |")
    print("|---" * (len(head) + 2) + "|")
    found = {}
    for k, n, gains in measured():
        found[k, n] = gains
        for i, rows in enumerate(ROWS):
            cells = " | ".join(f"{gains[name][i]:.2f}" for name in head)
            print(f"| {k} x {n} | {rows} | {cells} |", flush=True)
    by_form = {
        (" ".join(PRODUCT_OPS), form, bits, k, n): gains[f"{form} {bits}"]
        for form, bits in FORMS
        for (k, n), gains in found.items()
    }
    write_gains("product_gains.csv", ROWS, by_form)


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
        y = node("MatMul", [x, f"{name}_w"], f"{name}_product")
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
    return _model(nodes, constants, {"x": shape}, {"y": shape})


def peers(model: onnx.ModelProto) -> dict[str, onnx.ModelProto]:
    """onnxruntime.quantization.quantize_dynamic in each of its variants."""
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "float.onnx"
        onnx.save(model, source)
        for kind in (QuantType.QInt8, QuantType.QUInt8):
            for per_channel in (False, True):
                path = Path(folder) / f"{kind.name}{per_channel}.onnx"
                peer.quantize_dynamic(source, path, weight_type=kind, per_channel=per_channel)
                name = f"quantize_dynamic {kind.name} {'channel' if per_channel else 'tensor'}"
                made[name] = onnx.load(path)
    return made


def print_layer() -> None:
    """Each variant against float and against each of the peer's."""
    model = layer()
    models: dict[str, onnx.ModelProto | ir.Model] = {"float": model, **peers(model)}
    others = list(models)
    for objective in ("speed", "size"):
        name = f"onnxq {objective}"
        models[name] = onnxq.quantize_dynamic(model, target="auto", objective=objective)
    weight = LeastErrorObserver.with_args(dtype="int4")
    models["onnxq blocks 4"] = quantized(model, DynamicForm.BLOCKS, weight)
    sessions = {name: session(each) for name, each in models.items()}
    for length in (128, 1):
        x = np.random.default_rng(1).standard_normal((1, length, WIDTH)).astype(np.float32)
        found = ratios(sessions, x, 41)
        print(f"\nSequence {length}: how many times as fast as\n")
        print("| variant | MB | CPU ms | " + " | ".join(others) + " |")
        print("|---" * (len(others) + 3) + "|")
        for name, row in found.items():
            cells = " | ".join(f"{row[other]:.2f}" for other in others)
            size = _megabytes(models[name])
            print(f"| {name} | {size:.1f} | {row[''] * 1e3:.2f} | {cells} |", flush=True)


def _megabytes(model: onnx.ModelProto | ir.Model) -> float:
    proto = ir.to_proto(model) if isinstance(model, ir.Model) else model
    return float(proto.ByteSize()) / 1e6


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("shapes", "layer"))
    if parser.parse_args().what == "layer":
        print_layer()
    else:
        print_shapes()


if __name__ == "__main__":
    main()
