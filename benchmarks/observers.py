"""Squared error on held-out images that each observer's qparams leave, beside torch's histogram.

    python -m benchmarks observers                            # embedded sample
    python -m benchmarks observers --data cifar10_jpeg.npz    # the full data set

The tensors are those that onnxq.prepare lets observe in the exported models: what is quantized, in
the graph that is deployed. They pass the observers in batches of 32, quint8 affine, torch's beside
ours; the squared error of dequantize(quantize(x)) is then summed over the test images, and printed
relative to that of torch's HistogramObserver. The exit code is 1 if HistogramObserver's is above
1.01 anywhere, or not below 1 on the output of a Relu or Clip.

The embedded sample is 256 calibration and 1,000 test images; of the full data set, --images
training images and all 10,000 test images are taken. A few images with far outliers decide where
the least error is, so which 256 were drawn moves the best scale by up to 10%, and a ratio by more.
HistogramObserver therefore keeps near torch's range where the sample does not speak against it
(onnxq/observers/qparams_search.py); what remains above 1.01 in some draws is the luck of the
sample.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_data, with_names
from benchmarks.harness.results import ROOT
from benchmarks.harness.table import Missed, Row, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

import onnxq
from models.cifar10 import load_jpeg_split, load_sample
from onnxq.affine import fake_quantize
from onnxq.observers import (
    EntropyObserver,
    HistogramObserver,
    MinMaxObserver,
    ObserverSpec,
    PercentileObserver,
)
from onnxq.ort.expose import expose
from onnxq.ort.runtime import open_session
from onnxq.pytorch import export, load_module
from onnxq.qparams import QParams, per_tensor

MODELS = {
    "resnet20": "models.resnet:resnet20",
    "mobilenetv2": "models.mobilenet:mobilenetv2",
}
OURS = {
    "MinMax": MinMaxObserver.with_args(),
    "Histogram": HistogramObserver.with_args(),
    "Percentile": PercentileObserver.with_args(),
    "Entropy": EntropyObserver.with_args(),
}
TENSORS = Table("tensors", {"model": "", "tensor": "", **dict.fromkeys(OURS, ".4f")}, keys=2)
SUMMARY = Table(
    "summary",
    {
        **{"model": "", "worst": ".4f", "mean": ".4f", "above 1.01": "{0[0]:,} of {0[1]:,}"},
        **{"ReLUs not below 1": ""},
    },
)
SECONDS = Table("seconds", {"model": "", **dict.fromkeys((*OURS, "torch"), ".2f")})
BOUND = 1.01
BATCH = 32
Images = npt.NDArray[np.float32]
Tensors = dict[str, npt.NDArray[np.float32]]
Run = Callable[[Images], Tensors]
RELUS = ("Relu", "Clip")


def load_images(data: Path | None, images: int = 16384) -> tuple[Images, Images]:
    """(calibration, test) images: the embedded ones, or of the full data set's npz."""
    if data is None:
        return load_sample("calibration")[0], load_sample("test")[0]
    return load_jpeg_split(data, "train")[0][:images], load_jpeg_split(data, "test")[0]


