"""Sums of products that are proved to fit for any input, beside what samples show.

    python -m benchmarks certificates

A row per model, target that its file is for, and group of machines. "proved": nodes whose sums and
pairs of products fit for any input of their range; "worst sum" and "worst pair": the largest of all
nodes, as a share of int32 and int16. "saturate on samples": nodes in which a pair left int16, and
how many sums, on the first test images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_data, with_names
from benchmarks.harness.table import Row, Table
from onnxq.checking.predict import predict
from onnxq.checking.prove import PROVED, MachineCertificate, prove
from onnxq.samples import Samples
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from scripts._models import MODELS, chosen_models

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from onnxq.checking.prediction import MachinePrediction

BATCH = 16
IMAGES = 16
DEMO = ("resnet20", "mobilenetv2")
TARGETS = ("x86-vnni", "portable")

SUMS = Table(
    "sums",
    {
        **{"model": "", "file for": "", "machines": "", "nodes": "", "proved": ""},
        **{"worst sum": ".3%", "worst pair": ".1%", "saturate on samples": ""},
        "output error": "",
    },
    keys=3,
)


@benchmark(SUMS, needs=("torch",))
@with_data
@with_names(MODELS)
def measure(data: Path | None, names: Sequence[str]) -> Iterator[Row]:
    """Certificates of each model for each target, beside predictions on the images."""
    for model, calibration, images, _ in chosen_models(data, names or DEMO):
        for target in TARGETS:
            prepared = prepare(model.path, None, target)
            samples = Samples({"image": calibration}, batch_size=BATCH)
            made = rewrite(prepared, plan(prepared, calibrate(prepared, samples)))
            seen = predict(made, Samples({"image": images[:IMAGES]}, batch_size=BATCH))
            for machine in prove(made).machines:
                yield row(model.name, target, machine, seen.on(machine.targets[0]))


def row(model: str, target: str, machine: MachineCertificate, seen: MachinePrediction) -> Row:
    """One row of the table."""
    proved = sum(node.verdict == PROVED for node in machine.nodes)
    pairs = [node.pair_share for node in machine.nodes if node.pair_share is not None]
    sums = [node.accumulator_share or 0.0 for node in machine.nodes]
    names = {node.name for node in machine.nodes}
    hit = [layer for layer in seen.layers if layer.overflows and layer.name in names]
    count = f"{len(hit)} nodes, {sum(layer.overflows for layer in hit):,} sums" if hit else "0"
    bounds = ["no bound" if o.bound is None else f"{o.bound:g}" for o in machine.outputs]
    return SUMS.row(
        model,
        target,
        ", ".join(machine.targets),
        len(machine.nodes),
        proved,
        max(sums, default=0.0),
        max(pairs, default=None),
        count,
        ", ".join(bounds),
    )
