"""Error, time and size of what a node can have beside its form: what `tune` offers as a move.

    python scripts/bench_moves.py               # all models, some minutes
    python scripts/bench_moves.py transformer   # some of them

Every model is quantized as a whole: its weights stored and computed with in float ("stored"), with
activations of 16 bits around its nodes ("16 bits": ONNX Runtime computes in float between them),
and in integers with a scale per channel of a weight, or per tensor, everywhere or in the forms of
onnxq's default. dB at the worst output on test
samples; bytes; time over float's, whole runs in turns, CPU time of one thread, median of 31.

`products` times a product of 16-bit codes, com.microsoft's MatMulInteger16, beside float's.

What follows for the search stands in docs/guides/tune.md, what this printed in
scripts/bench_moves.md.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
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
from scripts._tables import escaped, head, line, versions
from scripts._timing import paired_ratio, runs_on, session, taking_turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import onnx

    from onnxq.core.arrays import Array

    Batch = Mapping[str, Array]

TARGET = "x86-vnni"
MICROSOFT = "com.microsoft"
ROUNDS = 31
AT_ONCE = 50  # images
TRAINED = ("resnet20", "mobilenetv2")
DRAWN = ("transformer", "sentence_encoder", "shufflenet", "mobilenetv3")
PRODUCTS = ((128, 256, 256), (128, 768, 768))  # rows, K, N
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


def rows(name: str, folder: Path) -> Iterator[str]:
    """Lines of one model: a way each."""
    model, calibration, test, one = given(name, folder)
    files = {"float": model}
    for way, mapping in WAYS.items():
        try:
            made = onnxq.quantize(model, calibration, qconfig=mapping, target=TARGET)
        except UnsupportedError as error:
            yield line(name, way, "refused", escaped(str(error)), "", "")
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
        yield line(name, way, f"{db:.1f}", ratio, beside, f"{size:.3f}")


def product(node: onnx.NodeProto, weight: Array, x: Array, gives: int) -> partial[object]:
    """Run of a model of that node alone."""
    reads = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", reads, x.shape)],
        [helper.make_tensor_value_info("y", gives, [len(x), weight.shape[1]])],
        [numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return partial(session(made).run, None, {"x": x})


def products() -> Iterator[str]:
    """Lines of products of 16-bit codes beside float's."""
    random = np.random.default_rng(0)
    names = ["x", "w"], ["y"]
    wide = helper.make_node("MatMulInteger16", *names, domain=MICROSOFT)
    plain = helper.make_node("MatMul", *names)
    for count, k, n in PRODUCTS:
        w = random.integers(-3000, 3000, (k, n)).astype(np.int16)
        x = random.integers(-3000, 3000, (count, k)).astype(np.int16)
        floats = w.astype(np.float32), x.astype(np.float32)
        times = taking_turns(
            {
                "16 bits": product(wide, w, x, TensorProto.INT32),
                "float": product(plain, *floats, TensorProto.FLOAT),
            },
            ROUNDS,
        )
        yield line(f"{count} x {k} x {n}", paired_ratio(times["16 bits"], times["float"]))


def main() -> int:
    known = (*TRAINED, *DRAWN)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    names = parser.parse_args().names or known
    logging.disable(logging.WARNING)  # of torch's exporter
    warnings.simplefilter("ignore")
    print(f"onnxruntime {onnxruntime.__version__}, {versions('onnx', 'numpy')}\n")
    print(head("model", "way", "dB", "time over float's", "beside", "size over float's"))
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            for each in rows(name, Path(folder)):
                print(each, flush=True)
    print()
    print(head("product", "16-bit codes over float"))
    try:
        print("\n".join(products()))
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
        print(line("all", f"not in this ONNX Runtime: {error}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
