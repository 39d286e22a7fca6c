"""A file with Q and DQ from another tool as one call: in integers, with every scale that it has.

file --read_imported--> graph --in_integers--> QuantizedModel --beside_given--> Verdict
"""

import glob
import warnings
from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from onnxq import targets
from onnxq.checking.beside_given import Inputs, Rounds, beside_given
from onnxq.checking.check import Check
from onnxq.core.collector import without_collector
from onnxq.dtypes import INT8, UINT8
from onnxq.errors import listed
from onnxq.graph.given_file import given_size
from onnxq.graph.io import load
from onnxq.graph.walk import node_name
from onnxq.observers import FixedQParamsObserver, ObserverSpec
from onnxq.pipeline import quantize
from onnxq.qconfig import default_qconfig_mapping
from onnxq.qdq.imported import (
    Clipping,
    check_imported,
    float_beside_integers,
    in_integers,
    read_imported,
    unrounded,
)
from onnxq.qdq.qoperator import check_format
from onnxq.qdq.read import is_between_quantizers
from onnxq.qdq.tidy import as_format
from onnxq.qdq.wide_weights import widen_weights
from onnxq.qparams import SHIFT, QParams
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.quantized.verdict import InputSource, Verdict
from onnxq.samples import Samples
from onnxq.static.prepare import prepare
from onnxq.static.prepared import ModelSource
from onnxq.targets import Target

EXACT_HERE = (
    "made for this machine; on x86 without VNNI sums of its int8 weights may saturate, as those of "
    "the given file: --target portable"
)


def import_qdq(
    model: ModelSource,
    check: object = None,
    *,
    quantize_rest: object = None,
    target: str | Target | None = None,
    format: str = "qdq",
) -> QuantizedModel:
    """Brings a file with Q and DQ from another tool to what ONNX Runtime runs in integers.

    Weights become integers, biases int32, int8 activations uint8; Q and DQ move to where ONNX
    Runtime fuses them. Every scale stays. It was run beside the given file, and has a verdict.

    Args:
        model: path, ModelProto or onnx_ir.Model of the file; it is not changed.
        check: samples to run both on; None: made-up inputs.
        quantize_rest: samples that ranges come from of what the tool left in float; None: it stays
            float.
        target: machine that the result is for; None: "auto", this one. Where its pairs of products
            saturate, large weights become uint8, of the same numbers.
        format: "qdq" or "qoperator", as `rewrite` has them.
    Raises:
        ModelError: the file has no Q and DQ, or onnxq wrote it; ONNX Runtime does not run it.
        CalibrationError: unusable samples.
        QConfigError: the target or the format is not known.
        VerificationError: the result computes something else than the file.
    Warns:
        UserWarning: an output is far from the given file's.
    """
    check_format(format)
    chosen = targets.resolve(target or "auto")  # others may be slower than the given file here
    source = load(model)
    check_imported(source)
    with without_collector():
        given = read_imported(source)
    if quantize_rest is not None:
        result, note = _with_rest(given, quantize_rest, chosen, format)
        samples = quantize_rest if check is None else check
        inputs = Inputs.of(samples, given, InputSource.UNSEEN)
        verdict = beside_given(given, result, inputs, given_size(source), Rounds.MORE)
        return _said(result, verdict, [note])
    with without_collector():
        made, wide = in_integers(given, chosen)
        result = QuantizedModel.of(as_format(made, format))
    result.metadata_props["onnxq.target"] = chosen.name
    inputs = Inputs.of(check, given, InputSource.UNSEEN)
    verdict = beside_given(given, result, inputs, given_size(source), Rounds.AS_GIVEN)
    notes = _notes(result, wide, chosen)
    if target is None and widen_weights(made.clone(), targets.find("portable")):
        notes.append(EXACT_HERE)
    return _said(result, verdict, notes)


def _said(result: QuantizedModel, verdict: Verdict, notes: Sequence[str]) -> QuantizedModel:
    """The model with its verdict, of which it is warned."""
    result.attach(replace(verdict, notes=(*verdict.notes, *notes)))
    if verdict.warning:
        warnings.warn(verdict.warning, UserWarning, stacklevel=3)
    return result


def _with_rest(
    given: ir.Model, rest: object, target: Target, format: str
) -> tuple[QuantizedModel, str]:
    """The file quantized as a whole, its weights as they are; a note on the scales that it keeps.

    Tensors that the nodes between them only copy get one scale, the widest of theirs.
    """
    free, known = unrounded(given, Clipping.ZERO)
    exact = replace(target, weight_qmax_saturating=target.weight_qmax)  # see widen_weights
    fixed = {}
    mapping, decided = default_qconfig_mapping(), prepare(free, target=exact).decisions
    integers = {  # nodes that are to stay so
        glob.escape(node_name(node)): mapping.global_qconfig
        for node in given.graph.all_nodes()
        if node_name(node) in decided and is_between_quantizers(node)
    }
    mapping = replace(mapping, nodes=integers)
    for group in prepare(free, qconfig=mapping, target=exact).in_integers:
        scales = {float(known[name].scale): name for name in group.members if name in known}
        if scales:
            widest = max(scales)
            fixed[scales[widest]] = _fixed(known[scales[widest]])
    mapping = replace(mapping, tensors=fixed)
    made = quantize(free, Samples.of(rest), qconfig=mapping, target=exact, check=Check.NONE)
    widen_weights(made, target)
    tensors = [v.const_value for v in made.graph.initializers.values()]
    floats = [t for t in tensors if t is not None and t.dtype == ir.DataType.FLOAT]
    scales_in = {float(t.numpy()) for t in floats if not len(t.shape)}
    kept = sum(float(qparams.scale) in scales_in for qparams in known.values())
    note = f"{kept} of the {len(known)} scales of activations in the file are in the result"
    return QuantizedModel.of(as_format(made, format)), note


def _fixed(qparams: QParams) -> ObserverSpec:
    """Observer of an activation with these qparams, as uint8 where they are int8."""
    shift = SHIFT if qparams.dtype == INT8 else 0
    dtype = UINT8 if qparams.dtype == INT8 else qparams.dtype
    return FixedQParamsObserver.with_args(
        scale=float(qparams.scale), zero_point=int(qparams.zero_point) + shift, dtype=dtype
    )


def _notes(result: ir.Model, wide: int, target: Target) -> list[str]:
    notes = []
    if wide:
        notes.append(
            f"{wide} weights are uint8, so that every CPU of target '{target.name}' adds their "
            "products exactly; with VNNI int8 is faster: --target x86-vnni"
        )
    for why, left in float_beside_integers(result).items():
        notes.append(f"{len(left)} nodes compute in float, since {why.value}: {listed(left)}")
    return notes
