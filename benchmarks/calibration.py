"""Memory and time of calibration on a ResNet-50 at 224x224, beside onnxruntime.quantization.

    python -m benchmarks calibration --many 64 --few 32

Each figure comes from its own process on one core. Memory is the peak resident size of a process
that opens the model, calibrates on an npz, and computes every qparams (it holds the imports and the
weights too). Time is CPU time per batch of one image: plain inference, fully optimized, the same
with the observed tensors as outputs, and calibration take turns. `early` is of the first batches,
in which histograms count all far values, all other figures are of later ones. `observers` is what
calibration takes on top of the exposed outputs, over plain inference. ONNX Runtime's calibrators
run under a limit of address space, as their memory grows with the samples; where they need more,
fewer samples are tried. Weights are random. Takes about 6 minutes and 0.5 GB of disk; Linux only.
"""

from __future__ import annotations

import itertools
import os
import resource
import tempfile
import time
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxq
from benchmarks.harness.apart import apart
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import Row, Table
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onnxq.static.prepared import Prepared

METHODS: dict[str, type[Observer]] = {
    "MinMax": MinMaxObserver,
    "Histogram": HistogramObserver,
    "Percentile": PercentileObserver,
    "Entropy": EntropyObserver,
}
OURS = Table(
    "ours",
    {
        **{"method": "", "few: MB": ".0f", "many: MB": ".0f", "ratio (<= 1.1)": ".3f"},
        **{"plain ms": ".1f", "exposed ms": ".1f", "calibrate ms": ".1f"},
        **{"exposing": ".2f", "observers": ".2f", "early": ".2f"},
    },
)
BESIDE = Table(
    "beside",
    {
        **{"method": "", "samples": "", "onnxq MB": ".0f", "ORT MB": ".0f"},
        **{"onnxq CPU s": ".1f", "ORT CPU s": ".1f"},
    },
    keys=2,
)
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


def _limited(cap_gb: float) -> None:
    """Bounds the address space of this process, and holds it to one core."""
    cap = int(cap_gb * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _theirs(cap_gb: float, folder: Path, method: str, samples: int) -> dict[str, float | None]:
    """Figures of ONNX Runtime's calibrator; None where it needs more memory than it may have."""
    try:
        found = apart(measure_ort, folder, method, samples, first=partial(_limited, cap_gb))
    except (BrokenProcessPool, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):
            raise
        return {"mb": None, "s": None}
    return dict(found)


def _make_files(folder: Path, counts: set[int]) -> None:
    onnx.save(resnet50(), folder / "resnet50.onnx")
    rng = np.random.default_rng(1)
    images = rng.standard_normal((max(counts), 3, 224, 224), dtype=np.float32)
    for count in counts:
        np.savez(folder / f"{count}.npz", image=images[:count])


@benchmark(OURS, BESIDE)
@click.option("--many", default=512, show_default=True)
@click.option("--few", default=32, show_default=True)
@click.option("--cap-gb", default=12.0, show_default=True)
def measure(many: int, few: int, cap_gb: float) -> Iterator[Row]:
    """Memory and time by method; then memory and time beside ONNX Runtime's calibrators."""
    first = partial(_limited, cap_gb)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make_files(folder, {many, few, *FEWER})
        for method in METHODS:
            small, large = (
                apart(measure_memory, folder, method, samples, first=first)["mb"]
                for samples in (few, many)
            )
            times = apart(measure_time, folder, method, few, first=first)
            yield OURS.row(method, small, large, large / small, *times.values())
        for method in ("MinMax", "Percentile", "Entropy"):
            for samples in (few, *FEWER):
                theirs = _theirs(cap_gb, folder, method, samples)
                ours = apart(measure_memory, folder, method, samples, first=first)
                yield BESIDE.row(method, samples, ours["mb"], theirs["mb"], ours["s"], theirs["s"])
                if theirs["mb"] is not None:
                    break
