"""Accuracy that improvements of weights give, on every trained model here that has layers.

    python scripts/bench_improve.py -o scripts/bench_improve.md        # half an hour of CPU time
    python scripts/bench_improve.py --model resnet20 --model mobilenetv2

Calibration and improvements: the 256 embedded training images, 8 at a time. SQNR and accuracy: all
1,000 embedded test images, which nothing else sees; SQNR is of the logits against the float
model's. "kept": layers of all layers. "CPU s": of the improvements alone, one thread. 4 bits are
those of the weights (NarrowRangeObserver, a scale per channel); activations have 8.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from onnxq.graph.io import save
from onnxq.improve import improve_model, improve_weights
from onnxq.qconfig import default_qconfig_mapping
from onnxq.samples import open_samples
from scripts._models import ROOT, FloatModel, evaluation_data, float_models
from scripts._tables import head, line, publish, sqnr_db, versions
from scripts.bench_ptq import logits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.core.arrays import Singles
    from onnxq.improve import Improved
    from onnxq.qconfig import QConfigMapping
    from scripts._models import Labels

WAYS: tuple[tuple[str, ...], ...] = (
    (),
    ("bias",),
    ("round",),
    ("bias", "round"),
    ("smooth",),
    ("equalize",),
    ("smooth", "round"),
)
KINDS = (("x86-vnni", 8), ("portable", 8), ("x86-vnni", 4))
BATCH = 8


@dataclass(frozen=True, slots=True)
class Case:
    """A model on a target, with weights of so many bits."""

    model: FloatModel
    target: str
    bits: int

    @property
    def qconfig(self) -> QConfigMapping:
        """The default, but for the weights."""
        if self.bits == 8:
            return default_qconfig_mapping()
        observer = f"observer: NarrowRangeObserver, dtype: int{self.bits}"
        limit = 2 ** (self.bits - 1) - 1
        return default_qconfig_mapping().with_overrides(
            [f"global={{weight: {{{observer}, quant_max: {limit}}}}}"]
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a model that was improved in one way."""

    sqnr_db: float
    top1: float
    kept: str
    seconds: float


def improved(case: Case, names: tuple[str, ...], images: Singles) -> tuple[Improved, float]:
    """(what the improvements give, their CPU seconds)."""
    prepared = onnxq.prepare(case.model.path, case.qconfig.set_improve(names), case.target)
    samples = open_samples({"image": images}, prepared.inputs, BATCH)
    begun = time.process_time()
    prepared = improve_model(prepared, samples)
    of_model = time.process_time() - begun
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, samples))
    begun = time.process_time()
    return improve_weights(prepared, plan, samples), of_model + time.process_time() - begun


def measured(
    case: Case, names: tuple[str, ...], data: tuple[Singles, Singles, Labels], folder: Path
) -> Figures:
    """Figures on the test images."""
    calibration, images, labels = data
    better, seconds = improved(case, names, calibration)
    path = folder / "quantized.onnx"
    save(onnxq.rewrite(better.prepared, better.plan), path)
    wanted, got = logits(case.model.path, images), logits(path, images)
    layers = [outcome for outcome in better.outcomes if outcome.place]
    kept = f"{sum(o.kept for o in layers)} of {len(layers)}" if names else ""
    top1 = float(np.mean(got.argmax(axis=1) == labels))
    return Figures(sqnr_db(wanted, got), top1, kept, seconds)


def models(folder: Path, calibration: Singles) -> Iterator[FloatModel]:
    """Models of `float_models`, and the transformer."""
    import torch  # needed for exporting only

    from onnxq.pytorch import export, load_module

    yield from float_models(folder, calibration)
    path = folder / "transformer.onnx"
    module = load_module("models.transformer:transformer", ROOT / "models/transformer.safetensors")
    export(module, (torch.from_numpy(calibration[:2]),), path)
    yield FloatModel("transformer", path)


def lines(chosen: list[str], folder: Path) -> Iterator[str]:
    """The page."""
    data = evaluation_data(None)
    packages = versions("onnxruntime", "onnx", "numpy")
    yield f"scripts/bench_improve.py, {packages}; 1,000 test images, 256 calibration images."
    yield ""
    yield from (__doc__ or "").split("\n\n")[2].splitlines()
    for model in models(folder, data[0]):
        if chosen and model.name not in chosen:
            continue
        top1 = float(np.mean(logits(model.path, data[1]).argmax(axis=1) == data[2]))
        yield ""
        yield f"## {model.name}: float {top1:.2%}"
        yield ""
        yield head("target", "weights", "improve", "SQNR dB", "gain", "top-1", "kept", "CPU s")
        for target, bits in KINDS:
            plain = 0.0
            for names in WAYS:
                found = measured(Case(model, target, bits), names, data, folder)
                plain = plain if names else found.sqnr_db
                yield line(
                    target,
                    f"{bits} bits",
                    ", ".join(names) or "nothing",
                    f"{found.sqnr_db:.2f}",
                    f"{found.sqnr_db - plain:+.2f}" if names else "",
                    f"{found.top1:.2%}",
                    found.kept,
                    f"{found.seconds:.0f}" if names else "",
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", default=[], help="only this one; repeated")
    parser.add_argument("-o", "--output", type=Path, help="file for the page")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        publish(lines(args.model, Path(folder)), args.output)


if __name__ == "__main__":
    main()
