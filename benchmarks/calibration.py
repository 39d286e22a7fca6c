"""Memory and time of calibration on a ResNet-50 at 224x224, beside onnxruntime.quantization.

    python -m benchmarks calibration [--many 512] [--few 32] [--cap-gb 12]

Each figure comes from its own process on one core. Memory is the peak resident size of a process
that opens the model, calibrates on an npz, and computes every qparams (it holds the imports and the
weights too). Time is CPU time per batch of one image: plain inference, fully optimized, the same
with the observed tensors as outputs, and calibration take turns. `early` is of the first batches,
in which histograms count all far values, all other figures are of later ones. `observers` is what
calibration takes on top of the exposed outputs, over plain inference. ONNX Runtime's calibrators
run under a limit of address space, as their memory grows with the samples; where they need more,
fewer samples are tried. Weights are random. Takes about 6 minutes and 0.5 GB of disk; Linux only.
The table that this printed is in benchmarks/results/calibration.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.observers import (
    EntropyObserver,
    HistogramObserver,
    MinMaxObserver,
    NarrowRangeObserver,
    Observer,
    PercentileObserver,
)
from onnxq.observers._every_kth import EARLY
from onnxq.ort import runtime
from onnxq.qconfig import QConfig, QConfigMapping
from onnxq.samples import input_specs, open_samples
from onnxq.static.calibration import Calibration
from scripts._tables import head, line

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.static.prepared import Prepared

METHODS: dict[str, type[Observer]] = {
    "MinMax": MinMaxObserver,
    "Histogram": HistogramObserver,
    "Percentile": PercentileObserver,
    "Entropy": EntropyObserver,
}
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # (channels, blocks) of ResNet-50
TARGET = "x86-vnni"  # where weights give up range, means of channels are observed, too
TIMED_BATCHES = 40
WARM_UP = 4
FEWER = (8, 2)  # samples for a calibrator that does not fit with the wanted number


class _Builder:
    """Nodes and weights of a graph that is being made."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op_type: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=f"n_{name}", **attributes))
        return name

    def weight(self, *shape: int, deviation: float) -> str:
        name = f"w_{len(self.weights)}"
        values = self.rng.standard_normal(shape, dtype=np.float32) * np.float32(deviation)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def conv(self, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1) -> str:
        deviation = (2 / (inputs * kernel * kernel)) ** 0.5  # keeps the size through a Relu
        w = self.weight(outputs, inputs, kernel, kernel, deviation=deviation)
        b = self.weight(outputs, deviation=0.05)
        pads = [kernel // 2] * 4
        return self.node("Conv", [x, w, b], strides=[stride] * 2, pads=pads)

    def block(self, x: str, inputs: int, width: int, stride: int) -> str:
        y = self.node("Relu", [self.conv(x, inputs, width, 1)])
        y = self.node("Relu", [self.conv(y, width, width, 3, stride)])
        y = self.conv(y, width, 4 * width, 1)
        short = x if inputs == 4 * width else self.conv(x, inputs, 4 * width, 1, stride)
        return self.node("Relu", [self.node("Add", [y, short])])


def resnet50() -> onnx.ModelProto:
    """The graph with BatchNorm folded: 53 Conv, 49 Relu, 16 Add, one Gemm."""
    build = _Builder()
    x = build.node("Relu", [build.conv("image", 3, 64, 7, 2)])
    x = build.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    inputs = 64
    for stage, (width, blocks) in enumerate(STAGES):
        for number in range(blocks):
            x = build.block(x, inputs, width, 2 if stage and not number else 1)
            inputs = 4 * width
    x = build.node("Flatten", [build.node("GlobalAveragePool", [x])])
    logits = build.node("Gemm", [x, build.weight(inputs, 1000, deviation=0.02)])
    graph = helper.make_graph(
        build.nodes,
        "resnet50",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 224, 224])],
        [helper.make_tensor_value_info(logits, TensorProto.FLOAT, ["n", 1000])],
        build.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _prepare(folder: Path, method: str) -> Prepared:
    qconfig = QConfig(METHODS[method].with_args(), NarrowRangeObserver.with_args())
    mapping = QConfigMapping(global_qconfig=qconfig)
    return onnxq.prepare(folder / "resnet50.onnx", mapping, target=TARGET)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measure_memory(folder: Path, method: str, samples: int) -> dict[str, float]:
    """Peak megabytes of calibrating on that many samples, and CPU seconds."""
    start = time.process_time()
    prepared = _prepare(folder, method)
    statistics = onnxq.calibrate(prepared, folder / f"{samples}.npz", threads=1)
    for observer in statistics.observers.values():
        observer.calculate_qparams()
    return {"mb": _peak_mb(), "s": time.process_time() - start}


def measure_time(folder: Path, method: str, samples: int) -> dict[str, float]:
    """Medians of CPU milliseconds per batch, and what they are of plain inference."""
    prepared = _prepare(folder, method)
    batches = open_samples(folder / f"{samples}.npz", input_specs(prepared.model))
    times_s: dict[str, list[float]] = {"plain": [], "exposed": [], "calibration": []}
    with (
        runtime.open_session(folder / "resnet50.onnx", threads=1) as session,
        Calibration(prepared, threads=1) as run,
    ):
        steps: dict[str, Callable[[dict[str, Any]], object]] = {
            "plain": session.run,
            "exposed": run.advance,
            "calibration": run.observe,
        }
        for batch in itertools.islice(itertools.cycle(batches), EARLY + TIMED_BATCHES):
            for name, step in steps.items():
                start = time.process_time()
                step(batch)
                times_s[name].append(time.process_time() - start)
    early, later = (
        {name: 1e3 * float(np.median(s[part])) for name, s in times_s.items()}
        for part in (slice(WARM_UP, EARLY), slice(EARLY, None))
    )
    return {
        **{f"{name}_ms": ms for name, ms in later.items()},
        "exposing": later["exposed"] / later["plain"],
        "observers": (later["calibration"] - later["exposed"]) / later["plain"],
        "early": (early["calibration"] - early["exposed"]) / early["plain"],
    }


