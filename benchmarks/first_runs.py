"""CPU and wall time that a child process for first runs adds to quantizing, both in turns.

    python -m benchmarks first_runs [--rounds 5]

Each call is one `onnxq.quantize` in a fresh process of one thread, with the child and without one,
in turns. CPU time counts the child's. The seconds that a fresh process takes to import onnxq are
not counted. Medians over the rounds.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxq
from benchmarks.calibration import resnet50
from benchmarks.harness.apart import apart
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_rounds
from benchmarks.harness.table import Row, Table
from onnxq.jobs import child

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = "{:.3f} s"
COSTS = Table(
    "costs",
    {
        **{"model": "", "CPU without": SECONDS, "CPU with": SECONDS, "CPU added": SECONDS},
        **{"share": "+.1%", "wall without": SECONDS, "wall with": SECONDS, "wall added": SECONDS},
    },
)
WIDTH = 16  # of the small model


def small() -> onnx.ModelProto:
    """Gemm, Relu, Gemm: 16 numbers each."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32), name)
        for name in ("a", "b")
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "b"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", WIDTH]) for n in "xy")
    graph = helper.make_graph(nodes, "small", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


MODELS = {
    "3 nodes, 64 samples": (small, "x", (64, WIDTH)),
    "ResNet-50, 102 MB, 8 images of 224x224": (resnet50, "image", (8, 3, 224, 224)),
    "ResNet-50, 102 MB, 32 images of 224x224": (resnet50, "image", (32, 3, 224, 224)),
}


def quantized(
    path: Path, name: str, shape: tuple[int, ...], has_child: bool
) -> tuple[float, float]:
    """(CPU seconds, wall seconds) of quantizing the model of a file."""
    if not has_child:
        child._is_refused.set()  # noqa: SLF001  # as where no process can be started
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    wall, own = time.perf_counter(), time.process_time()
    onnxq.quantize(path, {name: x}, check=onnxq.Check.CALIBRATION)
    seconds = time.perf_counter() - wall
    own = time.process_time() - own
    child.end()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own + used.ru_utime + used.ru_stime, seconds


@benchmark(COSTS)
@with_rounds(5)
def measure(rounds: int) -> Iterator[Row]:
    """Seconds with and without, and what lies between them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for label, (make, name, shape) in MODELS.items():
            onnx.save(make(), path)
            found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for _ in range(rounds):
                for has_child, times in found.items():
                    times.append(apart(quantized, path, name, shape, has_child))
            (cpu, wall), (cpu_with, wall_with) = (np.median(t, axis=0) for t in found.values())
            added = cpu_with - cpu
            yield COSTS.row(
                label, cpu, cpu_with, added, added / cpu, wall, wall_with, wall_with - wall
            )
