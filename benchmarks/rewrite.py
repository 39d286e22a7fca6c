"""Time to quantize a long chain, calibration excluded, beside onnxruntime.quantization.

    python -m benchmarks rewrite

The chain is MatMul(32x32) + Relu, again and again. onnxq: load, canonicalize, prepare, plan,
rewrite, save, with Statistics given. quantize_static: the whole call, less the CPU time spent in
its calibrator (building, running and reading it), measured by wrapping it. CPU time of this
process; the least of several rounds.
"""

from __future__ import annotations

import gc
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import onnx
from onnx import helper
from onnxruntime.quantization import QuantFormat, quantize_static

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import Row, Table
from onnxq.graph.io import save
from onnxq.observers import MinMaxObserver, NarrowRangeObserver
from onnxq.qconfig import QConfig, default_qconfig_mapping
from scripts._graphs import model_of
from scripts._peer import Batch, Reader
from scripts._peer import quantize as ort_quantize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CHAIN = Table(
    "chain",
    {
        **{"nodes": "", "onnxq CPU s": ".2f", "quantize_static CPU s": ".2f"},
        **{"onnxq / quantize_static": ".3f", "onnxq vs half the nodes": ".2f"},
    },
)
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


@benchmark(CHAIN)
@click.option("--nodes", type=int, multiple=True, default=(1000, 2000, 4000), show_default=True)
@click.option("--rounds", default=7, help="of onnxq; the best one counts")
@click.option("--peer-limit", default=2000, help="no quantize_static beyond so many nodes")
def measure(nodes: Sequence[int], rounds: int, peer_limit: int) -> Iterator[Row]:
    """Seconds of both tools by the number of nodes."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {count: Path(folder) / f"chain{count}.onnx" for count in nodes}
        for count, path in paths.items():
            chain(count, path)
        output = Path(folder) / "out.onnx"
        # the sizes take turns, so that a slow moment of the machine hits all of them
        times = [
            {count: onnxq_seconds(path, output) for count, path in paths.items()}
            for _ in range(rounds)
        ]
        ours = {count: min(seconds[count] for seconds in times) for count in paths}
        for count, path in paths.items():
            peer = onnxruntime_seconds(path, output) if count <= peer_limit else None
            half, seconds = ours.get(count // 2), ours[count]
            over, growth = peer and seconds / peer, half and seconds / half
            yield CHAIN.row(count, seconds, peer, over, growth)
