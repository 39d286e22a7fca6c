"""Weights of 8, 4, 3 and 2 bits in static models: accuracy, size, time of a run and of loading.

    python -m benchmarks few_bits                  # all of them
    python -m benchmarks few_bits resnet20 lcnet

Files of `onnxq.quantize(model, samples, target="auto", weight_bits=...)`, all else by default;
4 and 8, 4 and 2 bits: `weight_bits=SizeAim(size)`, in the middle between both sizes. Beside them
quantize_static of onnxruntime.quantization, whose int4 weights ONNX Runtime computes in float.
dB: SQNR of the first output on samples that nothing was calibrated on; top-1: where weights are
trained, on 1,000 images. Size: of the file over float's. Time: CPU time over float's, one thread,
batch 1, in turns. Load: CPU time of opening a session, over float's.
"""

from __future__ import annotations

import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnxruntime.quantization import QuantType

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import RATIO, Row, Table
from scripts._architectures import Size
from scripts._defaults import SUBJECTS
from scripts._defaults.case import Case, top1
from scripts._models import evaluation_data, float_models
from scripts._peer import quantize_static
from scripts._tables import sqnr_db
from scripts._timing import ratio_of, runs_on, session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scripts._architectures._parts import Batch
    from scripts._defaults.case import Outputs

TRAINED = ("resnet20", "mobilenetv2")
NAMES = (
    *(*TRAINED, "transformer", "sentence_encoder", "shufflenet", "mobilenetv3", "efficientnet"),
    *("lcnet", "conformer"),
)
ROUNDS, LOADS = 31, 15
BITS = Table(
    "files",
    {
        **{"model": "", "weights": "", "dB": ".1f", "top-1": ".3f", "size": ".3f"},
        **{"time": RATIO, "load": RATIO},
    },
    keys=2,
)


def case_of(name: str, folder: Path) -> Case:
    """The model with its samples."""
    if name not in TRAINED:
        return SUBJECTS[name].make(Size.REAL, folder)
    calibration, images, labels = evaluation_data(None)
    path = next(each.path for each in float_models(folder, calibration) if each.name == name)
    tests: list[Batch] = [{"image": images[i : i + 100]} for i in range(0, len(images), 100)]
    batches: list[Batch] = [
        {"image": calibration[i : i + 16]} for i in range(0, len(calibration), 16)
    ]
    return Case(path, batches, tests, {"": {"image": images[:1]}}, top1(labels))


def ours(case: Case, path: Path, bits: int | onnxq.SizeAim | None) -> None:
    """Writes the file with weights of so many bits."""
    samples = case.calibration
    onnxq.quantize(case.model, samples, target="auto", weight_bits=bits).save(path)


@benchmark(BITS, needs=("torch",))
@with_names(NAMES)
def measure(names: Sequence[str]) -> Iterator[Row]:
    """The rows of each model."""
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the table says what is lost
            case = case_of(name, Path(folder))
            yield from rows(name, case, Path(folder))


def rows(name: str, case: Case, folder: Path) -> Iterator[Row]:
    """A row for each number of bits; the sizes between two are asked for when both are known."""
    sizes: dict[int, float] = {}
    wanted = outputs(case.model, case)
    yield BITS.row(name, "float", None, score(case, wanted), 1.0, None, None)
    for bits in (8, 4, 2):
        path = folder / f"{bits}.onnx"
        ours(case, path, bits)
        sizes[bits] = path.stat().st_size / case.model.stat().st_size
        yield row(name, f"{bits} bits", path, case, wanted)
    for pair in ((8, 4), (4, 2)):
        path, aim = folder / "mixed.onnx", sum(sizes[bits] for bits in pair) / 2
        ours(case, path, onnxq.SizeAim(size=aim))
        yield row(name, f"{max(pair)} and {min(pair)} bits", path, case, wanted)
    path = folder / "peer.onnx"
    try:
        quantize_static(case.model, path, case.calibration, weights=QuantType.QInt4)
        yield row(name, "quantize_static, 4 bits", path, case, wanted)
    except Exception as error:  # whatever it raises
        yield BITS.row(name, "quantize_static, 4 bits", *[f"{error!s:.60}", *[None] * 4])


def row(name: str, way: str, path: Path, case: Case, wanted: Outputs) -> Row:
    """Figures of one file."""
    got = outputs(path, case)
    timed = case.timed[next(iter(case.timed))]
    runs = runs_on({"float": session(case.model), "quantized": session(path)}, timed)
    return BITS.row(
        name,
        way,
        sqnr_db(wanted[0], got[0]),
        score(case, got),
        path.stat().st_size / case.model.stat().st_size,
        ratio_of(runs["quantized"], runs["float"], ROUNDS).cell,
        ratio_of(partial(session, path), partial(session, case.model), LOADS).cell,
    )


def score(case: Case, found: Outputs) -> float | None:
    """Share of right answers, where the case has labels."""
    return None if case.score is None else case.score(found)


def outputs(path: Path, case: Case) -> Outputs:
    """Outputs on all tests."""
    run = session(path)
    every = zip(*(run.run(None, dict(batch)) for batch in case.test), strict=True)
    return [np.concatenate(one).astype(np.float64) for one in every]
