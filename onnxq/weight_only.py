"""Weight-only quantization, group-wise to 2, 4 or 8 bits, as one call and as its steps."""

import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

from onnxq.checking.check import Check
from onnxq.checking.validation import Batch
from onnxq.checking.weights_job import WeightsJob, carry_out_weights, with_samples_apart
from onnxq.core.stopwatch import Stopwatch
from onnxq.errors import CalibrationError, QConfigError, member
from onnxq.graph.canonical import canonicalize
from onnxq.graph.io import load
from onnxq.ort.types_by_run import types_by_run
from onnxq.qparams.group_spec import GroupSpec, Method, Scheme
from onnxq.qparams.groups import INT8_ACCURACY
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.samples import Samples
from onnxq.samples.samples import without_state
from onnxq.static.prepared import ModelSource
from onnxq.weights.mixed_bits import SizeAim
from onnxq.weights.stacked_matmuls import split_stacked_matmuls
from onnxq.weights.weight_plan import WeightRequest
from onnxq.weights.write_weights import ACCURACIES, WeightFormat


def quantize_weights(
    model: ModelSource,
    samples: str | Path | Samples | Batch | Iterable[Batch] | None = None,
    *,
    bits: int = 4,
    group_size: int = 32,
    scheme: Scheme | str = Scheme.AFFINE,
    method: Method | str | None = None,
    accuracy_level: int = INT8_ACCURACY,
    format: WeightFormat | str = WeightFormat.MATMULNBITS,
    embedding_bits: int | None = None,
    exclude: Sequence[str] = (),
    check: object = Check.CALIBRATION,
    size: SizeAim | float | None = None,
    journal: str | Path | None = None,
    executor: Executor | None = None,
) -> QuantizedModel:
    """The model with group-wise weights of a few bits in its linear layers, and a verdict on it.

    Every MatMul and Gemm with a constant matrix becomes com.microsoft MatMulNBits. Activations stay
    in float; ONNX Runtime rounds them to int8 inside MatMulNBits at accuracy level 4.

    Args:
        model: path, ModelProto or onnx_ir.Model of the float model; it is not changed.
        samples: that gptq looks at: a file or folder, arrays, batches, or onnxq.Samples.
        bits: 2, 4 or 8 per weight.
        group_size: inputs that share a scale: 16, 32, 64 or 128.
        scheme: "affine": each group has a zero point; "symmetric": smaller by an integer per group,
            and less accurate; "real": zero points are float32, which is nearer, larger, and
            computed in float32 at any accuracy_level.
        method: "rtn", "hqq" or "gptq"; None: gptq where samples are given, hqq without.
        accuracy_level: 4: ONNX Runtime rounds activations to int8 in MatMulNBits, which is its
            fastest; 0: it computes in float32.
        format: "matmulnbits", or "qdq": DequantizeLinear ahead of the MatMul, for runtimes
            that have operators of ai.onnx alone (opset 21; 25 for 2 bits). ONNX Runtime makes
            MatMulNBits of some of them, and dequantizes the others in every run.
        embedding_bits: 2, 4 or 8 per number of an embedding, and of an output matrix that is one,
            which share their integers; None: they stay in float. Found without samples.
        exclude: names or globs of linear layers and lookups that stay in float.
        check: what to try the result on, and what it has to keep: samples that it was not made
            from, or an onnxq.Check.
        size: part of the float model's size that the file is to have: each layer gets 2, 4 or 8
            bits, or stays in float, by what that costs on the samples. Or an
            onnxq.SizeAim(bits_average=4.5): bits per weight on the average, scales on top.
        journal: file that integers are written to as they are found. A call that ends anywhere goes
            on from it, and comes to the same model. The model reads it: keep it until it is saved.
            None: integers stay in memory.
        executor: whose workers find the integers; the result is the same. None: this process.
    Raises:
        ModelError: the model is unreadable, quantized already, has no linear layers with constant
            matrices, or NaN or Inf in one; ONNX Runtime does not run it.
        CalibrationError: unusable samples, or none where the method needs some; a journal of
            another model, samples, plan or version.
        QConfigError: bits, group size, method, accuracy level or a name in `exclude` is not known;
            a bound without samples; samples with state; or a size that 2 bits do not reach.
        OutputError: the journal cannot be written, or the disk is full.
        UnsupportedError: 3 bits, which ONNX Runtime has no kernels for.
        VerificationError: an output is below the check's bound; the error has the verdict.
        WorkerError: workers died, more often than it was tried.
    Warns:
        UserWarning: an output is far from the float model's.
    """
    work = Stopwatch()
    given = without_state(Samples.of(samples), "quantize_weights")
    written_as = member(WeightFormat, format, "format")
    request = as_request(
        bits, group_size, scheme, method, exclude, given.source, written_as, embedding_bits
    )
    check_accuracy(accuracy_level)
    canonical = canonicalize(load(model), types_by_run)
    split_stacked_matmuls(canonical.model, request.exclude)
    job = WeightsJob(
        canonical.model,
        request,
        None if given.source is None else given,
        accuracy_level,
        written_as,
        Check.of(check, given),
        work,
        SizeAim.of(size),
    )
    place = None if journal is None else Path(journal)
    made = carry_out_weights(with_samples_apart(job), place=place, executor=executor)
    verdict = made.model.verdict
    if verdict is not None:
        notes = (*verdict.notes, *canonical.notes, *made.plan.notes)
        made.model.attach(replace(verdict, notes=notes))
        if verdict.warning:
            warnings.warn(verdict.warning, UserWarning, stacklevel=2)
    return made.model


