"""15 models of transformers and timm: trained for a few steps, deployed, and held against ORT.

    python -m benchmarks qat_models                  # all of them, some 20 minutes
    python -m benchmarks qat_models bert swin

Each model (benchmarks/parts/qat_models: small configurations, random weights) goes through
prepare_qat, two steps of SGD, convert, export and cross_check. Rounded: tensors and weights that
are quantized. Not placed: nodes that onnxq.prepare would quantize and that have no place in the
module, so that they stay float in both. Converted: largest difference between the trained module in
eval mode and the converted one, as a share of the largest output; not 0 where convert raises a
scale so that the codes of a sum agree with ONNX Runtime's. Differing: integers in which ONNX
Runtime and the reference kernels differ. Integer, float: nodes of ONNX Runtime's graph.
Reasons of the nodes that stay float follow under the table, counted.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/


import onnxq
from benchmarks.parts.qat_models import MODELS, build
from onnxq.errors import OnnxqError
from onnxq.pytorch import convert, disable_observer, export, prepare_qat
from onnxq.pytorch.train.annotations import ANNOTATIONS
from scripts._tables import escaped, head, line, versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.checking.cross_findings import CrossFindings
    from onnxq.pytorch.train.annotations import Annotations

STEPS, RATE = 2, 1e-3


@dataclass(frozen=True, slots=True)
class Run:
    """Findings on a model.

    Attributes:
        annotations: of its quantizers.
        converted: difference between the trained and the converted module, relative.
        findings: of cross_check.
    """

    annotations: Annotations
    converted: float
    findings: CrossFindings


def run(name: str) -> Run:
    """Trains, converts, exports and checks a model.

    Raises:
        OnnxqError: one of these is refused.
    """
    model, inputs = build(name)
    trained: Any = prepare_qat(model, inputs=inputs)
    optimizer = torch.optim.SGD(trained.parameters(), lr=RATE)
    for _ in range(STEPS):
        loss: Any = _results(trained(**inputs))[0].square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    trained.apply(disable_observer).eval()
    quantized = convert(trained)
    with torch.no_grad():
        pairs = zip(_results(trained(**inputs)), _results(quantized(**inputs)), strict=True)
        worst = max(float((a - b).abs().max() / a.abs().max().clamp_min(1e-9)) for a, b in pairs)
    deployed = export(quantized, inputs)
    feeds = {key: x.numpy() for key, x in inputs.items()}
    rows = next(iter(inputs.values())).shape[0]
    findings = onnxq.cross_check(deployed, onnxq.Samples([feeds], batch_size=rows))
    return Run(trained.meta[ANNOTATIONS], worst, findings)


def _results(outputs: object) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(outputs)  # noqa: SLF001  # torch has no public one
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]


def _row(name: str, one: Run) -> str:
    found = one.annotations
    left = {node for each in found.unannotated for node in each.nodes}
    return line(
        name,
        sum(len(group.nodes) + len(group.numbers) for group in found.groups),
        len(found.weights),
        len(left),
        f"{one.converted:.1e}",
        one.findings.differing,
        len(one.findings.nodes),
        len(one.findings.floats),
        escaped(one.findings.end_to_end) or "yes",
    )


def page(names: list[str]) -> Iterator[str]:
    """Lines of the table and of the reasons."""
    yield (
        f"# Models trained without stubs\n\n`python -m benchmarks qat_models`; "
        f"{versions('torch', 'transformers', 'timm', 'onnxruntime')}.\n"
    )
    yield head(
        "model", "tensors", "weights", "not placed", "converted", "differing", "integer", "float",
        "end to end",
    )  # fmt: skip
    reasons: dict[str, Counter[str]] = {}
    for name in names:
        try:
            one = run(name)
        except OnnxqError as error:
            yield line(name, *["-"] * 7, escaped(str(error))[:200])
            continue
        yield _row(name, one)
        reasons[name] = Counter(one.annotations.floats.values())
    yield "\n## What stays float, and why\n"
    for name, counted in reasons.items():
        yield f"- **{name}**"
        yield from (f"  - {count}: {escaped(why)}" for why, count in counted.most_common())


def main() -> None:
    """Prints the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", choices=[*MODELS, []], metavar="MODEL")
    logging.disable(logging.ERROR)  # torch's exporter warns of torchvision
    warnings.simplefilter("ignore")
    for text in page(parser.parse_args().names or list(MODELS)):
        print(text, flush=True)


if __name__ == "__main__":
    main()
