"""Anonymous memory (RssAnon) of quantizing a model of 3 GB, Statistics given, and of checking it.

    python -m benchmarks memory [--gigabytes 3] [--folder FOLDER]

Four processes: one makes the model (external data) and its statistics, one quantizes it (load,
canonicalize, prepare, plan, rewrite, save), one reads the result back and runs it on ONNX Runtime,
one holds it against the reference (cross_check). A thread samples /proc/self/status meanwhile.
Needs about 1.3 times the model's size on disk. Linux only.
The lines that this printed are in benchmarks/results/memory.md.
"""

from __future__ import annotations

import argparse
import functools
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

import numpy as np
import onnx_ir as ir

import onnxq
from onnxq.graph.io import save
from onnxq.ort import runtime
from onnxq.static.calibrate import Statistics
from scripts._tables import head, line

ROWS, COLUMNS = 4096, 8192  # 128 MiB in float32; an even number of layers maps ROWS to ROWS
LAYER_BYTES = ROWS * COLUMNS * 4
PEAK = ("RssAnon before MiB", "RssAnon peak MiB")


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

    def cells(self) -> list[str]:
        """Cells of a table, below PEAK."""
        return [f"{kib / 1024:.0f}" for kib in (self.before, self.most)]


def quantize(model: Path, statistics: Path, output: Path) -> None:
    """Prints the peak of RssAnon over the whole quantization."""
    with Peak() as peak:
        started = time.process_time()
        prepared = onnxq.prepare(model)
        save(onnxq.rewrite(prepared, onnxq.plan(prepared, Statistics.load(statistics))), output)
        seconds = time.process_time() - started
    size = sum(f.stat().st_size for f in model.parent.glob("model.onnx*"))
    written = sum(f.stat().st_size for f in output.parent.glob("quantized.onnx*"))
    print(head("model GB", "quantized GB", *PEAK, "CPU s"))
    print(line(f"{size / 1e9:.2f}", f"{written / 1e9:.2f}", *peak.cells(), f"{seconds:.0f}"))


def check(model: Path) -> None:
    """Prints the peak of RssAnon while every integer is compared, on one sample."""
    x = np.random.default_rng(0).standard_normal((1, ROWS)).astype(np.float32)
    onnxq.cross_check  # noqa: B018  # imports what it needs before the first sample
    with Peak() as peak:
        onnxq.cross_check(model, {"x": x}).check()
    size = sum(f.stat().st_size for f in model.parent.glob("quantized.onnx*"))
    times = (peak.most - peak.before) * 1024 / size
    print(head("quantized GB", *PEAK, "peak less before / file"))
    print(line(f"{size / 1e9:.2f}", *peak.cells(), f"{times:.1f}"))


def run(model: Path) -> None:
    """Reads the result back and runs it once."""
    session = runtime.open_session(model)
    x = np.random.default_rng(0).standard_normal((1, ROWS)).astype(np.float32)
    (y,) = session.run({"x": x})
    if not (np.isfinite(y).all() and y.any()):
        raise SystemExit("the quantized model's output is zero or not finite")
    print(f"read back and run: output {y.shape}, mean magnitude {np.abs(y).mean():.3f}")


def calibrate(model: Path, statistics: Path) -> None:
    """Statistics from one random sample."""
    x = np.random.default_rng(0).standard_normal((1, ROWS)).astype(np.float32)
    onnxq.calibrate(onnxq.prepare(model), [{"x": x}]).save(statistics)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument(
        "--folder", type=Path, help="where to put the models; default: a temporary one"
    )
    parser.add_argument(
        "--step", choices=["make", "quantize", "run", "check"], help=argparse.SUPPRESS
    )
    args = parser.parse_args()
    if args.step is None:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            for step in ("make", "quantize", "run", "check"):
                command = [sys.executable, __file__, "--folder", folder, "--step", step]
                command += ["--gigabytes", str(args.gigabytes)]
                subprocess.run(command, check=True)
        return
    model, statistics = args.folder / "model.onnx", args.folder / "model.stats"
    output = args.folder / "quantized.onnx"
    if args.step == "make":
        make_model(model, args.gigabytes)
        calibrate(model, statistics)
    elif args.step == "quantize":
        quantize(model, statistics, output)
    elif args.step == "run":
        run(output)
    else:
        check(output)


if __name__ == "__main__":
    main()
