"""Checks whose outcome is not `right`: which one it is, and why.

A check that is listed here and is right, or refused in other words, fails the test as one that is
not listed and deviates.
"""

from __future__ import annotations

from dataclasses import dataclass

from scripts._documents.check import Kind


@dataclass(frozen=True, slots=True)
class Expected:
    """A refusal or a deviation that is known.

    Attributes:
        kind: which of both.
        reason: why onnxq does so.
        said: words of the outcome's text: of the error what to use in place, or the difference.
    """

    kind: Kind
    reason: str
    said: str


def _refused(reason: str, said: str, *checks: str) -> dict[str, Expected]:
    return dict.fromkeys(checks, Expected(Kind.REFUSED, reason, said))


def _deviates(reason: str, said: str, *checks: str) -> dict[str, Expected]:
    return dict.fromkeys(checks, Expected(Kind.DEVIATES, reason, said))


_HISTOGRAM = (
    "onnxq's histogram has 4096 bins for each sign, which any order of batches fills alike; the "
    "qparams of least squared error are searched on it. A check of its own holds that this error "
    "is no larger than torch's."
)

EXPECTED: dict[str, Expected] = {
    # --- refused by name
    **_refused(
        "PyTorch released the class under another spelling, which has a check of its own.",
        "Its name is",
        "1.3 / torch.nn.intrinsic.quantized / Conv2dRelu",
        "1.3 / torch.nn.intrinsic.quantized / LinearRelu",
        "1.3 / torch.nn.intrinsic.qat / ConvBnRelu2d",
        "1.3 / torch.nn.intrinsic.qat / ConvRelu2d",
        "1.3 / torch.nn.intrinsic.qat / LinearRelu",
    ),
    **_refused(
        "The document plans it; PyTorch released a class for each number of axes.",
        "It became Conv1d, Conv2d and Conv3d",
        "1.3 / torch.nn.quantized.dynamic / Conv",
    ),
    **_refused(
        "A script does not say the shapes of its inputs, and the ONNX model has to.",
        "give it inputs=",
        "1.8 / dynamic / quantize_dynamic_jit, result",
    ),
    # --- deviates
    **_deviates(
        "torch's default, nn.Identity, is no observer: quantize_dynamic fails with it. Here it is "
        "int8, as in default_dynamic_qconfig.",
        "activation=PlaceholderObserver",
        "1.6 / torch.quantization / QConfigDynamic(...)",
    ),
    **_deviates(_HISTOGRAM, "bins=None", "1.6 / torch.quantization / HistogramObserver(...)"),
    **_deviates(_HISTOGRAM, "bins: 4096", "1.6 / observers / HistogramObserver.bins"),
    **_deviates(
        _HISTOGRAM,
        "apart, of values up to",
        "1.8 / observers / HistogramObserver, quint8",
        "1.8 / observers / HistogramObserver, qint8",
        "1.6 / qconfig / get_default_qconfig('qnnpack').activation",
    ),
    **_deviates(
        "The name is that of quantize_per_tensor, its successor: `input`. By position both agree.",
        "no parameter x",
        "1.3 / torch / quantize_linear(...)",
    ),
    **_deviates(
        "The means of two and four integers lie on ties. ONNX's Resize interpolates real values, "
        "whose last bit decides there; torch interpolates integers.",
        "integers differ, by 1 at most",
        "1.8 / nn.quantized.functional / interpolate, bilinear, ties",
    ),
    **_deviates(
        "The largest weight of a channel is 127.5 times the scale, a tie where it is negative: "
        "ONNX divides by the scale, torch multiplies by 1 / scale.",
        "integers differ, by 1 at most",
        "1.3 / nn.quantized modules / Linear.from_float by convert",
    ),
    **_deviates(
        "The same tie: the weight is clamped on one side, and has no gradient there.",
        "apart, of values up to",
        "1.6 / QAT / first step, gradient of each channel's largest weight",
    ),
    **_deviates(
        "torch gives the result the scale of its input, and ignores that of the module. Here the "
        "module's scale is used, as for the other operations and in the ONNX model.",
        "integers differ, by 1 at most",
        "1.6 / nn.quantized modules / QFunctional.add_scalar",
        "1.6 / nn.quantized modules / QFunctional.mul_scalar",
    ),
    **_deviates(
        "Modules take and give real values at quantized levels: so they train, trace and export. "
        "Call dequantize() on what goes in.",
        "mat1 and mat2 must have the same dtype",
        "1.3 / nn.quantized modules / quantized tensors in and out",
    ),
    **_deviates(
        "The document calls it experimental; it was released as torch.nn.intrinsic.",
        "no module _intrinsic",
        "1.3 / nn.intrinsic modules / the namespace _intrinsic",
    ),
    **_deviates(
        "Biases are int32 at x_scale * w_scale, as ONNX Runtime's kernels and the document of 1.3 "
        "have them; torch adds them in float. Sums next to a tie fall to its other side.",
        "integers differ, by 1 at most",
        "1.6 / static / integers, fbgemm, with biases",
    ),
    **_deviates(
        "num_bits and name are always said, as NVIDIA's own code does it; the round trip is equal.",
        "dict(): {'num_bits': 8, 'name': None}",
        "tensor_quant / descriptor / dict() without defaults",
    ),
}
