"""Gives a MobileNetV2 the channel imbalance of long-trained ones; it computes the same as before.

    python scripts/make_imbalanced.py mobilenetv2.onnx mobilenetv2-imbalanced.onnx \
        --samples models/calibration.npz

In every chain expand Conv -> Clip(0, 6) -> depthwise Conv, channel c of the expand convolution
(weights and bias) is multiplied by s_c, and filter c of the depthwise one divided by it:

    depthwise(clip(expand(x))) = (depthwise / s)(clip(s * expand(x)))    0 < s <= 1, expand(x) < 6

so only channels whose clip input stays below 6 on the samples are scaled. s is log-uniform in
[1/64, 1], drawn anew for every channel from a fixed seed. Per-tensor weights lose most of such a
network; per-channel weights and activations that share one scale lose some of it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.graph import io
from onnxq.ort import runtime
from onnxq.ort.expose import expose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.core.arrays import Singles


SMALLEST_SCALE = 1 / 64
CLIP_AT = 6.0
SEED = 0
BATCH = 64


@dataclass(frozen=True, slots=True)
class Chain:
    """An expand convolution, the Clip that alone reads it, the depthwise one that reads that."""

    expand: ir.Node
    clip: ir.Node
    depthwise: ir.Node


@dataclass(frozen=True, slots=True)
class Imbalance:
    """Change that was made: how many of the expanded channels were scaled."""

    scaled: int
    channels: int


def find_chains(model: ir.Model) -> Iterator[Chain]:
    """Every expand -> Clip -> depthwise chain of the main graph, in order."""
    for clip in model.graph:
        if clip.op_type != "Clip":
            continue
        source, readers = clip.inputs[0], clip.outputs[0].consumers()
        expand = source.producer() if source is not None else None
        if expand is None or len(readers) != 1 or len(expand.outputs[0].consumers()) != 1:
            continue
        depthwise = readers[0]
        if expand.op_type == depthwise.op_type == "Conv" and _groups(expand) == 1 < _groups(
            depthwise
        ):
            yield Chain(expand, clip, depthwise)


def _groups(conv: ir.Node) -> int:
    return conv.attributes.get_int("group", 1)


def _largest(model: ir.Model, names: list[str], images: Singles) -> dict[str, Singles]:
    """Per name, the largest value of each channel over the images; shape (channels,)."""
    exposed = expose(model, names)
    outputs = [exposed.outputs[name] for name in names]
    largest: dict[str, Singles] = {}
    input_name = model.graph.inputs[0].name or ""
    with runtime.open_session(exposed.model) as session:
        for start in range(0, len(images), BATCH):
            arrays = session.run({input_name: images[start : start + BATCH]}, outputs)
            for name, x in zip(names, arrays, strict=True):
                top = x.max(axis=(0, 2, 3)).astype(np.float32)
                largest[name] = np.maximum(largest.get(name, top), top)
    return largest


def _multiply(value: ir.Value | None, factors: Singles) -> None:
    """Multiplies an initializer along axis 0."""
    if value is None or value.const_value is None:
        raise ValueError(f"{value}: wanted a constant weight")
    array = value.const_value.numpy()
    shaped = factors.reshape(-1, *[1] * (array.ndim - 1))
    value.const_value = ir.tensor((array * shaped).astype(np.float32), name=value.name)


def imbalance(source: Path, destination: Path, images: Singles, seed: int = SEED) -> Imbalance:
    """Writes the imbalanced variant of an exported MobileNetV2.

    Args:
        source: float ONNX model, batch norm folded (as `onnxq export` writes it), one image input.
        destination: where to write.
        images: training images, (N, 3, H, W): a channel that reaches 6 in any stays as it is.
        seed: of the scales.
    """
    model = io.load(source)
    chains = list(find_chains(model))
    names = [chain.expand.outputs[0].name or "" for chain in chains]
    largest = _largest(model, names, images)
    rng = np.random.default_rng(seed)
    scaled = channels = 0
    for chain, name in zip(chains, names, strict=True):
        below = largest[name] < CLIP_AT
        drawn = np.exp(rng.uniform(np.log(SMALLEST_SCALE), 0, below.size))
        factors = np.where(below, drawn, 1).astype(np.float32)
        _multiply(chain.expand.inputs[1], factors)
        _multiply(chain.expand.inputs[2], factors)
        _multiply(chain.depthwise.inputs[1], np.reciprocal(factors))
        scaled, channels = scaled + int(below.sum()), channels + below.size
    io.save(model, destination)
    return Imbalance(scaled, channels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("destination", type=Path)
    parser.add_argument("--samples", type=Path, required=True, help="npz of training images")
    args = parser.parse_args()
    with np.load(args.samples) as arrays:
        images = next(iter(arrays.values()))
    done = imbalance(args.source, args.destination, images)
    print(f"{args.destination}: {done.scaled} of {done.channels} expanded channels scaled")


if __name__ == "__main__":
    main()
