"""Mixed bits beside the same bits for all products, by GPTQ, on images that were not seen.

    python scripts/bench_mixed_bits.py [--seen 64] [--unseen 256] [--write FILE]

The transformer of models/; sizes are those of the weights of products, scales included.
The lines that this printed are in scripts/bench_mixed_bits.md.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import onnxq
from models.transformer import example_inputs
from onnxq.checking.weights_job import WeightsJob, carry_out_weights, plan_job
from onnxq.checking.with_verdict import Check
from onnxq.graph.canonical import canonicalize
from onnxq.ort import runtime
from onnxq.pytorch import load_module
from onnxq.qparams.group_spec import BITS, GroupSpec, Method
from onnxq.weights.mixed_bits import SizeAim
from onnxq.weights.plan_weights import WeightRequest
from onnxq.weights.write_products import FLOAT_ACCURACY
from scripts._models import ROOT, Labels, evaluation_data
from scripts._tables import head, line, publish, sqnr_db

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.core.arrays import Singles

WEIGHTS = ROOT / "models" / "transformer.safetensors"
MIXES = tuple(SizeAim(bits_average=average) for average in (2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0))
BATCH = 16


def transformer(folder: Path) -> ir.Model:
    """The float model, canonical."""
    net = load_module("models.transformer:transformer", WEIGHTS)
    return canonicalize(onnxq.export(net, example_inputs(), folder / "float.onnx")).model


def logits(model: ir.Model, images: Singles) -> Singles:
    """Outputs of the model."""
    with runtime.open_session(model, threads=1) as session:
        (made,) = session.run({session.inputs[0]: images})
    return made.astype("float32")


def row(
    model: ir.Model, seen: Singles, unseen: Singles, labels: Labels, bits: int, aim: SizeAim | None
) -> str:
    """Line of the table: these bits everywhere, or mixed for an aim."""
    request = WeightRequest(GroupSpec(bits), Method.GPTQ)
    name = str(model.graph.inputs[0].name)
    job = WeightsJob(
        model,
        request,
        {name: seen},
        accuracy=FLOAT_ACCURACY,
        check=Check.NONE,
        batch_size=BATCH,
        aim=aim,
    )
    plan, _ = plan_job(job)
    got = logits(carry_out_weights(job, plan).model, unseen)
    sizes = [(d.spec, d.outputs, d.inputs) for d in plan.quantized.values()]
    average = sum(s.bits * n * k for s, n, k in sizes) / sum(n * k for _, n, k in sizes)
    return line(
        bits if aim is None else f"mixed, {aim.bits_average:g}",
        f"{average:.2f}",
        f"{sum(s.size_bytes(n, k) for s, n, k in sizes) / 1e3:.0f}",
        f"{sqnr_db(logits(model, unseen), got):.1f}",
        f"{100 * (got.argmax(1) == labels).mean():.1f}",
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seen", type=int, default=64)
    parser.add_argument("--unseen", type=int, default=256)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    seen, unseen, labels = evaluation_data(None)
    data = seen[: arguments.seen], unseen[: arguments.unseen], labels[: arguments.unseen]
    lines = [head("bits", "average", "kB", "dB of the logits", "top-1 %")]
    with tempfile.TemporaryDirectory() as folder:
        model = transformer(Path(folder))
        lines += [row(model, *data, bits, None) for bits in BITS]
        lines += [row(model, *data, BITS[1], aim) for aim in MIXES]
    publish(lines, arguments.write)


if __name__ == "__main__":
    main()
