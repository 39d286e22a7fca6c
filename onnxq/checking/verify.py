"""Runs float and quantized model side by side on samples, and reports what quantization changed.

Codes `T_quantized` of the quantized model are exposed as extra graph outputs (ONNX Runtime's
fusions survive that), dequantized in NumPy, and compared with tensor T of the canonical float
model. One batch is in memory at a time; see comparison.py for the formulas.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.checking.codes import find_codes
from onnxq.checking.comparison import Agreement, Comparison
from onnxq.checking.execution import execution
from onnxq.checking.findings import Findings, OutputFinding, TensorFinding, Unmatched
from onnxq.errors import CalibrationError, ModelError, QConfigError, nearest
from onnxq.graph.canonical import canonicalize
from onnxq.graph.coded import INPUTS_KEY, OUTPUTS_KEY, read_coded
from onnxq.graph.expose import expose, observable
from onnxq.graph.io import load, model_hash
from onnxq.graph.passes.pad_channels import padded_channels
from onnxq.graph.pixels import pixels_of, take_pixels
from onnxq.ort import runtime
from onnxq.samples import as_taken, input_specs, open_samples
from onnxq.samples.state import State, as_feedback, check_feedback

if TYPE_CHECKING:
    from onnxq.core.arrays import Array
    from onnxq.graph.coded import Coded
    from onnxq.qparams import QParams
    from onnxq.samples import Samples
    from onnxq.static.prepare import ModelSource

FLOAT_HASH_KEY = "onnxq.float_model_hash"  # rewrite names the float model in the quantized one

Progress = Callable[[int, int | None], None]
"""Called with (batches done, batches in all or None where that is not known)."""

EVERYTHING = ("*",)
CHANNEL_AXIS = 1


@dataclass(slots=True)
class _Pair:
    """A tensor under comparison: its name on either side, and its running sums.

    Attributes:
        qparams: of the codes that the quantized side gives; None where it gives numbers.
        gain: factors per channel that the codes carry, and the float tensor gets for comparing.
        channels: of the float tensor, where channels of zeros were added; None: none were.
        differing: batches in which the shapes differed, so that nothing could be compared.
        coded: numbers that an output's codes stand for; None: it gives numbers.
    """

    name: str
    source: str
    target: str
    qparams: QParams | None
    gain: tuple[float, ...] | None = None
    channels: int | None = None
    sums: Comparison = field(default_factory=Comparison)
    top1: Agreement = field(default_factory=Agreement)
    differing: int = 0
    coded: Coded | None = None

    def update(self, x: Array, y: Array) -> None:
        if self.coded is not None:
            y = self.coded.decode(y)
        if self.channels is not None and y.ndim > CHANNEL_AXIS:
            y = y[:, : self.channels]
        if x.shape != y.shape:
            self.differing += 1
            return
        if self.gain is not None:
            gain = np.array(self.gain[: self.channels], np.float32).reshape(-1, *[1] * (x.ndim - 2))
            x = np.multiply(x, gain, dtype=np.float32)
        self.sums.update(x, y, self.qparams)
        if self.qparams is None and x.ndim == 2 and x.shape[1] > 1:
            self.top1.update(x, y)


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

    Raises:
        ModelError: a model cannot be read, or the two do not belong together.
        CalibrationError: unusable samples.
        QConfigError: a glob of `only` that matches nothing.
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
    run = _SideBySide(source, target, tensors, outputs, state)
    count = run.over(batches, progress)
    return Findings(
        float_hash,
        model_hash(target),
        count,
        tuple(_tensor_finding(p) for p in tensors if p.sums.elements),
        tuple(_output_finding(p, scales.get(p.name)) for p in outputs),
        (*unmatched, *without_numbers, *_incomparable([*tensors, *outputs])),
        execution(target),
    )


# --- matching


def _float_side(model: ModelSource, target: ir.Model) -> ir.Model:
    """The canonical float model, which takes pixels where the quantized one does."""
    source = canonicalize(load(model), runtime.infer_types).model
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


def _match_tensors(source: ir.Model, target: ir.Model) -> tuple[list[_Pair], list[Unmatched]]:
    ours = {*observable(source), *_input_names(source)}
    pairs: list[_Pair] = []
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
            pairs.append(_Pair(name, name, found.name, found.qparams, found.gain, had))
    return pairs, unmatched


def _match_outputs(
    source: ir.Model, coded: Mapping[str, Coded]
) -> tuple[list[_Pair], list[Unmatched]]:
    pairs: list[_Pair] = []
    unmatched: list[Unmatched] = []
    for value in source.graph.outputs:
        name = str(value.name)
        if isinstance(value.type, ir.TensorType) and value.dtype != ir.DataType.STRING:
            pairs.append(_Pair(name, name, name, None, coded=coded.get(name)))
            continue
        reason = f"an output of type {value.type} holds no numbers"
        unmatched.append(Unmatched(name, reason))
    return pairs, unmatched


def _selected(pairs: list[_Pair], only: Sequence[str]) -> list[_Pair]:
    return [p for p in pairs if any(fnmatch.fnmatchcase(p.name, glob) for glob in only)]


def _check_globs(only: Sequence[str], names: list[str]) -> None:
    for glob in only:
        if glob != "*" and not any(fnmatch.fnmatchcase(name, glob) for name in names):
            raise QConfigError(
                f"no compared tensor or output matches '{glob}'.{nearest(glob, names)}"
            )


def _incomparable(pairs: list[_Pair]) -> list[Unmatched]:
    found = []
    for pair in pairs:
        if pair.differing:
            reason = f"its shapes differed in {pair.differing} batch(es), which are left out"
            found.append(Unmatched(pair.target, reason))
        elif not pair.sums.elements:
            found.append(Unmatched(pair.target, "no sample reached it"))
    return found


# --- running


class _SideBySide:
    """Both models with the compared tensors as outputs."""

    def __init__(
        self,
        source: ir.Model,
        target: ir.Model,
        tensors: Sequence[_Pair],
        outputs: Sequence[_Pair],
        feedback: Mapping[str, str],
    ) -> None:
        ours = expose(source, [p.source for p in tensors])
        theirs = expose(target, [p.target for p in tensors])
        self._models = (ours.model, theirs.model)
        self._pairs = [(p, ours.outputs[p.source], theirs.outputs[p.target]) for p in tensors]
        self._pairs += [(p, p.source, p.target) for p in outputs]
        self._feedback = feedback
        self._inputs = input_specs(source, feedback.values())
        self._theirs = input_specs(target)

    def over(self, samples: Samples, progress: Progress | None) -> int:
        """Number of batches run; the pairs hold the sums.

        Raises:
            CalibrationError: no batch, or one that a model does not run on.
        """
        wanted_x = list(dict.fromkeys([*(x for _, x, _ in self._pairs), *self._feedback]))
        wanted_y = list(dict.fromkeys([*(y for _, _, y in self._pairs), *self._feedback]))
        state_x, state_y = (State(self._inputs, self._feedback) for _ in range(2))
        done = 0
        asleep = runtime.Waiting.ASLEEP  # two sessions of spinning threads would take turns
        ours, theirs = (runtime.open_session(model, waiting=asleep) for model in self._models)
        with ours, theirs:
            for batch in samples:
                x = _run(ours, state_x.feeds(batch), wanted_x)
                y = _run(theirs, as_taken(state_y.feeds(batch), self._theirs), wanted_y)
                for pair, name_x, name_y in self._pairs:
                    pair.update(x[name_x], y[name_y])
                state_x.keep(x)
                state_y.keep(y)
                done += 1
                if progress is not None:
                    progress(done, samples.count)
        if not done:
            raise CalibrationError(f"{samples.where} hold no batch; give at least one sample.")
        return done


def _run(
    session: runtime.Session, feeds: Mapping[str, Array], wanted: list[str]
) -> dict[str, Array]:
    return dict(zip(wanted, session.run(feeds, wanted), strict=True))


# --- results


def _tensor_finding(pair: _Pair) -> TensorFinding:
    assert pair.qparams is not None
    scale = float(pair.qparams.scale)
    return TensorFinding(
        pair.name,
        str(pair.qparams.dtype),
        scale,
        pair.sums.elements,
        pair.sums.sqnr_db,
        pair.sums.cosine,
        pair.sums.max_error / scale,
        pair.sums.saturated_share,
    )


def _output_finding(pair: _Pair, scale: float | None) -> OutputFinding:
    """NaN everywhere where shapes differed: an output that changes its shape keeps no bound."""
    nothing = float("nan")
    sums, differs = pair.sums, pair.differing > 0
    error = nothing if differs else sums.max_error
    return OutputFinding(
        pair.name,
        sums.elements,
        nothing if differs else sums.sqnr_db,
        nothing if differs else sums.cosine,
        error,
        None if scale is None else error / scale,
        pair.top1.share,
    )
