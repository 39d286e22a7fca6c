"""15 models of transformers and timm: trained for a few steps, deployed, and held against ORT.

    python -m benchmarks qat_models                  # all of them, some 20 minutes
    python -m benchmarks qat_models bert swin

Each model (benchmarks/parts/qat_models: small configurations, random weights) goes through
prepare_qat, two steps of SGD, convert, export and cross_check. Rounded: tensors and weights that
are quantized. Not placed: nodes that onnxq.prepare would quantize and that have no place in the
module, so that they stay float in both. Converted: largest difference between the trained module in
eval mode and the converted one, as a share of the largest output; not 0 where convert raises a
scale so that the integers of a sum agree with ONNX Runtime's. Differing: integers in which ONNX
Runtime and the reference kernels differ. Integer, float: nodes of ONNX Runtime's graph.
Reasons of the nodes that stay float follow under the table, counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import Missed, Row, Table
from benchmarks.parts.qat_models import MODELS, build
from onnxq.errors import OnnxqError
from onnxq.pytorch import convert, disable_observer, export, prepare_qat
from onnxq.pytorch.train.annotations import ANNOTATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxq.checking.cross_findings import CrossFindings
    from onnxq.pytorch.train.annotations import Annotations

RUNS = Table(
    "models",
    {
        **{"model": "", "tensors": "", "weights": "", "not placed": "", "converted": ".1e"},
        **{"differing": "", "integer": "", "float": "", "end to end": ""},
    },
)
REASONS = Table("reasons", {"model": "", "count": "", "why": ""}, keys=3)
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


@benchmark(RUNS, REASONS, needs=("torch", "transformers", "timm"))
@with_names(MODELS)
def measure(names: Sequence[str]) -> Iterator[Row | Missed]:
    """Findings on each model; then the reasons of the nodes that stay float, counted."""
    reasons: dict[str, Counter[str]] = {}
    for name in names or MODELS:
        try:
            one = run(name)
        except OnnxqError as error:
            yield Missed(f"{name}: {error}")
            continue
        found = one.annotations
        yield RUNS.row(
            name,
            sum(len(group.nodes) + len(group.numbers) for group in found.groups),
            len(found.weights),
            len({node for each in found.unannotated for node in each.nodes}),
            one.converted,
            one.findings.differing,
            len(one.findings.nodes),
            len(one.findings.floats),
            one.findings.end_to_end or "yes",
        )
        reasons[name] = Counter(found.floats.values())
    for name, counted in reasons.items():
        for why, count in counted.most_common():
            yield REASONS.row(name, count, why)
