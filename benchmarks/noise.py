"""Predicted noise of each tensor's rounding beside its measured effect on the outputs.

    python -m benchmarks noise                  # architectures, trained models, hard cases
    python -m benchmarks noise bert outliers

Each tensor that a plan with `all_integers` would round is rounded alone, in the float model, by its
own Q and DQ: its effect is the error of the outputs (each relative to its own power, means over
outputs). Predicted is the SQNR of the tensor in itself, or behind the normalization or the steep
function where less is left. Spread: sum of the predicted noises over that of as many typical ones.
Tau is Kendall's, between both, over the tensors of a model. `all` is the SQNR of the outputs with
every tensor rounded, `fit` with all but those that are unfit. Weights stay float.

Samples: 16 to calibrate, 16 others to measure. Random weights, or those of models/.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import Missed, Row, Table
from onnxq.errors import OnnxqError
from onnxq.graph.saving import to_bytes
from onnxq.ort import runtime
from onnxq.static.noise.sensitive import Budget, sensitive, tensor_losses
from onnxq.static.planning.activation_qparams import tensor_qparams
from scripts._architectures import ARCHITECTURES, Size, build
from scripts._models import ROOT, float_models
from tests.examples import ALL_INTEGERS
from tests.static.noise.nets import feed_forwards, sounds, spectral, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onnxq.core.arrays import Array, Reals
    from onnxq.qparams import QParams
    from onnxq.static.prepared import Prepared

SAMPLES = 16
CALIBRATION_SEED, TEST_SEED = 7, 11
ALONE = {"cond_if"}  # its condition is a mean over the batch
GATE = "bench_noise_gates"

Batches = Sequence[Mapping[str, "Array"]]


@dataclass(frozen=True, slots=True)
class Subject:
    """A float model with samples to calibrate and to measure on."""

    name: str
    model: Path | onnx.ModelProto
    calibration: Batches
    test: Batches


MODELS = Table(
    "models",
    {
        **{"model": "", "roundings": "", "median dB": ".1f"},
        **{"worst: predicted, measured dB": "{0[0]:.1f}, {0[1]:.1f}", "spread": ".1f"},
        **{"tau": ".2f", "sensitive": "", "all dB": ".1f", "fit dB": ".1f"},
    },
)


def gated(prepared: Prepared, qparams: dict[str, QParams]) -> onnx.ModelProto:
    """The float model with x + gate (DQ(Q(x)) - x) in place of each x; gates are an input."""
    model = onnx.ModelProto()
    model.ParseFromString(to_bytes(prepared.model))
    made: dict[str, list[onnx.NodeProto]] = {}
    for i, (tensor, p) in enumerate(qparams.items()):
        names = {k: f"{GATE}_{k}_{i}" for k in ("s", "z", "i", "q", "d", "e", "g", "m", "r")}
        model.graph.initializer.extend(
            [
                numpy_helper.from_array(np.asarray(p.scale), names["s"]),
                numpy_helper.from_array(np.asarray(p.zero_point), names["z"]),
                numpy_helper.from_array(np.asarray(i, np.int64), names["i"]),
            ]
        )
        graph_qparams = [names["s"], names["z"]]
        made[tensor] = [
            helper.make_node("QuantizeLinear", [tensor, *graph_qparams], [names["q"]]),
            helper.make_node("DequantizeLinear", [names["q"], *graph_qparams], [names["d"]]),
            helper.make_node("Sub", [names["d"], tensor], [names["e"]]),
            helper.make_node("Gather", [GATE, names["i"]], [names["g"]]),
            helper.make_node("Mul", [names["e"], names["g"]], [names["m"]]),
            helper.make_node("Add", [tensor, names["m"]], [names["r"]]),
        ]
    renamed = {tensor: nodes[-1].output[0] for tensor, nodes in made.items()}
    nodes: list[onnx.NodeProto] = []
    for x in model.graph.input:
        nodes += made.pop(x.name, [])
    for node in model.graph.node:
        for slot, name in enumerate(node.input):
            if name in renamed:
                node.input[slot] = renamed[name]
        nodes.append(node)
        for name in node.output:
            nodes += made.pop(name, [])
    for output in model.graph.output:
        if output.name in renamed:
            old = output.name
            nodes.append(helper.make_node("Identity", [renamed[old]], [f"{old}_out"]))
            output.name = f"{old}_out"
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    gates = helper.make_tensor_value_info(GATE, TensorProto.FLOAT, [len(qparams)])
    model.graph.input.append(gates)
    return model


def error_of(right: list[Reals], got: list[Reals]) -> float:
    """Mean over the outputs of error power over signal power."""
    shares = [
        float(np.square(b - a).sum() / max(float(np.square(a).sum()), 1e-30))
        for a, b in zip(right, got, strict=True)
    ]
    return float(np.mean(shares))


def kendall(a: Reals, b: Reals) -> float:
    """Kendall's tau: pairs in the same order less those in the other, over all."""
    one, other = np.sign(a[:, None] - a), np.sign(b[:, None] - b)
    pairs = a.size * (a.size - 1)
    return float((one * other).sum() / pairs) if pairs else 1.0


