"""31 models of transformers and timm: trained for a few steps, deployed, and held against ORT.

    python -m benchmarks qat_models                  # all of them, some 20 minutes
    python -m benchmarks qat_models bert swin

Each model (benchmarks/parts/qat_models: small configurations, random weights) goes through
prepare_qat, two steps of SGD, convert, export and cross_check. Rounded: tensors and weights that
are quantized. Not placed: nodes that onnxq.prepare would quantize and that have no place in the
module, so that they stay float in both. Converted: largest difference between the trained module in
eval mode and the converted one, as a share of the largest output; not 0 where convert raises a
scale so that the integers of a sum agree with ONNX Runtime's on every machine. On AVX2: the same
where no scale is raised, as the target is x86-avx2. Differing: integers in which ONNX
Runtime and the reference kernels differ. Integer, float: nodes of ONNX Runtime's graph.
CPU s: of all that, on one thread.
Reasons of the nodes that stay float follow under the table, counted.
"""

from __future__ import annotations

import time
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
        "on AVX2": ".1e",
        **{"differing": "", "integer": "", "float": "", "end to end": ""},
        "CPU s": ".0f",
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
    trained, inputs = train(name)
    quantized = convert(trained)
    deployed = export(quantized, inputs)
    feeds = {key: x.numpy() for key, x in inputs.items()}
    rows = next(iter(inputs.values())).shape[0]
    findings = onnxq.cross_check(deployed, onnxq.Samples([feeds], batch_size=rows))
    return Run(trained.meta[ANNOTATIONS], difference(trained, quantized, inputs), findings)


def train(name: str, target: str | None = None) -> tuple[Any, dict[str, torch.Tensor]]:
    """A model after some steps, in eval mode, and its inputs.

    Raises:
        OnnxqError: the model is refused.
    """
    model, inputs = build(name)
    trained: Any = prepare_qat(model, inputs=inputs, target=target)
    optimizer = torch.optim.SGD(trained.parameters(), lr=RATE)
    for _ in range(STEPS):
        loss: Any = _results(trained(**inputs))[0].square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return trained.apply(disable_observer).eval(), inputs


def unraised(name: str) -> float:
    """Difference of the trained and the converted module on machines that need no raised scale."""
    trained, inputs = train(name, "x86-avx2")
    return difference(trained, convert(trained), inputs)


def difference(trained: Any, quantized: Any, inputs: dict[str, torch.Tensor]) -> float:
    """Largest difference of the two modules' results, as a share of the largest result."""
    with torch.no_grad():
        pairs = zip(_results(trained(**inputs)), _results(quantized(**inputs)), strict=True)
        return max(float((a - b).abs().max() / a.abs().max().clamp_min(1e-9)) for a, b in pairs)


def _results(outputs: object) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(outputs)  # noqa: SLF001  # torch has no public one
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]


@benchmark(RUNS, REASONS, needs=("torch", "transformers", "timm"))
@with_names(MODELS)
def measure(names: Sequence[str]) -> Iterator[Row | Missed]:
    """Findings on each model; then the reasons of the nodes that stay float, counted."""
    reasons: dict[str, Counter[str]] = {}
    for name in names or MODELS:
        begin = time.process_time()
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
            unraised(name) if one.converted else None,
            one.findings.differing,
            len(one.findings.nodes),
            len(one.findings.floats),
            one.findings.end_to_end or "yes",
            time.process_time() - begin,
        )
        reasons[name] = Counter(found.floats.values())
    for name, counted in reasons.items():
        for why, count in counted.most_common():
            yield REASONS.row(name, count, why)
