"""Accuracy that dynamic quantization for size costs: a small LSTM, GRU and transformer.

    python -m benchmarks dynamic_accuracy                             # 1,000 embedded images
    python -m benchmarks dynamic_accuracy --data cifar10_jpeg.npz     # all 10,000

The LSTM and the GRU read the last 600 of scikit-learn's digits, the transformer the CIFAR-10 test
images; the same samples in the same order for every variant. "weights": bytes of all constants but
shapes and axes that a quantized node reads, scales included, as a share of the same in float.
"left": MatMul, Gemm, LSTM, GRU and RNN with constant weights that the plan leaves in float. It ends
with an error where a limit is exceeded: 6 digits, 0.5 points, 0.3 of the float size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_data
from benchmarks.harness.table import Missed, Row, Table
from onnxq.dynamic.rewrite_dynamic import rewrite_dynamic
from onnxq.graph.walk import node_name, walk
from onnxq.operator import Float
from onnxq.ort import runtime
from onnxq.pipeline import plan_dynamic
from onnxq.pytorch import load_module
from scripts._models import ROOT
from scripts._tables import sqnr_db

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import onnx_ir as ir

    from onnxq.dynamic.dynamic_decision import DynamicPlan

BATCH = 100
WEIGHTED = ("MatMul", "Gemm", "LSTM", "GRU", "RNN")
VARIANTS = (("x86-vnni", "qint8"), ("portable", "qint8"), ("portable", "float16"))
ROWS = Table(
    "variants",
    {
        **{"model": "", "weights, target": "", "right": ",", "behind float": "+d"},
        **{"other class": "", "logits SQNR dB": ".1f", "nodes quantized": "", "left": ""},
        **{"weights kB": ".1f", "of float": ".3f"},
    },
    keys=2,
)
DIGITS_BEHIND = 6  # of 600 may be wrong that float has right, net
IMAGES_BEHIND = 0.005  # of all
SHARE = {"qint8": 0.3, "float16": 0.51}  # of the float weights' bytes, allowed


@dataclass(frozen=True, slots=True)
class Validation:
    """A trained float model with what it is tested on.

    Attributes:
        allowed: how many samples fewer than float may be right.
    """

    name: str
    model: ir.Model
    samples: npt.NDArray[np.float32]
    labels: npt.NDArray[np.integer]
    allowed: int


@dataclass(frozen=True, slots=True)
class Result:
    """One quantized model, measured."""

    variant: str
    right: int
    logits: npt.NDArray[np.float32]
    quantized: int
    left: int
    weights: int
    float_weights: int


def trials(data: Path | None) -> Iterator[Validation]:
    """The three models, exported."""
    from models import digits, transformer
    from models.cifar10 import load_jpeg_split, load_sample

    rows, numbers = digits.load_digits("test")
    for name in ("digits_lstm", "digits_gru"):
        module = load_module(f"models.digits:{name}", ROOT / "models" / f"{name}.safetensors")
        model = onnxq.export(module, digits.example_inputs())
        yield Validation(name, model, rows, numbers, DIGITS_BEHIND)
    images, labels = load_sample("test") if data is None else load_jpeg_split(data, "test")
    path = ROOT / "models" / "transformer.safetensors"
    module = load_module("models.transformer:transformer", path)
    model = onnxq.export(module, transformer.example_inputs())
    yield Validation("transformer", model, images, labels, int(IMAGES_BEHIND * len(labels)))


def logits(model: ir.Model, samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """(samples, classes), by one thread."""
    name = str(model.graph.inputs[0].name)
    with runtime.open_session(model, threads=1) as session:
        parts = [
            session.run({name: samples[i : i + BATCH]})[0] for i in range(0, len(samples), BATCH)
        ]
    return np.concatenate(parts).astype(np.float32)


def constants(model: ir.Model) -> dict[str, int]:
    """Name -> bytes of every initializer that is no shape or axis."""
    return {
        name: value.const_value.nbytes
        for graph in model.graphs()
        for name, value in graph.initializers.items()
        if value.const_value is not None and value.const_value.dtype.name != "INT64"
    }


def weight_bytes(source: ir.Model, made: ir.Model, plan: DynamicPlan) -> tuple[int, int]:
    """(of what takes the weights' place, of the weights concerned), scales included."""
    before, after = constants(source), constants(made)
    concerned = {w.tensor for decision in plan.quantized.values() for w in decision.weights}
    kept = {name for name in before if name in after and name not in concerned}
    float_bytes = sum(before[name] for name in concerned)
    return sum(size for name, size in after.items() if name not in kept), float_bytes


def result(validation: Validation, target: str, dtype: str) -> Result:
    source, plan = plan_dynamic(validation.model, None, dtype, target=target, objective="size")
    made = rewrite_dynamic(source, plan)
    weighted = [n for n, _ in walk(source.graph) if n.op_type in WEIGHTED and _has_weight(n)]
    left = [n for n in weighted if isinstance(plan.decisions[node_name(n)], Float)]
    got = logits(made, validation.samples)
    weights, float_weights = weight_bytes(source, made, plan)
    return Result(
        f"{dtype}, {target}",
        int((got.argmax(1) == validation.labels).sum()),
        got,
        len(plan.quantized),
        len(left),
        weights,
        float_weights,
    )


def _has_weight(node: ir.Node) -> bool:
    return any(v is not None and v.is_initializer() for v in node.inputs[:2])


def rows(validation: Validation) -> Iterator[Row | Missed]:
    """Each variant beside float, and what exceeds its limit."""
    reference = logits(validation.model, validation.samples)
    right = int((reference.argmax(1) == validation.labels).sum())
    for target, dtype in VARIANTS:
        r = result(validation, target, dtype)
        share = r.weights / r.float_weights
        yield ROWS.row(
            validation.name,
            r.variant,
            r.right,
            right - r.right,
            int((r.logits.argmax(1) != reference.argmax(1)).sum()),
            sqnr_db(reference, r.logits),
            r.quantized,
            r.left,
            r.weights / 1e3,
            share,
        )
        where = f"{validation.name}, {r.variant}"
        if right - r.right > validation.allowed:
            yield Missed(f"{where}: {right - r.right} behind float; at most {validation.allowed}")
        if r.left:
            yield Missed(f"{where}: {r.left} nodes with weights left in float")
        if share > SHARE[dtype]:
            yield Missed(f"{where}: weights at {share:.3f}; at most {SHARE[dtype]}")


@benchmark(ROWS, needs=("torch",))
@with_data
def measure(data: Path | None) -> Iterator[Row | Missed]:
    """The rows of the three models."""
    for validation in trials(data):
        yield from rows(validation)