def as_request(
    bits: int,
    group_size: int,
    scheme: Scheme | str,
    method: Method | str | None,
    exclude: Sequence[str],
    samples: object,
    format: WeightFormat = WeightFormat.MATMULNBITS,
    embedding_bits: int | None = None,
) -> WeightRequest:
    """Request that these arguments of `quantize_weights` make; raises as it does."""
    chosen = Method.HQQ if samples is None else Method.GPTQ
    if method is not None:
        chosen = member(Method, method, "method")
    if chosen.needs_samples and samples is None:
        raise CalibrationError(
            f"method '{chosen.value}' looks at samples, and none are given. Give some, or ask for "
            "'hqq' or 'rtn', which need none."
        )
    if isinstance(exclude, str):
        raise QConfigError(f"exclude: got {exclude!r}; wanted a list of names of nodes.")
    zero_points = member(Scheme, scheme, "scheme")
    if zero_points is Scheme.REAL and format is WeightFormat.QDQ:
        raise QConfigError(
            "scheme 'real' with format 'qdq': zero points of DequantizeLinear are integers. Ask "
            "for scheme 'affine', or for format 'matmulnbits'."
        )
    spec = GroupSpec(bits, group_size, zero_points, signed=format is WeightFormat.MATMULNBITS)
    return WeightRequest(spec, chosen, tuple(exclude), _of_embeddings(spec, embedding_bits, format))


def _of_embeddings(spec: GroupSpec, bits: int | None, format: WeightFormat) -> GroupSpec | None:
    """Form of embeddings beside that of linear layers; whole zero points, which lookups want."""
    if bits is None:
        return None
    if format is WeightFormat.QDQ:
        raise QConfigError(
            "embedding_bits with format 'qdq': rows of blocks are looked up by an operator of "
            "com.microsoft alone. Leave embeddings in float, or ask for format 'matmulnbits'."
        )
    return GroupSpec(bits, spec.group_size, spec.with_whole_points.scheme)


def check_accuracy(level: int) -> None:
    """Raises QConfigError for an accuracy_level that is not one of MatMulNBits' on CPUs."""
    if type(level) is not int or level not in ACCURACIES:
        raise QConfigError(
            f"accuracy_level: got {level!r}; wanted 0 (float32) or 4 (int8 activations)."
        )
