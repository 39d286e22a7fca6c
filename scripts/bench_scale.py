"""CPU seconds of each stage on models of twice as many nodes, and ONNX Runtime's own load apart.

    python scripts/bench_scale.py [--nodes 250 500 1000 2000]

Sums: products of one input, added one after the other. Layers: products and Relu, one behind the
other. Loading is what onnxruntime.InferenceSession takes; the other columns are without it. Behind
each time is its ratio to that of half as many nodes: 2 is linear.

What it printed is in scripts/bench_scale.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.checking.execution import execution
from onnxq.ort import runtime
from onnxq.qconfig import Choice, default_qconfig_mapping
from onnxq.static.prepare import backend_of
from scripts._tables import head, line

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, ROWS = 16, 4
STAGES = ("prepare", "plan", "rewrite", "execution", "cross_check", "predict", "verify")


def sums(nodes: int) -> onnx.ModelProto:
    """Products of x, and the sum of them all."""
    made, last = [], ""
    for i in range(nodes // 2):
        made.append(helper.make_node("MatMul", ["x", f"w{i}"], [f"m{i}"], name=f"product{i}"))
        if last:
            made.append(helper.make_node("Add", [last, f"m{i}"], [f"s{i}"], name=f"sum{i}"))
        last = f"s{i}" if last else f"m{i}"
    return _model(made, last, nodes // 2)


def layers(nodes: int) -> onnx.ModelProto:
    """Products of what the Relu behind the last one gave."""
    made, last = [], "x"
    for i in range(nodes // 2):
        made.append(helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"], name=f"product{i}"))
        made.append(helper.make_node("Relu", [f"m{i}"], [f"r{i}"], name=f"relu{i}"))
        last = f"r{i}"
    return _model(made, last, nodes // 2)


def _model(nodes: list[onnx.NodeProto], output: str, weights: int) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    arrays = rng.normal(0, WIDTH**-0.5, (weights, WIDTH, WIDTH)).astype(np.float32)
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [ROWS, WIDTH]) for n in ("x", output)
    ]
    constants = [numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(arrays)]
    graph = helper.make_graph(nodes, "scale", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


class _Loads:
    """CPU seconds that ONNX Runtime has spent in loading models."""

    def __init__(self) -> None:
        self.s = 0.0
        ort = vars(runtime)["ort"]
        load = ort.InferenceSession

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return load(*args, **kwargs)
            finally:
                self.s += time.process_time() - start

        ort.InferenceSession = timed


LOADS = _Loads()


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """(its result, CPU seconds without ONNX Runtime's loading)."""
    start, loads = time.process_time(), LOADS.s
    result = work()
    return result, time.process_time() - start - (LOADS.s - loads)


def measure(model: onnx.ModelProto, choice: Choice) -> dict[str, float]:
    """CPU seconds of each stage, and of all loading."""
    x = np.random.default_rng(1).standard_normal((4, ROWS, WIDTH), dtype=np.float32)
    batches, took, before = [{"x": each} for each in x], {}, LOADS.s
    mapping = default_qconfig_mapping(backend_of(None)).set_choice(choice)
    prepared, took["prepare"] = timed(lambda: onnxq.prepare(model, mapping))
    statistics = onnxq.calibrate(prepared, batches, threads=1)
    plan, took["plan"] = timed(lambda: onnxq.plan(prepared, statistics))
    made, took["rewrite"] = timed(lambda: onnxq.rewrite(prepared, plan))
    _, took["execution"] = timed(lambda: execution(made))
    _, took["cross_check"] = timed(lambda: onnxq.cross_check(made, batches[:1]))
    _, took["predict"] = timed(lambda: onnxq.predict(made, batches[:1]))
    _, took["verify"] = timed(lambda: onnxq.verify(model, made, batches[:1]))
    return took | {"loading": LOADS.s - before}


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[250, 500, 1000, 2000])
    arguments = parser.parse_args()
    for name, make in (("sums", sums), ("layers", layers)):
        for choice in (Choice.BEST, Choice.ALL_INTEGERS):
            print(f"\n{name}, {choice.value}\n")
            print(head("nodes", *STAGES, "loading"))
            before: dict[str, float] = {}
            for nodes in arguments.nodes:
                took = measure(make(nodes), choice)
                cells = [_cell(took[stage], before.get(stage)) for stage in (*STAGES, "loading")]
                print(line(nodes, *cells), flush=True)
                before = took


def _cell(seconds: float, before: float | None) -> str:
    return f"{seconds:.2f}" + (f" ({seconds / before:.1f})" if before else "")


if __name__ == "__main__":
    main()
