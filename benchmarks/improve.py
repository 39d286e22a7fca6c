"""Accuracy that PTQ algorithms of weights give, on trained models and others, and what they cost.

    python -m benchmarks improve --data cifar10_jpeg.npz resnet20 mobilenetv2
    python -m benchmarks improve    # 30 minutes

Trained on CIFAR-10: calibration and algorithms see the 256 embedded training images, 8 at a time.
"tested": the 1,000 embedded test images, or with --data all 10,000, which nothing else sees.
SQNR is of the outputs against the float model's. vit_stem is there where ONNXQ_VIT_STEM names its
weights (scripts/train_vit_stem.py). Weights of the others are random, samples made up, as in
benchmarks/defaults.py and benchmarks/architectures.py: 32 to calibrate on, 16 to test.

"exact": float weights in place of rounded ones, decisions and activations as they are; no rounding
of weights can do more, unless it makes up for the activations, too. "kept": places of all places,
then what was withdrawn at the outputs. "median": gain of the sample in the middle; where the sum
over all samples, which is what SQNR sees, says otherwise, a few samples have large errors. "CPU s":

"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import onnx

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_data
from benchmarks.harness.table import Row, Table
from onnxq.graph.io import save
from onnxq.operator import Precision
from onnxq.qconfig import (
    Choice,
    QConfigMapping,
    default_qconfig_mapping,
    onnxq_default_dynamic_qconfig,
)
from onnxq.samples import open_samples
from onnxq.samples.excerpt import rows_of
from onnxq.weights import Improved, WeightAlgorithm, improve_model, wanted
from onnxq.weights.layers import layers_of
from scripts._architectures import Size, build
from scripts._architectures._parts import batches
from scripts._defaults import SUBJECTS
from scripts._defaults.case import Case, drawn, top1
from scripts._defaults.images import VIT_STEM
from scripts._models import ROOT, FloatModel, evaluation_data, float_models
from scripts._tables import sqnr_db
from scripts._timing import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from onnxq.quantized.outcome import Outcome

    Way = tuple[str, ...]

WEIGHTS: tuple[Way, ...] = (("bias",), ("round",))
FACTORS: tuple[Way, ...] = (("smooth",),)
BATCH, AT_ONCE = 8, 100
IMBALANCED = "mobilenetv2-imbalanced"
TRAINED = ("resnet20", "mobilenetv2", IMBALANCED, "transformer")
OF_MODELS = {"smooth"}
SMALL = ("lcnet", "tcn", "bert")
ENCODERS = ("transformer", "vit_stem", "sentence_encoder", "bert")


@dataclass(frozen=True, slots=True)
class Kind:
    """How a model is quantized, and in which ways it is improved."""

    title: str
    qconfig: QConfigMapping
    target: str
    ways: tuple[Way, ...]


MODELS = Table(
    "models",
    {
        **{"model": "", "form": "", "improve": "", "tested": ",", "SQNR dB": ".2f"},
        **{"gain": "+.2f", "median": "+.2f", "top-1": ".2%", "kept": "", "CPU s": ".0f"},
    },
    keys=3,
)


def kinds(name: str) -> Iterator[Kind]:
    """The kinds that a model is measured in."""
    default = default_qconfig_mapping()
    both: tuple[Way, ...] = (("smooth", "bias"),) if name in ENCODERS else ()
    yield Kind("default", default, "x86-vnni", WEIGHTS + FACTORS + both)
    if name == "sentence_encoder":
        entry = replace(onnxq_default_dynamic_qconfig, precision=Precision.DYNAMIC_INT8)
        linear = QConfigMapping().set_op_type("MatMul", entry).set_op_type("Gemm", entry)
        yield Kind("dynamic", linear, "x86-vnni", (("smooth",),))
        every = default.set_choice(Choice.ALL_INTEGERS)
        yield Kind("all integers", every, "x86-vnni", (("smooth",),))
    if name not in TRAINED or name == IMBALANCED:
        return
    yield Kind("portable", default, "portable", WEIGHTS)
    narrow = "global={weight: {observer: NarrowRangeObserver, dtype: int4, quant_max: 7}}"
    yield Kind("4 bits", default.with_overrides([narrow]), "x86-vnni", WEIGHTS)


def trained(data: Path | None, folder: Path) -> dict[str, Callable[[], Case]]:
    """The models of models/, by name."""
    import torch  # needed for exporting only

    from onnxq.pytorch import export, load_module

    @cache
    def everything() -> dict[str, Case]:
        calibration, pictures, labels = evaluation_data(data)
        path = folder / "transformer.onnx"
        file = ROOT / "models" / "transformer.safetensors"
        module = load_module("models.transformer:transformer", file)
        export(module, (torch.from_numpy(calibration[:2]),), path)
        models = [*float_models(folder, calibration), FloatModel("transformer", path)]
        seen = batches({"image": torch.from_numpy(calibration)}, BATCH)
        unseen = batches({"image": torch.from_numpy(pictures)}, AT_ONCE)
        return {m.name: Case(m.path, seen, unseen, {}, top1(labels)) for m in models}

    def one(name: str) -> Case:
        return everything()[name]

    return {name: partial(one, name) for name in TRAINED}


def cases(data: Path | None, folder: Path) -> dict[str, Callable[[], Case]]:
    """Name of a model -> what makes it, in the order of the page."""
    found = trained(data, folder)
    for name in ("vit_stem", "sentence_encoder", "shufflenet"):
        if name != "vit_stem" or os.environ.get(VIT_STEM):
            (folder / name).mkdir()
            found[name] = partial(SUBJECTS[name].make, Size.REAL, folder / name)
    for name in SMALL:
        found[name] = partial(small, name, folder / f"{name}.onnx")
    return found


def small(name: str, path: Path) -> Case:
    """An architecture with random weights."""
    module, feeds = build(name, Size.REAL)
    onnxq.export(module, feeds(4, 5), path)
    return drawn(path, feeds)


def outputs(model: Path, case: Case) -> list[npt.NDArray[np.float64]]:
    """Outputs on the test batches."""
    run = session(model)
    parts = zip(*(run.run(None, batch) for batch in case.test), strict=True)
    return [np.concatenate(part).astype(np.float64) for part in parts]


def rows(name: str, kind: Kind, case: Case) -> Iterator[Row]:
    """The rows of a model in one kind."""
    in_float = outputs(case.model, case)
    tested = sum(map(rows_of, case.test))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quantized.onnx"
        plain = planned(kind, (), case)
        begun: list[tuple[float, npt.NDArray[np.float64]]] = []

        def row(way: str, made: Improved, seconds: float | str) -> Row:
            got = outputs(path, case)
            score = case.score(got) if case.score else ""
            found = sqnr_db(in_float[0], got[0]), lost_by_sample(in_float[0], got[0])
            begun.append(found)
            gains: tuple[float | str | None, ...] = ("", "")
            if way != "nothing":
                (plain_db, plain_lost), (db, lost) = begun[0], found
                median = median_gain_db(plain_lost, lost)
                gains = db - plain_db, "" if median is None else median
            kept = kept_of(made.outcomes)
            return MODELS.row(name, kind.title, way, tested, found[0], *gains, score, kept, seconds)

        for way in ((), *kind.ways):
            begun_s = time.process_time()
            better = improved(kind, way, case, plain)
            seconds = time.process_time() - begun_s
            save(onnxq.rewrite(better.prepared, better.plan), path)
            yield row(", ".join(way) or "nothing", better, seconds if way else "")
            if not way and has_exact_weights(path, plain):
                yield row("exact", plain, "")


def lost_by_sample(
    wanted: npt.NDArray[np.float64], got: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """(samples,): squares of what each sample's output misses."""
    return np.asarray(np.square(got - wanted).reshape(len(wanted), -1).sum(1), np.float64)


