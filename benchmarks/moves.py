"""Error, time and size of what a node can have beside its precision: the changes of `tune`.

    python -m benchmarks moves               # all models, some minutes
    python -m benchmarks moves transformer   # some of them

Every model is quantized as a whole: its weights stored and computed with in float ("stored"), with
activations of 16 bits around its nodes ("16 bits": ONNX Runtime computes in float between them),
and in integers with a scale per channel of a weight, or per tensor, everywhere or in the forms of
onnxq's default. dB at the worst output on test
samples; bytes; time over float's, whole runs in turns, CPU time of one thread, median of 31.

`products` times a MatMul of 16-bit integers, com.microsoft's MatMulInteger16, beside float's.

What follows for the search stands in docs/guides/tune.md, what this printed in
benchmarks/results/moves.md.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import RATIO, Row, Table
from onnxq.errors import UnsupportedError
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Precision
from onnxq.qconfig import (
    Choice,
    QConfigMapping,
    onnxq_default_dynamic_qconfig,
    onnxq_default_qconfig,
)
from scripts._architectures import Size
from scripts._defaults import SUBJECTS
from scripts._models import evaluation_data, float_models
from scripts._timing import paired_ratio, runs_on, session, taking_turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx

    from onnxq.core.arrays import Array

    Batch = Mapping[str, Array]

TARGET = "x86-vnni"
MICROSOFT = "com.microsoft"
ROUNDS = 31
AT_ONCE = 50  # images
TRAINED = ("resnet20", "mobilenetv2")
DRAWN = ("transformer", "sentence_encoder", "shufflenet", "mobilenetv3")
MATMULS = ((128, 256, 256), (128, 768, 768))  # rows, K, N
MODELS = Table(
    "models",
    {
        **{"model": "", "way": "", "dB": ".1f", "time over float's": RATIO, "beside": ""},
        **{"size over float's": ".3f"},
    },
    keys=2,
)
MATMUL_TIMES = Table("products", {"product": "", "16-bit integers over float": RATIO})
_per_tensor = replace(onnxq_default_qconfig, weight=NarrowRangeObserver.with_args(ch_axis=None))
_wide = onnxq_default_qconfig.activation_observer.with_args(dtype="uint16")
WAYS = {
    "stored": QConfigMapping(
        replace(onnxq_default_dynamic_qconfig, precision=Precision.WEIGHT_ONLY)
    ),
    "16 bits": QConfigMapping(
        replace(onnxq_default_qconfig, activation=_wide), choice=Choice.ALL_INTEGERS
    ),
    "integers": QConfigMapping(onnxq_default_qconfig, choice=Choice.ALL_INTEGERS),
    "integers, per tensor": QConfigMapping(_per_tensor, choice=Choice.ALL_INTEGERS),
    "default": QConfigMapping(onnxq_default_qconfig),
    "default, per tensor": QConfigMapping(_per_tensor),
}
BESIDE = {"16 bits": "stored", "integers, per tensor": "integers", "default, per tensor": "default"}
"""Ways that are timed beside another one, too."""


def given(name: str, folder: Path) -> tuple[Path, list[Batch], list[Batch], Batch]:
    """(file, batches to calibrate on, batches to test on, one sample) of the model."""
    if name in TRAINED:
        calibration, images, _ = evaluation_data(None)
        files = {model.name: model.path for model in float_models(folder, calibration)}
        return files[name], _batches(calibration), _batches(images[:500]), {"image": images[:1]}
    case = SUBJECTS[name].make(Size.REAL, folder)
    one = next(iter(case.timed.values()))
    return case.model, [*case.calibration], [*case.test], one


def _batches(images: Array) -> list[Batch]:
    return [{"image": images[i : i + AT_ONCE]} for i in range(0, len(images), AT_ONCE)]


def rows(name: str, folder: Path) -> Iterator[Row]:
    """Figures of a model: a way each."""
    model, calibration, test, one = given(name, folder)
    files = {"float": model}
    for way, mapping in WAYS.items():
        try:
            made = onnxq.quantize(model, calibration, qconfig=mapping, target=TARGET)
        except UnsupportedError as error:
            yield MODELS.row(name, way, "refused", str(error), "", "")
            continue
        files[way] = folder / f"{way}.onnx"
        made.save(files[way])
    sessions = {way: session(file) for way, file in files.items()}
    outputs = [output.name for output in sessions["float"].get_outputs()]
    times = taking_turns(runs_on(sessions, one), ROUNDS)
    for way in [way for way in WAYS if way in files]:
        found = onnxq.verify(model, files[way], test, only=outputs)
        db = min(output.sqnr_db for output in found.outputs)
        size = files[way].stat().st_size / model.stat().st_size
        ratio = paired_ratio(times[way], times["float"])
        other = BESIDE.get(way)
        beside = "" if other is None else f"{paired_ratio(times[way], times[other])} of '{other}'"
        yield MODELS.row(name, way, db, ratio.cell, beside, size)


def matmul(node: onnx.NodeProto, weight: Array, x: Array, gives: int) -> partial[object]:
    """Run of a model of that node alone."""
    reads = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node],
        "matmul",
        [helper.make_tensor_value_info("x", reads, x.shape)],
        [helper.make_tensor_value_info("y", gives, [len(x), weight.shape[1]])],
        [numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return partial(session(made).run, None, {"x": x})


def matmuls() -> Iterator[Row]:
    """MatMuls of 16-bit integers beside float's."""
    random = np.random.default_rng(0)
    names = ["x", "w"], ["y"]
    wide = helper.make_node("MatMulInteger16", *names, domain=MICROSOFT)
    plain = helper.make_node("MatMul", *names)
    for count, k, n in MATMULS:
        w = random.integers(-3000, 3000, (k, n)).astype(np.int16)
        x = random.integers(-3000, 3000, (count, k)).astype(np.int16)
        floats = w.astype(np.float32), x.astype(np.float32)
        times = taking_turns(
            {
                "16 bits": matmul(wide, w, x, TensorProto.INT32),
                "float": matmul(plain, *floats, TensorProto.FLOAT),
            },
            ROUNDS,
        )
        ratio = paired_ratio(times["16 bits"], times["float"])
        yield MATMUL_TIMES.row(f"{count} x {k} x {n}", ratio.cell)


@benchmark(MODELS, MATMUL_TIMES, needs=("torch",))
@with_names((*TRAINED, *DRAWN))
def measure(names: Sequence[str]) -> Iterator[Row]:
    """The ways of each model, then MatMuls of 16-bit integers."""
    for name in names or (*TRAINED, *DRAWN):
        with tempfile.TemporaryDirectory() as folder:
            yield from rows(name, Path(folder))
    try:
        yield from matmuls()
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
        yield MATMUL_TIMES.row("all", f"not in this ONNX Runtime: {error}")
