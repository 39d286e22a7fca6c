"""Every integer of whole models, ONNX Runtime beside the reference kernels: how many differ.

    python -m benchmarks cross_check     # a few minutes

ResNet-20, MobileNetV2 and MobileNetV2 with imbalanced channels, quantized for two targets in both
formats, over the 256 embedded calibration images in batches of 32: each integer node of the graph
that ONNX Runtime runs, on the inputs that it had, and the whole model file on the reference. Exit
code 1: an integer differs. The table that this printed is in benchmarks/results/cross_check.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import onnxq
from scripts._models import FloatModel, evaluation_data, float_models
from scripts._tables import head, line

if TYPE_CHECKING:
    from onnxq.checking.cross_findings import CrossFindings
    from onnxq.core.arrays import Singles

TARGETS = ("x86-vnni", "portable")
FORMATS = ("qdq", "qoperator")
BATCH = 32
HEADER = (
    "model", "target", "format", "integer nodes", "elements", "differ",
    "not checked", "outputs that differ", "wall s",
)  # fmt: skip


def row(
    model: FloatModel, target: str, form: str, images: Singles
) -> tuple[CrossFindings, list[object]]:
    """The findings of one quantized model, and its line of the table."""
    quantized = onnxq.quantize(model.path, [{"image": images}], target=target, format=form)
    start = time.perf_counter()
    findings = onnxq.cross_check(quantized, onnxq.Samples({"image": images}, batch_size=BATCH))
    seconds = time.perf_counter() - start
    elements = sum(node.elements for node in findings.nodes)
    nodes, outputs = (
        sum(found.differing for found in kind) for kind in (findings.nodes, findings.outputs)
    )
    numbers = [len(findings.nodes), f"{elements:,}", nodes, len(findings.unchecked)]
    return findings, [model.name, target, form, *numbers, outputs, f"{seconds:.1f}"]


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    images = evaluation_data(None)[0]
    print(head(*HEADER))
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for model in float_models(Path(folder), images):
            for target in TARGETS:
                for form in FORMATS:
                    findings, cells = row(model, target, form, images)
                    print(line(*cells), flush=True)
                    failed |= not findings.exact
    if failed:
        sys.exit("an integer differs, or the reference could not run a model")


if __name__ == "__main__":
    main()
