"""Time to quantize a long chain, calibration excluded, beside onnxruntime.quantization.

    python -m benchmarks rewrite

The chain is MatMul(32x32) + Relu, again and again. onnxq: load, canonicalize, prepare, plan,
rewrite, save, with Statistics given. quantize_static: the whole call, less the CPU time spent in
its calibrator (building, running and reading it), measured by wrapping it. CPU time of this
process; the least of several rounds.
The table that this printed is in benchmarks/results/rewrite.md.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper
from onnxruntime.quantization import QuantFormat, quantize_static

import onnxq
from onnxq.graph.io import save
from onnxq.observers import MinMaxObserver, NarrowRangeObserver
from onnxq.qconfig import QConfig, default_qconfig_mapping
from scripts._graphs import model_of
from scripts._peer import Batch, Reader
from scripts._peer import quantize as ort_quantize
from scripts._tables import head, line

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH = 32
# MinMax on both sides: the search for a scale is calibration, which is not what is timed here
MINMAX = default_qconfig_mapping().set_global(
    QConfig(MinMaxObserver.with_args(), NarrowRangeObserver.with_args())
)


def chain(nodes: int, path: Path) -> None:
    """MatMul, Relu, MatMul, Relu ...: `nodes` in all; weights keep the signal's size."""
    rng = np.random.default_rng(0)
    made, constants, tensor = [], {}, "x"
    for i in range(nodes // 2):
        weight = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) * np.sqrt(2 / WIDTH)
        constants[f"w{i}"] = weight
        made.append(helper.make_node("MatMul", [tensor, f"w{i}"], [f"m{i}"], name=f"matmul{i}"))
        made.append(helper.make_node("Relu", [f"m{i}"], [f"r{i}"], name=f"relu{i}"))
        tensor = f"r{i}"
    shape = [1, WIDTH]
    onnx.save(model_of(made, constants, {"x": shape}, {tensor: shape}, opset=21), path)


def samples() -> list[Batch]:
    """Two random ones."""
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((1, WIDTH)).astype(np.float32)} for _ in range(2)]


def onnxq_seconds(path: Path, output: Path) -> float:
    """CPU seconds of everything but calibration."""
    statistics = onnxq.calibrate(onnxq.prepare(path, MINMAX), samples())
    gc.collect()  # what calibration left is not to be collected on rewriting's time
    started = time.process_time()
    prepared = onnxq.prepare(path, MINMAX)
    save(onnxq.rewrite(prepared, onnxq.plan(prepared, statistics)), output)
    return time.process_time() - started


def onnxruntime_seconds(path: Path, output: Path) -> float:
    """CPU seconds of quantize_static less those inside its calibrator."""
    inside = 0.0

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            started = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                inside += time.process_time() - started

        return call

    create = ort_quantize.create_calibrator

    def create_timed(*args: Any, **kwargs: Any) -> Any:
        calibrator = timed(create)(*args, **kwargs)
        calibrator.collect_data = timed(calibrator.collect_data)
        calibrator.compute_data = timed(calibrator.compute_data)
        return calibrator

    vars(ort_quantize)["create_calibrator"] = create_timed
    try:
        started = time.process_time()
        quantize_static(str(path), str(output), Reader(samples()), quant_format=QuantFormat.QDQ)
        return time.process_time() - started - inside
    finally:
        vars(ort_quantize)["create_calibrator"] = create


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 2000, 4000])
    parser.add_argument("--rounds", type=int, default=7, help="of onnxq; the best one counts")
    parser.add_argument("--peer-limit", type=int, default=2000, help="no quantize_static beyond it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = {nodes: Path(folder) / f"chain{nodes}.onnx" for nodes in args.nodes}
        for nodes, path in paths.items():
            chain(nodes, path)
        output = Path(folder) / "out.onnx"
        # the sizes take turns, so that a slow moment of the machine hits all of them
        rounds = [
            {nodes: onnxq_seconds(path, output) for nodes, path in paths.items()}
            for _ in range(args.rounds)
        ]
        ours = {nodes: min(seconds[nodes] for seconds in rounds) for nodes in paths}
        theirs = {
            nodes: onnxruntime_seconds(path, output)
            for nodes, path in paths.items()
            if nodes <= args.peer_limit
        }
    print(table(ours, theirs))


def table(ours: dict[int, float], theirs: dict[int, float]) -> str:
    """Markdown, a row per size."""
    names = (
        "nodes", "onnxq CPU s", "quantize_static CPU s", "onnxq / quantize_static",
        "onnxq vs half the nodes",
    )  # fmt: skip
    lines = [head(*names)]
    for nodes, seconds in ours.items():
        peer, half = theirs.get(nodes), ours.get(nodes // 2)
        beside = ("-", "-") if peer is None else (f"{peer:.2f}", f"{seconds / peer:.3f}")
        growth = "-" if half is None else f"{seconds / half:.2f}"
        lines.append(line(nodes, f"{seconds:.2f}", *beside, growth))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
