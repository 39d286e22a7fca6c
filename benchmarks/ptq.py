"""Static quantization beside onnxruntime.quantization: accuracy, SQNR, speed, integer nodes.

    python -m benchmarks ptq                                  # the 1,000 embedded test images
    python -m benchmarks ptq --data cifar10_jpeg.npz          # all 10,000

Calibration: the 256 embedded training images, for every tool. Accuracy is paired: the same images
in the same order. Speed: one thread, CPU time, the sessions take turns; medians. SQNR: of the
logits against the float model's. Integer nodes: in ONNX Runtime's optimized graph, not the file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from onnxruntime.quantization import CalibrationMethod

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_data, with_names
from benchmarks.harness.table import Row, Table
from onnxq.graph.io import load, save
from onnxq.ort import runtime
from scripts._models import MODELS, FloatModel, chosen_models
from scripts._peer import Batch, quantize_static
from scripts._tables import sqnr_db
from scripts._timing import median_seconds, runs_on, session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxq.core.arrays import Singles

BATCH = 100
ROUNDS = 41


VARIANTS = Table(
    "variants",
    {
        **{"network": "", "variant": "", "top-1 %": ".2f", "behind best of quantize_static": "+d"},
        **{"logits SQNR dB": ".2f", "integer / float nodes": "", "MB": ".2f"},
        **{"x float speed": ".2f", "x fastest quantize_static": ".2f"},
    },
    keys=2,
)
PEER = "quantize_static"


def quantized_by_onnxruntime(
    model: Path, images: Singles, folder: Path
) -> Iterator[tuple[str, Path]]:
    """(name, file) of quantize_static's variants: QDQ, uint8 activations, int8 weights."""
    for granularity in ("per-channel", "per-tensor"):
        for method in (CalibrationMethod.MinMax, CalibrationMethod.Percentile):
            path = folder / f"ort-{granularity}-{method.name}.onnx"
            singly: list[Batch] = [{"image": x[None]} for x in images]
            quantize_static(model, path, singly, method, granularity)
            yield f"{PEER} {granularity} {method.name}", path


def quantized_by_onnxq(model: Path, images: Singles, folder: Path) -> Iterator[tuple[str, Path]]:
    """(name, file) of onnxq's default for both targets."""
    for target in ("x86-vnni", "portable"):
        path = folder / f"onnxq-{target}.onnx"
        save(onnxq.quantize(model, [{"image": images}], target=target), path)
        yield f"onnxq {target}", path


def logits(path: Path, images: Singles) -> Singles:
    model = session(path)
    parts = [
        model.run(None, {"image": images[i : i + BATCH]})[0] for i in range(0, len(images), BATCH)
    ]
    return np.concatenate(parts)


def nodes_of(path: Path) -> list[int]:
    """Integer and float nodes of ONNX Runtime's optimized graph."""
    uses = runtime.integer_nodes(runtime.optimized_graph(load(path)))
    kinds = (runtime.NodeKind.INTEGER, runtime.NodeKind.FLOAT)
    return [runtime.count(uses, kind).total() for kind in kinds]


def variants(
    model: FloatModel, calibration: Singles, images: Singles, labels: npt.NDArray[np.uint8]
) -> Iterator[Row]:
    """The float model first, then every quantized one."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        paths = {"float32": model.path}
        paths |= quantized_by_onnxq(model.path, calibration, folder)
        paths |= quantized_by_onnxruntime(model.path, calibration, folder)
        sessions = {name: session(path) for name, path in paths.items()}
        seconds = median_seconds(runs_on(sessions, {"image": images[:BATCH]}), ROUNDS)
        got = {name: logits(path, images) for name, path in paths.items()}
        right = {name: int((y.argmax(1) == labels).sum()) for name, y in got.items()}
        peers = [name for name in paths if name.startswith(PEER)]
        best, fastest = max(right[p] for p in peers), min(seconds[p] for p in peers)
        for name, path in paths.items():
            yield VARIANTS.row(
                model.name,
                name,
                100 * right[name] / len(labels),
                best - right[name],
                sqnr_db(got["float32"], got[name]),
                nodes_of(path),
                path.stat().st_size / 1e6,
                seconds["float32"] / seconds[name],
                fastest / seconds[name],
            )


@benchmark(VARIANTS, needs=("torch",))
@with_data
@with_names(MODELS)
def measure(data: Path | None, names: Sequence[str]) -> Iterator[Row]:
    """Rows of each model; `behind` is how many more images the best quantize_static has right."""
    for each in chosen_models(data, names):
        yield from variants(*each)
