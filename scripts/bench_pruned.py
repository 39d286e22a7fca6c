"""Models with pruned channels: SQNR of onnxq beside onnxruntime.quantization.

    python scripts/bench_pruned.py                    # all, some two minutes
    python scripts/bench_pruned.py mixer mobilenetv2

In every Conv, Gemm and MatMul with constant weights, a third of the output channels, those of the
least norm, is spoilt; the biases stay. Trained: ResNet-20, MobileNetV2 and the transformer of
models/. Of random weights: the other architectures (scripts/_architectures).

    pruned        the channels are 0
    tiny          they are 1e-10 of what they were
    biased        they are 0, and 0.5 to 1.5 is added to every bias, of Add behind MatMul too
    one layer     they are 0, and so is all of every fourth layer

Both tools calibrate on the same samples, one by one. The peer: quantize_static with QDQ, uint8
activations and int8 weights per channel, MinMax. SQNR: of the first output against the float
model's, over samples that nothing was calibrated on. Differing: outputs in which ONNX Runtime and
the reference differ by more than float nodes round. "behind": the SQNR is more than 0.5 dB below
the peer's. The exit code is 1 where something is behind, or differs.
The table that this printed is in scripts/bench_pruned.md.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import torch
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from onnxq.graph.io import save
from onnxq.pytorch import load_module
from scripts._architectures import ARCHITECTURES, Size, build
from scripts._models import ROOT, evaluation_data
from scripts._peer import Batch, quantize_static
from scripts._tables import head, line, sqnr_db
from scripts._timing import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

TRAINED = {
    "resnet20": "models.resnet:resnet20",
    "mobilenetv2": "models.mobilenet:mobilenetv2",
    "transformer": "models.transformer:transformer",
}
UNTRAINED = ("mixer", "vit", "bert", "mobilenetv3", "convnext")
SPOILT = ("pruned", "tiny", "biased", "one layer")
SAMPLES, TESTED = 32, 64
SLACK_DB = 0.5  # the two choose ranges otherwise; what prunes, costs tens
EVERY = 4  # layers, of which one is 0
CHANNEL_AXIS = {"Conv": 0, "MatMul": 1, "Gemm": 1}


def spoilt(model: onnx.ModelProto, how: str) -> onnx.ModelProto:
    """A copy with a third of the channels spoilt in that way."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    constants = {tensor.name: tensor for tensor in copy.graph.initializer}
    readers = {name: node for node in copy.graph.node for name in node.input}
    seen: set[str] = set()
    for node in copy.graph.node:
        if node.op_type not in CHANNEL_AXIS or node.input[1] not in constants:
            continue
        if node.input[1] in seen:
            continue
        seen.add(node.input[1])
        tensor = constants[node.input[1]]
        whole = how == "one layer" and len(seen) % EVERY == 0
        tensor.CopyFrom(_spoilt(tensor, _axis(node), 1e-10 if how == "tiny" else 0.0, whole=whole))
        bias = _bias(node, readers, constants)
        if how == "biased" and bias is not None:
            array = numpy_helper.to_array(bias)
            more = np.random.default_rng(len(seen)).uniform(0.5, 1.5, array.shape)
            bias.CopyFrom(numpy_helper.from_array(array + more.astype(np.float32), bias.name))
    return copy


def _axis(node: onnx.NodeProto) -> int:
    turned = any(a.name == "transB" and a.i for a in node.attribute)
    return 0 if turned else CHANNEL_AXIS[node.op_type]


def _spoilt(tensor: onnx.TensorProto, axis: int, factor: float, *, whole: bool) -> onnx.TensorProto:
    """The weight with that factor in a third of its channels, or all 0."""
    weight = np.array(numpy_helper.to_array(tensor), np.float32)
    rows = np.moveaxis(weight, axis, 0)
    norms = np.square(rows.reshape(len(rows), -1)).sum(1)
    rows[np.argsort(norms)[: len(rows) // 3]] *= np.float32(factor)
    return numpy_helper.from_array(weight * np.float32(not whole), tensor.name)


def _bias(
    node: onnx.NodeProto,
    readers: dict[str, onnx.NodeProto],
    constants: dict[str, onnx.TensorProto],
) -> onnx.TensorProto | None:
    """The constant that is added: the third input, or that of an Add behind."""
    if len(node.input) > 2:
        return constants.get(node.input[2])
    behind = readers.get(node.output[0])
    if behind is None or behind.op_type != "Add":
        return None
    return next((constants[name] for name in behind.input if name in constants), None)


def models(names: list[str], folder: Path) -> Iterator[tuple[str, Path, list[Batch], list[Batch]]]:
    """(name, float file, calibration samples, other samples)."""
    calibration, images, _ = evaluation_data(None)
    for name in names:
        path = folder / f"{name}.onnx"
        if name in TRAINED:
            module = load_module(TRAINED[name], ROOT / "models" / f"{name}.safetensors")
            onnxq.export(module, (torch.from_numpy(calibration[:2]),), path)
            (key,) = (value.name for value in onnx.load(path).graph.input)
            data = [[{key: x[None]} for x in part] for part in (calibration, images)]
            yield name, path, data[0][:SAMPLES], data[1][:TESTED]
            continue
        made, feeds = build(name, Size.TINY)
        onnxq.export(made, feeds(4, 5), path)
        yield name, path, _singly(feeds(SAMPLES, 7)), _singly(feeds(TESTED, 11))


def _singly(feeds: dict[str, torch.Tensor]) -> list[Batch]:
    arrays = {name: x.numpy() for name, x in feeds.items()}
    count = len(next(iter(arrays.values())))
    return [{name: x[i : i + 1] for name, x in arrays.items()} for i in range(count)]


def outputs(path: Path, data: list[Batch]) -> npt.NDArray[np.float64]:
    """The first output of every sample."""
    model = session(path)
    return np.concatenate([model.run(None, batch)[0] for batch in data]).astype(np.float64)


def main() -> int:
    """Prints the table; 1 where onnxq is behind, or something differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"of {', '.join((*TRAINED, *UNTRAINED))}")
    names = parser.parse_args().models or [*TRAINED, *UNTRAINED]
    assert set(names) <= {*TRAINED, *ARCHITECTURES}, "no such model"
    logging.disable(logging.WARNING)  # the peer says of every file that it could be prepared
    wrong = 0
    print(head("model", "spoilt", "onnxq dB", "quantize_static dB", "differing outputs", ""))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        ours, theirs, source = (folder / f"{name}.onnx" for name in ("ours", "theirs", "spoilt"))
        for name, path, calibration, tested in models(names, folder):
            for how in SPOILT:
                onnx.save(spoilt(onnx.load(path), how), source)
                save(onnxq.quantize(source, calibration, target="x86-vnni"), ours)
                quantize_static(source, theirs, calibration)
                wanted = outputs(source, tested)
                reached, peer = (sqnr_db(wanted, outputs(file, tested)) for file in (ours, theirs))
                found = onnxq.cross_check(ours, tested[:2])
                differing = sum(
                    bool(y.differing) and not found.is_rounding(y) for y in found.outputs
                )
                behind = reached < peer - SLACK_DB
                wrong += behind + differing
                cells = (f"{reached:.1f}", f"{peer:.1f}", differing, "behind" if behind else "")
                print(line(name, how, *cells), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
