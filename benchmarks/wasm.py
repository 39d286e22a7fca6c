"""Models in WebAssembly, as browsers run them: speed, error, and integers that differ from x86.

    scripts/setup_wasm                     # once
    python -m benchmarks wasm           # all; some 20 minutes
    python -m benchmarks wasm vit bert

ResNet-20 and MobileNetV2 with their images, and architectures of scripts/_architectures at
realistic widths (random weights, made-up inputs: errors compare forms, they are no accuracy). Each
model runs in onnxruntime-web, in Node, on one thread, as float, and quantized in several forms:

    wasm          `onnxq quantize --target wasm`, the default's choice of forms
    all integers  the same with --all-integers
    portable      `onnxq quantize`
    dynamic       `onnxq quantize-dynamic`

x float: how many times as fast as float, batch 1: median of ratios of CPU times in turns. dB: SQNR
of the outputs against float's, both in WebAssembly, over 4 samples that nothing was calibrated on.
Integers: those behind every QuantizeLinear that differ from ONNX Runtime's on this machine, which
is x86, over the same samples. Outputs: the largest difference between the two, in standard
deviations of the output.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import Row, Table
from models.cifar10 import load_sample
from onnxq.graph.io import load
from onnxq.ort.expose import expose
from onnxq.qconfig import Choice, default_qconfig_mapping
from onnxq.qdq.read import is_quantize
from scripts._architectures import ARCHITECTURES, Size, build
from scripts._architectures._parts import batches
from scripts._graphs import proto_of
from scripts._models import ROOT, float_models
from scripts._tables import sqnr_db
from scripts._timing import paired_ratio, session
from tests.isa.machines import run, save_case
from tests.wasm.machine import WASM, find_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import onnx_ir as ir

    from onnxq.core.arrays import Array
    from scripts._peer import Batch

TRAINED = ("resnet20", "mobilenetv2")
CHOSEN = (
    *("efficientnet", "mobilenetv3", "vit", "bert", "convnext", "whisper", "gpt_causal"),
    *("shufflenetv2", "yolo", "crnn", "tcn"),
)
MODELS = Table(
    "models",
    {
        **{"model": "", "form": "", "float, ms": ".2f", "x float": ".2f", "dB": ".1f"},
        **{"integers that differ from x86": "{0[0]:,} of {0[1]:,}", "outputs, sd": ".1g"},
    },
    keys=2,
)
FLOAT = "float"
FORMS = ("wasm", "all integers", "portable", "dynamic")
CALIBRATION, TEST, ROUNDS = 32, 4, 15
CALIBRATION_SEED, TEST_SEED, SPEED_SEED = 7, 11, 5


@dataclass(frozen=True, slots=True)
class Subject:
    """A float model with its samples.

    Attributes:
        name: of the model.
        path: of its file.
        calibration: batches.
        test: one batch of TEST samples.
        one: one batch of one sample.
    """

    name: str
    path: Path
    calibration: list[Batch]
    test: Batch
    one: Batch


def subjects(folder: Path, names: Sequence[str]) -> Iterator[Subject]:
    """The models of those names."""
    images, others = load_sample("calibration")[0], load_sample("test")[0]
    if set(names) & set(TRAINED):
        for source in itertools.islice(float_models(folder, images), len(TRAINED)):
            if source.name in names:
                parts = (images[:CALIBRATION], others[:TEST], others[:1])
                batched: list[Batch] = [{"image": part} for part in parts]
                calibration, test, one = batched
                yield Subject(source.name, source.path, [calibration], test, one)
    for name in names:
        if name in TRAINED:
            continue
        module, feeds = build(name, Size.REAL)
        path = folder / f"{name}.onnx"
        onnxq.export(module, feeds(4, SPEED_SEED), path)
        yield Subject(
            name,
            path,
            batches(feeds(CALIBRATION, CALIBRATION_SEED), TEST),
            batches(feeds(TEST, TEST_SEED), TEST)[0],
            batches(feeds(1, SPEED_SEED), 1)[0],
        )


def quantized(subject: Subject, form: str) -> ir.Model:
    """The model in that form."""
    source, samples = subject.path, subject.calibration
    if form == "dynamic":
        return onnxq.quantize_dynamic(source, target="wasm")
    integers = default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS)
    return onnxq.quantize(
        source,
        samples,
        qconfig=integers if form == "all integers" else None,
        target="portable" if form == "portable" else "wasm",
    )


def with_integers(model: ir.Model) -> ir.Model:
    """A copy that gives the integers of every QuantizeLinear behind its own outputs."""
    made = [node for node in model.graph if is_quantize(node)]
    return expose(model, [str(node.outputs[0].name) for node in made]).model


def rows(subject: Subject, modules: Path, folder: Path) -> Iterator[Row]:
    """Figures of a model: a form each."""
    models = {FLOAT: load(subject.path)} | {form: quantized(subject, form) for form in FORMS}
    times, cases = folder / "times", folder / "cases"
    for each in (times, cases):
        each.mkdir()
    seen = {form: with_integers(model) for form, model in models.items()}
    for form, model in models.items():
        save_case(times, form, proto_of(model).SerializeToString(), subject.one)
        save_case(cases, form, proto_of(seen[form]).SerializeToString(), subject.test)
    results = run(WASM, modules, cases, folder / "results")
    seconds = timed(modules, times)
    count = len(models[FLOAT].graph.outputs)
    wanted = results.outputs(FLOAT)[:count]
    for form in FORMS:
        got = results.outputs(form)
        here = session(seen[form]).run(None, subject.test)
        ratio = paired_ratio(seconds[FLOAT], seconds[form]).median
        pairs = zip(wanted, got[:count], strict=True)
        error = min(sqnr_db(np.asarray(x, float), np.asarray(y, float)) for x, y in pairs)
        yield MODELS.row(
            subject.name,
            form,
            1e3 * np.median(seconds[FLOAT]),
            ratio,
            error,
            integers(got[count:], here[count:]),
            largest(got[:count], here[:count]),
        )


def timed(modules: Path, cases: Path) -> dict[str, npt.NDArray[np.float64]]:
    """CPU seconds of each model in each round."""
    script = ROOT / "scripts" / "_wasm" / "time_cases.mjs"
    done = subprocess.run(
        ["node", str(script), str(modules), str(cases), str(ROUNDS)],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name: np.array(each) for name, each in json.loads(done.stdout).items()}


def integers(there: Sequence[Array], here: Sequence[Array]) -> list[int]:
    """How many differ, of how many."""
    differ = sum(int(np.count_nonzero(x != y)) for x, y in zip(there, here, strict=True))
    return [differ, sum(x.size for x in there)]


def largest(there: Sequence[Array], here: Sequence[Array]) -> float:
    """The largest difference, in standard deviations of the output."""
    pairs = [(np.float64(x), np.float64(y)) for x, y in zip(there, here, strict=True)]
    return max(float(np.abs(x - y).max() / y.std()) for x, y in pairs)


@benchmark(MODELS, needs=("torch",))
@with_names((*TRAINED, *ARCHITECTURES))
def measure(names: Sequence[str]) -> Iterator[Row]:
    """The rows of each model."""
    modules = find_modules()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for subject in subjects(folder, names or (*TRAINED, *CHOSEN)):
            own = folder / subject.name
            own.mkdir()
            yield from rows(subject, modules, own)
