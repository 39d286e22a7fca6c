"""Anonymous memory (RssAnon) of quantizing a model of 3 GB, Statistics given, and of checking it.

    python -m benchmarks memory [--gigabytes 3]

Four processes: one makes the model (external data) and its statistics, one quantizes it (load,
canonicalize, prepare, plan, rewrite, save), one reads the result back and runs it on ONNX Runtime,
one holds it against the reference (cross_check). A thread samples /proc/self/status meanwhile.
Needs about 1.3 times the model's size on disk. Linux only.
"""

from __future__ import annotations

import functools
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click
import numpy as np
import onnx_ir as ir

import onnxq
from benchmarks.harness.apart import apart
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import FILE
from benchmarks.harness.table import Missed, Row, Table
from onnxq.graph.io import save
from onnxq.ort import runtime
from onnxq.static.calibrate import Statistics

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS, COLUMNS = 4096, 8192  # 128 MiB in float32; an even number of layers maps ROWS to ROWS
LAYER_BYTES = ROWS * COLUMNS * 4
PEAK = {"RssAnon before MiB": ".0f", "RssAnon peak MiB": ".0f"}
QUANTIZE = Table(
    "quantize", {"model GB": ".2f", "quantized GB": ".2f", **PEAK, "CPU s": ".0f"}, keys=0
)
CHECK = Table("check", {"quantized GB": ".2f", **PEAK, "peak less before / file": ".1f"}, keys=0)


def make_model(path: Path, gigabytes: float) -> None:
    """MatMul + Relu layers with random weights, made one at a time while they are written."""
    layers = 2 * max(1, round(gigabytes * 1e9 / LAYER_BYTES / 2))

    def weight(layer: int, shape: tuple[int, int]) -> ir.TensorProtocol:
        rng = np.random.default_rng(layer)
        values = rng.standard_normal(shape, dtype=np.float32)
        values *= np.float32(np.sqrt(2 / shape[0]))
        return ir.Tensor(values, name=f"w{layer}")

    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, ROWS]))
    tensor, nodes, initializers = x, [], []
    for layer in range(layers):
        shape = (ROWS, COLUMNS) if layer % 2 == 0 else (COLUMNS, ROWS)
        lazy = ir.LazyTensor(
            functools.partial(weight, layer, shape),
            ir.DataType.FLOAT,
            ir.Shape(shape),
            name=f"w{layer}",
        )
        w = ir.Value(name=f"w{layer}", type=ir.TensorType(ir.DataType.FLOAT), const_value=lazy)
        initializers.append(w)
        nodes.append(ir.node("MatMul", [tensor, w], name=f"matmul{layer}"))
        nodes[-1].outputs[0].name = f"m{layer}"
        nodes.append(ir.node("Relu", [nodes[-1].outputs[0]], name=f"relu{layer}"))
        tensor = nodes[-1].outputs[0]
        tensor.name = f"r{layer}"
    tensor.type, tensor.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([1, ROWS])
    graph = ir.Graph(
        [x], [tensor], nodes=nodes, initializers=initializers, opset_imports={"": 21}, name="big"
    )
    save(ir.Model(graph, ir_version=10), path)


def rss_anon_kib() -> int:
    """Anonymous memory of this process."""
    for entry in Path("/proc/self/status").read_text().splitlines():
        if entry.startswith("RssAnon:"):
            return int(entry.split()[1])
    raise RuntimeError("no RssAnon in /proc/self/status: Linux 4.5 or newer is needed")


class Peak:
    """Samples RssAnon while it is open: KiB before, and at most."""

    def __enter__(self) -> Self:
        self.before = self.most = rss_anon_kib()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def _sample(self) -> None:
        while not self._done.wait(0.002):
            self.most = max(self.most, rss_anon_kib())

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def mib(self) -> list[float]:
        """Cells of a table, below PEAK."""
        return [self.before / 1024, self.most / 1024]


def bytes_of(folder: Path, stem: str) -> int:
    """Size of a model with its external data."""
    return sum(file.stat().st_size for file in folder.glob(f"{stem}.onnx*"))


def quantize(folder: Path) -> list[float]:
    """Cells of the whole quantization."""
    with Peak() as peak:
        started = time.process_time()
        prepared = onnxq.prepare(folder / "model.onnx")
        statistics = Statistics.load(folder / "model.stats")
        save(onnxq.rewrite(prepared, onnxq.plan(prepared, statistics)), folder / "quantized.onnx")
        seconds = time.process_time() - started
    sizes = [bytes_of(folder, stem) / 1e9 for stem in ("model", "quantized")]
    return [*sizes, *peak.mib(), seconds]


def check(folder: Path) -> list[float]:
    """Cells of comparing every integer, on one sample."""
    x = np.random.default_rng(0).standard_normal((1, ROWS)).astype(np.float32)
    onnxq.cross_check  # noqa: B018  # imports what it needs before the first sample
    with Peak() as peak:
        onnxq.cross_check(folder / "quantized.onnx", {"x": x}).check()
    size = bytes_of(folder, "quantized")
    return [size / 1e9, *peak.mib(), (peak.most - peak.before) * 1024 / size]


def run(folder: Path) -> bool:
    """Reads the result back and runs it once; whether the output is any good."""
    session = runtime.open_session(folder / "quantized.onnx")
    x = np.random.default_rng(0).standard_normal((1, ROWS)).astype(np.float32)
    (y,) = session.run({"x": x})
    return bool(np.isfinite(y).all() and y.any())


def make(folder: Path, gigabytes: float) -> None:
    """The model, and statistics from one random sample."""
    make_model(folder / "model.onnx", gigabytes)
    x = np.random.default_rng(0).standard_normal((1, ROWS)).astype(np.float32)
    prepared = onnxq.prepare(folder / "model.onnx")
    onnxq.calibrate(prepared, [{"x": x}]).save(folder / "model.stats")


@benchmark(QUANTIZE, CHECK)
@click.option("--gigabytes", default=3.0)
@click.option("--folder", type=FILE, help="where to put the models; default: a temporary one")
def measure(gigabytes: float, folder: Path | None) -> Iterator[Row | Missed]:
    """The rows of both tables."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        apart(make, place, gigabytes)
        yield QUANTIZE.row(*apart(quantize, place))
        if not apart(run, place):
            yield Missed("the quantized model's output is zero or not finite")
        yield CHECK.row(*apart(check, place))
