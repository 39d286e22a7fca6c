"""Runs float and quantized model side by side on samples, and reports what quantization changed.

Codes `T_quantized` of the quantized model are exposed as extra graph outputs (ONNX Runtime's
fusions survive that), dequantized in NumPy, and compared with tensor T of the canonical float
model. One batch is in memory at a time; see comparison.py for the formulas.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.checking.codes import find_codes
from onnxq.checking.execution import execution
from onnxq.checking.findings import Findings, OutputFinding, TensorFinding, Unmatched
from onnxq.checking.side_by_side import Pair, SideBySide
from onnxq.errors import ModelError, QConfigError, nearest
from onnxq.graph.canonical import canonicalize
from onnxq.graph.coded import INPUTS_KEY, OUTPUTS_KEY, read_coded
from onnxq.graph.expose import observable
from onnxq.graph.io import load, model_hash
from onnxq.graph.passes.pad_channels import padded_channels
from onnxq.graph.pixels import pixels_of, take_pixels
from onnxq.graph.portable import PortableModel
from onnxq.ort.types_by_run import types_by_run
from onnxq.samples import input_specs, open_samples
from onnxq.samples.shared_out import over_batches, without_state
from onnxq.samples.state import as_feedback, check_feedback

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from onnxq.checking.side_by_side import Sums
    from onnxq.graph.coded import Coded
    from onnxq.samples.inputs import Batch
    from onnxq.static.prepared import ModelSource

FLOAT_HASH_KEY = "onnxq.float_model_hash"  # rewrite names the float model in the quantized one

Progress = Callable[[int, int | None], None]
"""Called with (batches done, batches in all or None where that is not known)."""

EVERYTHING = ("*",)


def verify(
    model: ModelSource,
    quantized: ModelSource,
    samples: object,
    *,
    batch_size: int | None = None,
    ignore: Collection[str] = (),
    only: Sequence[str] = EVERYTHING,
    feedback: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Findings:
    """Findings of a quantized model beside its float model; bounds are for `Findings.check`.

    Inputs that are pixels or codes in the quantized model may come as such, or as the numbers that
    the float model takes; outputs that are codes are compared as the numbers they stand for.

    Args:
        model: the float model; path, ModelProto or onnx_ir.Model.
        quantized: what `rewrite` made of it, or another model whose codes are named
            `<tensor>_quantized`.
        samples: as `calibrate` takes them.
        batch_size: samples per run; None: the model's static batch, else 1.
        ignore: names of arrays in the samples that are no inputs (labels).
        only: globs; tensors and outputs to compare.
        feedback: {output name: input name} of state; each model gets its own.
        progress: called after each batch.
        executor: whose workers run the models, one thread each; None: this process. The findings
            are the same. Batches with state run here, one after the other.

    Raises:
        ModelError: a model cannot be read, or the two do not belong together.
        CalibrationError: unusable samples.
        QConfigError: a glob of `only` that matches nothing.
        WorkerError: workers died, more often than it was tried.

    Warns:
        UserWarning: an executor is given, and feedback.
    """
    target = load(quantized)
    source = _float_side(model, target)
    float_hash = model_hash(source)
    _check_belong(source, target, float_hash)
    tensors, unmatched = _match_tensors(source, target)
    outputs, without_numbers = _match_outputs(source, read_coded(target, OUTPUTS_KEY))
    scales = {p.name: float(p.qparams.scale) for p in tensors if p.qparams is not None}
    _check_globs(only, [p.name for p in (*tensors, *outputs)])
    tensors, outputs = _selected(tensors, only), _selected(outputs, only)
    state = as_feedback(feedback)
    check_feedback(source, state)
    specs = input_specs(source, state.values(), read_coded(target, INPUTS_KEY))
    batches = open_samples(samples, specs, batch_size, ignore)
    workers = without_state(executor, state)
    away = None
    if workers is not None:
        ours = PortableModel.of(model, load(model))
        away = _Away(ours, PortableModel.of(quantized, target), tuple(only))
    count = 0
    with SideBySide(source, target, tensors, outputs, state) as run:
        for found in over_batches(workers, run.open, away or run.open, batches, progress):
            count += 1
            for pair, sums in zip((*tensors, *outputs), found, strict=True):
                pair.sums.add(sums)
    return Findings(
        float_hash,
        model_hash(target),
        count,
        tuple(_tensor_finding(p) for p in tensors if p.sums.compared.elements),
        tuple(_output_finding(p, scales.get(p.name)) for p in outputs),
        (*unmatched, *without_numbers, *_incomparable([*tensors, *outputs])),
        execution(target),
    )


@dataclass(frozen=True, slots=True)
class _Away:
    """Work of a worker: matches and opens both models, as `verify` did."""

    model: PortableModel
    quantized: PortableModel
    only: Sequence[str]

    def __call__(self) -> Callable[[Batch], list[Sums]]:
        target = self.quantized.load()
        source = _float_side(self.model.load(), target)
        tensors, _ = _match_tensors(source, target)
        outputs, _ = _match_outputs(source, read_coded(target, OUTPUTS_KEY))
        tensors, outputs = _selected(tensors, self.only), _selected(outputs, self.only)
        return SideBySide(source, target, tensors, outputs, {}, threads=1).open()


# --- matching


def _float_side(model: ModelSource, target: ir.Model) -> ir.Model:
    """The canonical float model, which takes pixels where the quantized one does."""
    source = canonicalize(load(model), types_by_run).model
    floats = {v.name for v in source.graph.inputs} - read_coded(source, INPUTS_KEY).keys()
    take_pixels(source, {n: coded for n, coded in pixels_of(target).items() if n in floats})
    return source


def _check_belong(source: ir.Model, target: ir.Model, float_hash: str) -> None:
    made_from = target.metadata_props.get(FLOAT_HASH_KEY)
    if made_from is not None and made_from != float_hash:
        raise ModelError(
            f"the quantized model was made from float model {made_from[:12]}; the one given is "
            f"{float_hash[:12]}. Give the float model that it was made from."
        )
    names = (_input_names(source), _input_names(target))
    _check_names("inputs", *names)
    _check_names("outputs", *({str(v.name) for v in m.graph.outputs} for m in (source, target)))


def _input_names(model: ir.Model) -> set[str]:
    return {spec.name for spec in input_specs(model)}


def _check_names(kind: str, ours: set[str], theirs: set[str]) -> None:
    if ours == theirs:
        return
    raise ModelError(
        f"the models do not belong together: {kind} of the float model are "
        f"{', '.join(sorted(ours))}; of the quantized one {', '.join(sorted(theirs))}. "
        "Give the model that it was made from."
    )


def _match_tensors(source: ir.Model, target: ir.Model) -> tuple[list[Pair], list[Unmatched]]:
    ours = {*observable(source), *_input_names(source)}
    pairs: list[Pair] = []
    unmatched: list[Unmatched] = []
    outputs = read_coded(target, OUTPUTS_KEY)  # compared as outputs
    channels = padded_channels(target)
    for found in find_codes(target):
        if found.name in outputs:
            continue
        if found.qparams is None:
            unmatched.append(Unmatched(found.name, found.problem))
        elif found.tensor not in ours:
            reason = f"the float model has no tensor '{found.tensor}'"
            unmatched.append(Unmatched(found.name, reason))
        else:
            name, had = found.tensor, channels.get(found.tensor)
            pairs.append(Pair(name, name, found.name, found.qparams, found.gain, had))
    return pairs, unmatched


def _match_outputs(
    source: ir.Model, coded: Mapping[str, Coded]
) -> tuple[list[Pair], list[Unmatched]]:
    pairs: list[Pair] = []
    unmatched: list[Unmatched] = []
    for value in source.graph.outputs:
        name = str(value.name)
        if isinstance(value.type, ir.TensorType) and value.dtype != ir.DataType.STRING:
            pairs.append(Pair(name, name, name, None, coded=coded.get(name)))
            continue
        reason = f"an output of type {value.type} holds no numbers"
        unmatched.append(Unmatched(name, reason))
    return pairs, unmatched


def _selected(pairs: list[Pair], only: Sequence[str]) -> list[Pair]:
    return [p for p in pairs if any(fnmatch.fnmatchcase(p.name, glob) for glob in only)]


def _check_globs(only: Sequence[str], names: list[str]) -> None:
    for glob in only:
        if glob != "*" and not any(fnmatch.fnmatchcase(name, glob) for name in names):
            raise QConfigError(
                f"no compared tensor or output matches '{glob}'.{nearest(glob, names)}"
            )


def _incomparable(pairs: list[Pair]) -> list[Unmatched]:
    found = []
    for pair in pairs:
        if pair.sums.differing:
            reason = f"its shapes differed in {pair.sums.differing} batch(es), which are left out"
            found.append(Unmatched(pair.target, reason))
        elif not pair.sums.compared.elements:
            found.append(Unmatched(pair.target, "no sample reached it"))
    return found


# --- results


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
    )