def activations(name: str, weights: Path, example: Images) -> Run:
    """A function from images to {name: observed tensor}; a ReLU's output is "<name> (relu)"."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        export(load_module(MODELS[name], weights), (torch.from_numpy(example),), path)
        prepared = onnxq.prepare(path)
    exposed = expose(prepared.model, list(prepared.observed))
    outputs = list(exposed.outputs.values())
    relus = {node.outputs[0].name for node in prepared.model.graph if node.op_type in RELUS}
    labels = [f"{tensor} (relu)" if tensor in relus else tensor for tensor in exposed.outputs]
    session = open_session(exposed.model)

    def run(images: Images) -> Tensors:
        arrays = session.run({session.inputs[0]: images}, outputs)
        tensors = (np.asarray(x, np.float32) for x in arrays)
        return dict(zip(labels, tensors, strict=True))

    return run


def torch_qparams(observer: torch.ao.quantization.HistogramObserver) -> QParams:
    """The qparams of torch's observer, as onnxq's."""
    scale, zero_point = observer.calculate_qparams()
    return per_tensor(scale.item(), int(zero_point.item()), HistogramObserver().dtype)


def calibrate(
    run: Run, images: Images, specs: dict[str, ObserverSpec]
) -> tuple[dict[str, dict[str, QParams]], dict[str, float]]:
    """(qparams by observer and tensor, seconds by observer); 'torch' is torch's histogram."""
    observers: dict[str, dict[str, Any]] = {name: {} for name in [*specs, "torch"]}
    seconds = dict.fromkeys(observers, 0.0)
    for index, batch in enumerate(batches(images)):
        for tensor, x in run(batch).items():
            for name, by_tensor in observers.items():
                if tensor not in by_tensor:
                    fresh = torch.ao.quantization.HistogramObserver
                    by_tensor[tensor] = fresh() if name == "torch" else specs[name]()
                started = time.perf_counter()
                if name == "torch":
                    by_tensor[tensor](torch.from_numpy(x))
                else:
                    by_tensor[tensor].observe(x, index)
                seconds[name] += time.perf_counter() - started
    qparams = {
        name: {
            tensor: torch_qparams(o) if name == "torch" else o.calculate_qparams()
            for tensor, o in by_tensor.items()
        }
        for name, by_tensor in observers.items()
    }
    return qparams, seconds


def batches(images: Images) -> Iterator[Images]:
    """The images, BATCH at a time."""
    for start in range(0, len(images), BATCH):
        yield images[start : start + BATCH]


def squared_errors(
    run: Run, images: Images, qparams: dict[str, dict[str, QParams]]
) -> dict[str, dict[str, float]]:
    """Sum over the images of (dequantize(quantize(x)) - x)^2, by observer and tensor."""
    sums: dict[str, dict[str, float]] = {name: {} for name in qparams}
    for batch in batches(images):
        for tensor, x in run(batch).items():
            for name, by_tensor in qparams.items():
                error = fake_quantize(x, by_tensor[tensor]).astype(np.float64) - x
                sums[name][tensor] = sums[name].get(tensor, 0.0) + float((error * error).sum())
    return sums


def rows(name: str, sums: dict[str, dict[str, float]]) -> Iterator[Row | Missed]:
    """A row per tensor, the bounds that are broken, and the summary."""
    histogram: list[float] = []
    lost = 0
    for tensor, reference in sums["torch"].items():
        ratios = [ratio(sums[column][tensor], reference) for column in OURS]
        histogram.append(ratio(sums["Histogram"][tensor], reference))
        yield TENSORS.row(name, tensor, *ratios)
        if is_relu(tensor) and histogram[-1] >= 1:
            lost += 1
            yield Missed(f"{name}, {tensor}: {histogram[-1]:.4f}; below 1 is asked for")
        elif histogram[-1] > BOUND:
            yield Missed(f"{name}, {tensor}: {histogram[-1]:.4f}; at most {BOUND} is asked for")
    above = [sum(each > BOUND for each in histogram), len(histogram)]
    yield SUMMARY.row(name, max(histogram), np.mean(histogram), above, lost)


def ratio(error: float, reference: float) -> float:
    """The quotient; 1 where both are 0."""
    return error / reference if reference else 1.0 if error == 0 else float("inf")


def is_relu(tensor: str) -> bool:
    """Whether the tensor is the output of a ReLU."""
    return tensor.endswith(" (relu)")


@benchmark(TENSORS, SUMMARY, SECONDS, needs=("torch",))
@click.option("--images", default=16384, help="training images, with --data")
@with_data
@with_names(MODELS)
def measure(images: int, data: Path | None, names: Sequence[str]) -> Iterator[Row | Missed]:
    """Errors of each tensor, a summary, and the time of observing, by model."""
    calibration, test = load_images(data, images)
    for name in names or MODELS:
        run = activations(name, ROOT / "models" / f"{name}.safetensors", calibration[:2])
        qparams, seconds = calibrate(run, calibration, OURS)
        yield from rows(name, squared_errors(run, test, qparams))
        yield SECONDS.row(name, *seconds.values())
