"""Speed of a dynamically quantized LSTM against the peer's: 32 steps, one thread.

    python scripts/bench_lstm.py [--hidden 256 1024] [--batch 1 8]

Each LSTM reads as many numbers as it has hidden ones, in float, in each form of
onnxq.quantize_dynamic, in what the objectives choose on this machine, and as
onnxruntime.quantization.quantize_dynamic writes it where it does anything. CPU time of the thread;
all variants take turns in every round, and a ratio is the median over the rounds of what was
measured in the same round. Above 1, the variant is faster. The largest difference from float is of
outputs that lie in [-1, 1]. What it printed is in scripts/bench_lstm.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Precision
from onnxq.qconfig import QConfigDynamic, QConfigMapping, float16_dynamic_qconfig
from scripts._graphs import model_of, proto_of
from scripts._peer import dynamic_variants
from scripts._tables import head, line
from scripts._timing import ratios, session

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx
    import onnx_ir as ir

STEPS = 32
ROUNDS = 61
GATES = 4
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


def print_table(hidden: int, batch: int) -> None:
    """Size, time, error, and the ratios to float and to each of the peer's."""
    models = variants(layer(hidden, batch))
    sessions = {name: session(each) for name, each in models.items()}
    x = np.random.default_rng(1).standard_normal((STEPS, batch, hidden)).astype(np.float32)
    wanted = sessions["float"].run(None, {"x": x})[0]
    others = [name for name in models if not name.startswith("onnxq")]
    print(f"\nLSTM {hidden}, batch {batch}: how many times as fast as\n")
    print(head("variant", "MB", "CPU ms", "error", *others))
    for name, row in ratios(sessions, x, ROUNDS).items():
        size = proto_of(models[name]).ByteSize() / 1e6
        error = np.abs(sessions[name].run(None, {"x": x})[0] - wanted).max()
        cells = [f"{size:.2f}", f"{row[''] * 1e3:.3f}", f"{error:.4f}"]
        print(line(name, *cells, *(f"{row[other]:.2f}" for other in others)), flush=True)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--hidden", type=int, nargs="+", default=(256, 1024))
    parser.add_argument("--batch", type=int, nargs="+", default=(1, 8))
    arguments = parser.parse_args()
    sizes: Sequence[int] = arguments.hidden
    for hidden in sizes:
        for batch in arguments.batch:
            print_table(hidden, batch)


if __name__ == "__main__":
    main()
