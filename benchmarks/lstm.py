"""Speed of a dynamically quantized LSTM against the peer's: 32 steps, one thread.

    python -m benchmarks lstm [--hidden 256] [--batch 1]

Each LSTM reads as many numbers as it has hidden ones, in float, in each form of
onnxq.quantize_dynamic, in what the objectives choose on this machine, and as
onnxruntime.quantization.quantize_dynamic writes it where it does anything. CPU time of the thread;
all variants take turns in every round, and a ratio is the median over the rounds of what was
measured in the same round. Above 1, the variant is faster. The largest difference from float is of
outputs that lie in [-1, 1].
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import click
import numpy as np
from onnx import helper

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import Row, Table
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Precision
from onnxq.qconfig import QConfigDynamic, QConfigMapping, float16_dynamic_qconfig
from scripts._graphs import model_of, proto_of
from scripts._peer import DYNAMIC_VARIANTS, dynamic_variants
from scripts._timing import ratios, session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import onnx
    import onnx_ir as ir

STEPS = 32
ROUNDS = 61
GATES = 4
VARIANTS = Table(
    "variants",
    {
        **{"hidden": "", "batch": "", "variant": "", "MB": ".2f", "CPU ms": ".3f", "error": ".4f"},
        **dict.fromkeys(("float", *DYNAMIC_VARIANTS), ".2f"),
    },
    keys=3,
)
FORMS = (Precision.DYNAMIC_INT8, Precision.WEIGHT_ONLY)


def layer(hidden: int, batch: int) -> onnx.ModelProto:
    """One layer over (32, batch, hidden), weights as torch draws them."""
    rng = np.random.default_rng(0)
    bound = 1 / np.sqrt(hidden)
    width = GATES * hidden
    shapes = {"w": (1, width, hidden), "r": (1, width, hidden), "b": (1, 2 * width)}
    constants = {name: rng.uniform(-bound, bound, shape) for name, shape in shapes.items()}
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], "lstm", hidden_size=hidden)
    x, y = [STEPS, batch, hidden], [STEPS, 1, batch, hidden]
    return model_of([node], constants, {"x": x}, {"y": y}, opset=20)


def variants(model: onnx.ModelProto) -> dict[str, onnx.ModelProto | ir.Model]:
    """Name -> model: float, the peer's, every form, and what the objectives choose."""
    made: dict[str, onnx.ModelProto | ir.Model] = {"float": model, **dynamic_variants(model)}
    for form in FORMS:
        weight = NarrowRangeObserver.with_args()
        mapping = QConfigMapping().set_global(QConfigDynamic(weight, form))
        made[f"onnxq {form.value}"] = onnxq.quantize_dynamic(model, mapping, objective="size")
    half = QConfigMapping().set_global(float16_dynamic_qconfig)
    made["onnxq half"] = onnxq.quantize_dynamic(model, half, objective="size")
    for objective in ("speed", "size"):
        name = f"onnxq, objective {objective}"
        made[name] = onnxq.quantize_dynamic(model, target="auto", objective=objective)
    return made


@benchmark(VARIANTS)
@click.option("--hidden", type=int, multiple=True, default=(256, 1024), show_default=True)
@click.option("--batch", type=int, multiple=True, default=(1, 8), show_default=True)
def measure(hidden: Sequence[int], batch: Sequence[int]) -> Iterator[Row]:
    """Size, time, error, and the ratios to float and to each of the peer's."""
    for width, count in itertools.product(hidden, batch):
        models = variants(layer(width, count))
        sessions = {name: session(each) for name, each in models.items()}
        x = np.random.default_rng(1).standard_normal((STEPS, count, width)).astype(np.float32)
        wanted = sessions["float"].run(None, {"x": x})[0]
        for name, row in ratios(sessions, x, ROUNDS).items():
            size = proto_of(models[name]).ByteSize() / 1e6
            error = np.abs(sessions[name].run(None, {"x": x})[0] - wanted).max()
            others = (row[other] for other in ("float", *DYNAMIC_VARIANTS))
            yield VARIANTS.row(width, count, name, size, row[""] * 1e3, error, *others)
