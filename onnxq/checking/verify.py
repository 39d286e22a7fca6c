"""Findings of a float and a quantized model, run side by side on samples.

Integers of the quantized model (see integers.py) are exposed as extra graph outputs (ONNX Runtime's
fusions survive that), dequantized in NumPy, and compared with tensor T of the canonical float
model. One batch is in memory at a time; see comparison.py for the formulas.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

from onnxq.checking.execution import execution
from onnxq.checking.findings import Findings, OutputFinding, TensorFinding, Unmatched
from onnxq.checking.side_by_side import Pair, SideBySide, Sums
from onnxq.checking.sides import Sides, sides_of
from onnxq.graph.io import load
from onnxq.graph.portable import PortableModel
from onnxq.graph.quantized import INPUTS_KEY, read_quantized_io
from onnxq.ort.runtime import CPU
from onnxq.samples import Batches, Samples, input_specs, open_samples
from onnxq.samples.inputs import Batch
from onnxq.samples.shared_out import over_batches, without_state
from onnxq.samples.state import check_feedback
from onnxq.static.calibrate import Progress


def open_for(sides: Sides, samples: Samples) -> Batches:
    """Samples that both models can be run on; errors as of `verify`."""
    check_feedback(sides.source, samples.feedback)
    quantized = read_quantized_io(sides.target, INPUTS_KEY)
    specs = input_specs(sides.source, samples.feedback.values(), quantized)
    return open_samples(samples, specs)


def findings_of(
    sides: Sides,
    batches: Batches,
    feedback: Mapping[str, str],
    progress: Progress | None = None,
    executor: Executor | None = None,
    provider: str = CPU,
) -> Findings:
    """Findings of two models on opened samples; see `verify`."""
    sides = _on_provider(sides, provider)
    scales = {p.name: float(p.qparams.scale) for p in sides.tensors if p.qparams is not None}
    workers = without_state(executor, feedback)
    away = None
    if workers is not None:
        ours = PortableModel.of(sides.model, load(sides.model))
        theirs = PortableModel.of(sides.quantized, sides.target)
        away = partial(_opened, ours, theirs, sides.only, provider)
    count = 0
    pairs = sides.tensors, sides.outputs
    with SideBySide(sides.source, sides.target, *pairs, feedback, provider=provider) as run:
        for found in over_batches(workers, run.open, away or run.open, batches, progress):
            count += 1
            for pair, sums in zip(sides.pairs, found, strict=True):
                pair.sums.add(sums)
    return Findings(
        sides.float_hash,
        sides.quantized_hash,
        count,
        tuple(_tensor_finding(p) for p in sides.tensors if p.sums.compared.elements),
        tuple(_output_finding(p, scales.get(p.name)) for p in sides.outputs),
        (*sides.unmatched, *_incomparable(sides.pairs)),
        execution(sides.target, provider),
    )


def _on_provider(sides: Sides, provider: str) -> Sides:
    """Leaves out inner tensors on other providers than the CPU's, which fuse whole graphs."""
    return sides if provider == CPU else replace(sides, tensors=())


def _opened(
    model: PortableModel, quantized: PortableModel, only: Sequence[str], provider: str
) -> Callable[[Batch], list[Sums]]:
    """Work of a worker: matches and opens both models, as `verify` did."""
    sides = _on_provider(sides_of(model.load(), quantized.load(), only), provider)
    pairs = sides.tensors, sides.outputs
    run = SideBySide(sides.source, sides.target, *pairs, {}, threads=1, provider=provider)
    return run.open()


# --- results


def _incomparable(pairs: Sequence[Pair]) -> list[Unmatched]:
    found = []
    for pair in pairs:
        if pair.sums.differing:
            reason = f"its shapes differed in {pair.sums.differing} batch(es), which are left out"
            found.append(Unmatched(pair.target, reason))
        elif not pair.sums.compared.elements:
            found.append(Unmatched(pair.target, "no sample reached it"))
    return found


def _tensor_finding(pair: Pair) -> TensorFinding:
    assert pair.qparams is not None
    scale = float(pair.qparams.scale)
    return TensorFinding(
        pair.name,
        str(pair.qparams.dtype),
        scale,
        pair.sums.compared.elements,
        pair.sums.compared.sqnr_db,
        pair.sums.compared.cosine,
        pair.sums.compared.max_error / scale,
        pair.sums.compared.saturated_share,
        pair.node,
    )


def _output_finding(pair: Pair, scale: float | None) -> OutputFinding:
    """NaN everywhere where shapes differed: an output that changes its shape keeps no bound."""
    nothing = float("nan")
    sums, differs = pair.sums.compared, pair.sums.differing > 0
    error = nothing if differs else sums.max_error
    return OutputFinding(
        pair.name,
        sums.elements,
        nothing if differs else sums.sqnr_db,
        nothing if differs else sums.cosine,
        error,
        None if scale is None else error / scale,
        pair.sums.top1.share,
        pair.sums.agreement,
        None if differs else pair.sums.worst_part,
        sums.nonfinite_pairs,
    )