def row(subject: Subject) -> Row:
    prepared = onnxq.prepare(subject.model, ALL_INTEGERS, "x86-vnni")
    statistics = onnxq.calibrate(prepared, subject.calibration)
    found = tensor_losses(prepared, statistics)
    chosen = tensor_qparams(prepared, statistics)[0]
    inside = {v.name for node in prepared.model.graph for v in node.outputs}
    inside |= {v.name for v in prepared.model.graph.inputs}
    rounded = {t: chosen[t] for t in found if t in inside}  # not in branches
    model = ir.from_proto(gated(prepared, rounded))
    with runtime.open_session(model, threads=1) as session:
        names = [str(v.name) for v in model.graph.outputs]

        def outputs(gates: Reals) -> list[Reals]:
            runs = [
                session.run({**batch, GATE: gates.astype(np.float32)}, names)
                for batch in subject.test
            ]
            return [
                np.concatenate([np.ravel(x) for x in parts]).astype(np.float64)
                for parts in zip(*runs, strict=True)
            ]

        count = len(rounded)
        right = outputs(np.zeros(count))
        effects = np.array([error_of(right, outputs(gate)) for gate in np.eye(count)])
        everything = error_of(right, outputs(np.ones(count)))
        left = sensitive(prepared, statistics)
        fit = error_of(right, outputs(np.array([t not in left for t in rounded], float)))
    worst_db = {t: found[t].worst_db for t in rounded}
    predicted = 10 ** (-np.array(list(worst_db.values())) / 10)
    least = int(np.argmax(predicted))
    return MODELS.row(
        subject.name,
        count,
        -10 * np.log10(np.median(predicted)),
        [-10 * np.log10(predicted[least]), _db(effects[least])],
        Budget.of([found[t] for t in rounded]).spread,
        kendall(predicted, effects),
        len(left),
        _db(everything),
        _db(fit),
    )


def _db(error: float) -> float:
    return float(-10 * np.log10(error)) if error else float("inf")


def architecture(name: str, folder: Path) -> Subject:
    module, feeds = build(name, Size.TINY)
    path = folder / f"{name}.onnx"
    onnxq.export(module, feeds(4, CALIBRATION_SEED), path)
    width = 1 if name in ALONE else 4

    def batches(seed: int) -> Batches:
        arrays = {key: x.numpy() for key, x in feeds(SAMPLES, seed).items()}
        return [{k: x[i : i + width] for k, x in arrays.items()} for i in range(0, SAMPLES, width)]

    return Subject(name, path, batches(CALIBRATION_SEED), batches(TEST_SEED))


def trained(folder: Path) -> Iterator[Subject]:
    """Models of models/, on images."""
    import torch  # needed for exporting only

    from models.cifar10 import load_sample
    from onnxq.pytorch import export, load_module

    calibration, test = load_sample("calibration")[0][:64], load_sample("test")[0][:32]
    paths = {model.name: model.path for model in float_models(folder, calibration)}
    paths["transformer"] = folder / "transformer.onnx"
    module = load_module(
        "models.transformer:transformer", ROOT / "models" / "transformer.safetensors"
    )
    export(module, (torch.from_numpy(calibration[:2]),), paths["transformer"])
    for name, path in paths.items():
        yield Subject(name, path, [{"image": calibration}], [{"image": test}])


HARD: dict[str, tuple[Callable[[], onnx.ModelProto], Callable[[int], Batches]]] = {
    "feed_forwards": (lambda: feed_forwards(6, 1.0), tokens),
    "outliers": (lambda: feed_forwards(6, 100.0), tokens),
    "spectrum": (lambda: spectral(logarithm=False), sounds),
    "log_spectrum": (lambda: spectral(logarithm=True), sounds),
}
"""The tests' models: the same with and without what 8 bits cannot hold."""


def subjects(folder: Path, names: Sequence[str]) -> Iterator[Callable[[], Subject]]:
    def wanted(name: str) -> bool:
        return not names or name in names

    for name, (made, data) in HARD.items():
        if wanted(name):
            batches = data(2 * SAMPLES)
            calibration, test = batches[:SAMPLES], batches[SAMPLES:]
            yield functools.partial(Subject, name, made(), calibration, test)
    if not names or {"resnet20", "mobilenetv2", "transformer", "trained"} & set(names):
        for subject in trained(folder):
            yield functools.partial(dataclasses.replace, subject)
    for name in ARCHITECTURES:
        if wanted(name):
            yield functools.partial(architecture, name, folder)


@benchmark(MODELS, needs=("torch",))
@with_names((*HARD, "resnet20", "mobilenetv2", "transformer", "trained", *ARCHITECTURES))
def measure(names: Sequence[str]) -> Iterator[Row | Missed]:
    """A row per model."""
    with tempfile.TemporaryDirectory() as folder:
        for made in subjects(Path(folder), names):
            try:
                yield row(made())
            except OnnxqError as error:
                yield Missed(str(error))
