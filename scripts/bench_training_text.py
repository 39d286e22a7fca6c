"""Training that pays, of a language model: bits per byte in float, rounded, trained, and deployed.

    python scripts/bench_training_text.py [--steps 100]

The decoder in models/, with its float weights, in the recipe of scripts/bench_training.py as it
stands: learned scales, the float model as the teacher, the default learning rate and phases. It
trains on windows of Persuasion, which its float weights have read. Bits per byte are those of the
first windows of Northanger Abbey, which nothing has read, on ONNX Runtime. Agreeing are positions
for which the trained module, in torch, and the deployed file find the same next byte likeliest.
After training is `onnxq.quantize` with weights of as many bits.

The table that it printed is in scripts/bench_training_text.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find models/
import onnxq
from onnxq.observers import NarrowRangeObserver
from onnxq.ort import runtime
from onnxq.pytorch import convert, export, load_module, prepare_qat
from onnxq.pytorch.train.recipe import Recipe, distilling, finetune
from onnxq.qconfig import (
    QConfig,
    QConfigMapping,
    get_default_qconfig,
    learned_4bit_qat_qconfig,
    learned_qat_qconfig,
)
from scripts._models import ROOT
from scripts._tables import head, line

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir
    from torch import Tensor, nn

BITS = {8: learned_qat_qconfig, 4: learned_4bit_qat_qconfig}
LARGEST = {8: 127, 4: 7}
TARGET = "x86-vnni"
WINDOW = 128
CALIBRATION = 64
BATCH = 16


def windows(name: str) -> Tensor:
    """Bytes of a text in windows of equal length, int64 (windows, WINDOW)."""
    text = np.frombuffer((ROOT / "models" / f"{name}.txt").read_bytes(), np.uint8)
    count = len(text) // WINDOW
    return torch.from_numpy(text[: count * WINDOW].astype(np.int64)).reshape(count, WINDOW)


def batches(text: Tensor, steps: int, size: int) -> Iterator[Tensor]:
    """So many batches of windows, drawn anew for each."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        yield text[torch.randint(len(text), (size,), generator=generator)]


def logits(model: ir.Model, text: Tensor) -> Tensor:
    """The model's, on ONNX Runtime, float32 (windows, WINDOW, 256)."""
    with runtime.open_session(model, threads=1) as session:
        split = torch.split(text, BATCH)
        found = [session.run({"input_ids": x.numpy()})[0] for x in split]
    return torch.from_numpy(np.concatenate(found))


def bits_per_byte(found: Tensor, text: Tensor) -> str:
    """Mean of -log2 p(next byte)."""
    nats = functional.cross_entropy(found[:, :-1].flatten(0, 1), text[:, 1:].flatten())
    return f"{float(nats) / np.log(2):.3f}"


def rounded(model: ir.Model, text: Tensor, bits: int) -> ir.Model:
    """The float model, quantized on windows of the training text."""
    weight = NarrowRangeObserver.with_args(quant_max=LARGEST[bits])
    qconfig = QConfigMapping(QConfig(get_default_qconfig().activation, weight))
    samples = {"input_ids": text[:CALIBRATION].numpy()}
    return onnxq.quantize(
        model, onnxq.Samples(samples, batch_size=BATCH), qconfig=qconfig, target=TARGET
    )


def trained(module: nn.Module, text: Tensor, bits: int, recipe: Recipe) -> tuple[nn.Module, float]:
    """The module after the recipe, and CPU seconds per step."""
    prepared = prepare_qat(
        module, inputs=text[:BATCH], qconfig=QConfigMapping(BITS[bits]), target=TARGET
    )
    torch.manual_seed(0)
    started = time.thread_time()
    finetune(prepared, batches(text, recipe.steps, BATCH), distilling(module), recipe)
    return prepared, (time.thread_time() - started) / recipe.steps


def in_torch(module: nn.Module, text: Tensor) -> Tensor:
    """Logits of the module itself."""
    with torch.inference_mode():
        return torch.cat([module(x) for x in torch.split(text, BATCH)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--tested", type=int, default=200, help="windows of Northanger Abbey")
    args = parser.parse_args()
    torch.set_num_threads(1)
    module = load_module("models.decoder:decoder", ROOT / "models" / "decoder.safetensors").eval()
    text, held = windows("persuasion"), windows("northanger_abbey")[: args.tested]
    model = export(module, text[:4])
    print(f"{args.steps} steps of {BATCH} windows of {WINDOW} bytes; {held.numel()} bytes tested\n")
    print(head("bits", "way", "bits per byte", "agreeing", "CPU s per step"), flush=True)
    print(line(32, "float", bits_per_byte(logits(model, held), held), "", ""), flush=True)
    for bits in BITS:
        found = logits(rounded(model, text, bits), held)
        print(line(bits, "after training", bits_per_byte(found, held), "", ""), flush=True)
        prepared, seconds = trained(module, text, bits, Recipe(args.steps))
        found = logits(export(convert(prepared), text[:4]), held)
        agreeing = (found.argmax(-1) == in_torch(prepared, held).argmax(-1)).float().mean()
        cells = bits_per_byte(found, held), f"{100 * float(agreeing):.2f}%", f"{seconds:.2f}"
        print(line(bits, "trained, deployed", *cells), flush=True)


if __name__ == "__main__":
    main()
