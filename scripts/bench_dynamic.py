"""Speed of dynamic quantization: matrix products by shape, and an encoder layer of BERT base.

    python scripts/bench_dynamic.py shapes [--gains]
    python scripts/bench_dynamic.py layer

One thread, CPU time of that thread; all variants take turns in every round, and a ratio is the
median over the rounds of what was measured in the same round. Above 1, the variant is faster.

`shapes`: MatMul and a bias, weights (K, N), M rows, in float and in each dynamic form. With
--gains, as the rows of PRODUCTS in onnxq/dynamic_gains.py, which planning uses.
`layer`: 12 heads, width 768, inner width 3072, at sequence 128 and 1; against float and against
onnxruntime.quantization.quantize_dynamic in each of its variants.
What both printed is in scripts/bench_dynamic.md.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    Sessions = Mapping[str, onnxruntime.InferenceSession]
    Floats = npt.NDArray[np.float32]

WIDTH, HEADS, INNER = 768, 12, 3072
ROUNDS = 15
TIME_S = 0.004  # of one variant in one round, at least
ROWS = (1, 8, 32, 128, 512)
GRID = (32, 128, 512, 2048)
SHAPES = [(k, n) for k in GRID for n in GRID] + [(WIDTH, WIDTH), (WIDTH, INNER), (INNER, WIDTH)]
FORMS: dict[tuple[str, int], tuple[DynamicForm, ObserverSpec]] = {
    ("integer", 8): (DynamicForm.INTEGER, NarrowRangeObserver.with_args()),
    ("blocks", 8): (DynamicForm.BLOCKS, NarrowRangeObserver.with_args()),
    ("blocks", 4): (DynamicForm.BLOCKS, LeastErrorObserver.with_args(dtype="int4")),
    ("blocks", 2): (DynamicForm.BLOCKS, LeastErrorObserver.with_args(dtype="int2")),
}
ONE_SCALE = "integer 8, one scale"
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
    repeat = {}
    for name, each in sessions.items():
        each.run(None, feeds)
        start = time.thread_time()
        each.run(None, feeds)
        repeat[name] = max(1, round(TIME_S / max(time.thread_time() - start, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in sessions}
    order = list(sessions)
    for turn in range(rounds):
        for name in order if turn % 2 else reversed(order):
            start = time.thread_time()
            for _ in range(repeat[name]):
                sessions[name].run(None, feeds)
            times[name].append((time.thread_time() - start) / repeat[name])
    return {
        a: {"": min(mine)}
        | {b: statistics.median(np.array(theirs) / np.array(mine)) for b, theirs in times.items()}
        for a, mine in times.items()
    }


# --- shapes


def product(k: int, n: int) -> onnx.ModelProto:
    """MatMul and a bias over (batch, rows, K)."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "matmul"),
        helper.make_node("Add", ["p", "b"], ["y"], "add"),
    ]
    constants = {"w": rng.standard_normal((k, n)) / np.sqrt(k), "b": rng.standard_normal(n)}
    return _model(nodes, constants, k, n)


def _model(
    nodes: list[onnx.NodeProto], constants: Mapping[str, npt.NDArray[np.generic]], k: int, n: int
) -> onnx.ModelProto:
    initializers = [
        numpy_helper.from_array(x.astype(np.float32) if x.dtype.kind == "f" else x, name)
        for name, x in constants.items()
    ]
    graph = helper.make_graph(
        nodes,
        "bench",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "rows", k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "rows", n])],
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


def measured() -> Iterator[tuple[int, int, dict[str, list[float]]]]:
    """(K, N, {form and bits: gain per number of rows}) of every shape."""
    for k, n in SHAPES:
        model = product(k, n)
        sessions = {"float": session(model)}
        for (name, bits), (form, weight) in FORMS.items():
            sessions[f"{name} {bits}"] = session(quantized(model, form, weight))
        sessions[ONE_SCALE] = session(
            quantized(model, DynamicForm.INTEGER, NarrowRangeObserver.with_args(ch_axis=None))
        )
        gains: dict[str, list[float]] = {}
        for rows in ROWS:
            x = np.random.default_rng(rows).standard_normal((1, rows, k)).astype(np.float32)
            for name, row in ratios(sessions, x).items():
                gains.setdefault(name, []).append(row["float"])
        yield k, n, gains


def print_shapes() -> None:
    """A table for people."""
    head = [ONE_SCALE, *(f"{name} {bits}" for name, bits in FORMS)]
    print("| K x N | M | " + " | ".join(head) + " |")
    print("|---" * (len(head) + 2) + "|")
    for k, n, gains in measured():
        for i, rows in enumerate(ROWS):
            cells = " | ".join(f"{gains[name][i]:.2f}" for name in head)
            print(f"| {k} x {n} | {rows} | {cells} |", flush=True)


def print_gains() -> None:
    """PRODUCTS of onnxq/dynamic_gains.py."""
    found = list(measured())
    for name, bits in FORMS:
        print(f'    ("{name}", {bits}): {{')
        for k, n, gains in found:
            cells = ", ".join(f"{gain:.2f}" for gain in gains[f"{name} {bits}"])
            print(f"        ({k}, {n}): ({cells}),")
        print("    },")


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
    return _model(nodes, constants, WIDTH, WIDTH)


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
    parser.add_argument("--gains", action="store_true", help="print rows of the committed table")
    arguments = parser.parse_args()
    if arguments.what == "layer":
        print_layer()
    elif arguments.gains:
        print_gains()
    else:
        print_shapes()


if __name__ == "__main__":
    main()