def median_gain_db(before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]) -> float | None:
    """The gain of the sample in the middle; None where one has no error to gain from."""
    if not before.all() or not after.all():
        return None
    return float(np.median(10 * np.log10(before / after)))


def planned(kind: Kind, way: Way, case: Case) -> Improved:
    """The model as planned, behind PTQ algorithms of the float model."""
    prepared = onnxq.prepare(case.model, kind.qconfig.set_improve(way), kind.target)
    samples = open_samples(case.calibration, prepared.inputs)
    prepared = improve_model(prepared, samples)
    return Improved(prepared, onnxq.plan(prepared, onnxq.calibrate(prepared, samples)))


def improved(kind: Kind, way: Way, case: Case, plain: Improved) -> Improved:
    """The model with these PTQ algorithms; its plan without is at hand."""
    better = planned(kind, way, case) if set(way) & OF_MODELS else plain
    samples = open_samples(case.calibration, better.prepared.inputs)
    for algorithm in wanted(way):
        if isinstance(algorithm, WeightAlgorithm):
            better = algorithm.improve(better.prepared, better.plan, samples)
    return better


def kept_of(outcomes: tuple[Outcome, ...]) -> str:
    """Places that were kept, of all; and what was withdrawn at the outputs."""
    places = [outcome for outcome in outcomes if outcome.place]
    if not places:
        return ""
    withdrawn = [o.algorithm for o in outcomes if not o.place and not o.kept]
    said = f"{sum(o.kept for o in places)} of {len(places)}"
    return said + "".join(f", {name} withdrawn" for name in withdrawn)


def has_exact_weights(path: Path, made: Improved) -> bool:
    """Puts float weights into the quantized file.

    Whether all nodes take them in place of integers.
    """
    model = onnx.load(path)
    nodes = {node.name: node for node in model.graph.node}
    real = {o for node in nodes.values() if node.op_type == "DequantizeLinear" for o in node.output}
    layers = layers_of(made.prepared.model, made.plan)
    for name, layer in layers.items():
        assert layer.rule.weight is not None
        slot, tensor = layer.rule.weight.slot, f"{name}_exact"
        if nodes[name].input[slot] not in real:
            return False  # a MatMul of integers with a float result
        model.graph.initializer.append(onnx.numpy_helper.from_array(layer.written, tensor))
        nodes[name].input[slot] = tensor
    onnx.save(model, path)
    return bool(layers)  # none are where all weights are quantized dynamically


@benchmark(MODELS, needs=("torch",))
@with_data
@click.argument("names", nargs=-1, metavar="[NAME]...")
def measure(data: Path | None, names: Sequence[str]) -> Iterator[Row]:
    """The rows of each model, kind by kind."""
    with tempfile.TemporaryDirectory() as folder:
        for name, make in cases(data, Path(folder)).items():
            if not names or name in names:
                for kind in kinds(name):
                    yield from rows(name, kind, make())