def measure_ort(folder: Path, method: str, samples: int) -> dict[str, float]:
    """Peak megabytes and CPU seconds of onnxruntime.quantization's calibrator."""
    from onnxruntime.quantization import CalibrationMethod
    from onnxruntime.quantization.calibrate import create_calibrator

    from scripts._peer import Reader  # here: what it imports takes memory

    with np.load(folder / f"{samples}.npz") as arrays:
        images = arrays["image"]

    start = time.process_time()
    calibrator = create_calibrator(
        folder / "resnet50.onnx",
        augmented_model_path=str(folder / f"augmented_{os.getpid()}.onnx"),
        calibrate_method=getattr(CalibrationMethod, method),
    )
    calibrator.collect_data(Reader({"image": row} for row in images[:, None]))
    calibrator.compute_data()
    return {"mb": _peak_mb(), "s": time.process_time() - start}


MEASURES = {"memory": measure_memory, "time": measure_time, "ort": measure_ort}


def _worker(kind: str, folder: Path, method: str, samples: int, cap_gb: float) -> None:
    cap = int(cap_gb * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
    print(json.dumps(MEASURES[kind](folder, method, samples)))


def _measure(
    kind: str, folder: Path, method: str, samples: int, cap_gb: float
) -> dict[str, float] | None:
    """A worker's figures; None where it needs more memory than it may have."""
    arguments = ["--worker", kind, str(folder), method, str(samples), "--cap-gb", str(cap_gb)]
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}),
    )
    if done.returncode == 0:
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures
    short = ("MemoryError", "bad_alloc", "allocate", "ArrayMemoryError")
    if kind == "ort" and (done.returncode < 0 or any(word in done.stderr for word in short)):
        return None
    raise SystemExit(f"{kind} {method} {samples} failed:\n{done.stderr}")


def _make_files(folder: Path, counts: set[int]) -> None:
    onnx.save(resnet50(), folder / "resnet50.onnx")
    rng = np.random.default_rng(1)
    images = rng.standard_normal((max(counts), 3, 224, 224), dtype=np.float32)
    for count in counts:
        np.savez(folder / f"{count}.npz", image=images[:count])


def _ours(folder: Path, few: int, many: int, cap_gb: float) -> None:
    times_of = ("plain ms", "exposed ms", "calibrate ms", "exposing", "observers", "early")
    print(head("method", f"{few}: MB", f"{many}: MB", "ratio (<= 1.1)", *times_of))
    for method in METHODS:
        small = _measure("memory", folder, method, few, cap_gb)
        large = _measure("memory", folder, method, many, cap_gb)
        times = _measure("time", folder, method, few, cap_gb)
        assert small
        assert large
        assert times
        memory = [f"{small['mb']:.0f}", f"{large['mb']:.0f}", f"{large['mb'] / small['mb']:.3f}"]
        each_ms = [f"{times[f'{name}_ms']:.1f}" for name in ("plain", "exposed", "calibration")]
        shares = [f"{times[name]:.2f}" for name in ("exposing", "observers", "early")]
        print(line(method, *memory, *each_ms, *shares), flush=True)


def _beside_ort(folder: Path, few: int, cap_gb: float) -> None:
    print()
    print(head("method", "samples", "onnxq MB", "ORT MB", "onnxq CPU s", "ORT CPU s"))
    for method in ("MinMax", "Percentile", "Entropy"):
        for samples in (few, *FEWER):
            theirs = _measure("ort", folder, method, samples, cap_gb)
            ours = _measure("memory", folder, method, samples, cap_gb)
            assert ours
            mb, s = "over the limit", "-"
            if theirs is not None:
                mb, s = f"{theirs['mb']:.0f}", f"{theirs['s']:.1f}"
            cells = [f"{ours['mb']:.0f}", mb, f"{ours['s']:.1f}", s]
            print(line(method, samples, *cells), flush=True)
            if theirs is not None:
                break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--many", type=int, default=512)
    parser.add_argument("--few", type=int, default=32)
    parser.add_argument("--cap-gb", type=float, default=12)
    parser.add_argument("--worker", nargs=4, metavar=("KIND", "FOLDER", "METHOD", "SAMPLES"))
    arguments = parser.parse_args()
    if arguments.worker:
        kind, folder, method, samples = arguments.worker
        _worker(kind, Path(folder), method, int(samples), arguments.cap_gb)
        return
    with tempfile.TemporaryDirectory() as folder:
        _make_files(Path(folder), {arguments.many, arguments.few, *FEWER})
        print(f"ResNet-50 (random weights), 1x3x224x224, one core; limit {arguments.cap_gb:g} GB\n")
        _ours(Path(folder), arguments.few, arguments.many, arguments.cap_gb)
        _beside_ort(Path(folder), arguments.few, arguments.cap_gb)


if __name__ == "__main__":
    main()
