"""Names of torch.nn's quantized namespaces that have no counterpart here, each with what to use."""

from __future__ import annotations

_APART = "Layers and what follows them stay apart; ONNX Runtime fuses what it has a kernel for."
_ONEDNN = dict.fromkeys(["ConvAdd2d", "ConvAddReLU2d", "LinearLeakyReLU", "LinearTanh"], _APART)


def _remedies(**remedies: str) -> dict[str, str]:
    # keywords: they are names of torch's classes, not of ONNX's operators
    return remedies


def _renamed(**names: str) -> dict[str, str]:
    return {old: f"Its name is {new} since PyTorch 1.3." for old, new in names.items()}


INTRINSIC = _ONEDNN
INTRINSIC_QAT = _renamed(
    ConvBnRelu2d="ConvBnReLU2d", ConvRelu2d="ConvReLU2d", LinearRelu="LinearReLU"
)
INTRINSIC_QUANTIZED = {**_ONEDNN, **_renamed(Conv2dRelu="ConvReLU2d", LinearRelu="LinearReLU")}
INTRINSIC_DYNAMIC = _remedies(
    LinearReLU="quantize_dynamic makes nn.quantized.dynamic.Linear of its layer; the ReLU stays."
)
QAT = _remedies(
    EmbeddingBag="Its weight is quantized after training: by prepare, or by quantize_dynamic."
)
QAT_DYNAMIC = _remedies(
    Linear="Weights alone are trained in blocks, with onnxq.qconfig.groupwise_4bit_qat_qconfig."
)
QUANTIZABLE = _remedies(
    LSTM="nn.LSTM is quantized by quantize_dynamic, or by prepare(model, inputs=example).",
    LSTMCell="nn.LSTMCell is quantized by quantize_dynamic.",
)
QUANTIZED_DYNAMIC = _remedies(Conv="It became Conv1d, Conv2d and Conv3d.")
QUANTIZED = _remedies(
    Dropout="nn.Dropout stays as it is, and lets integers pass in eval mode.",
    FXFloatFunctional="FloatFunctional stands for operators in eager and in graph mode.",
    LSTM="quantize_dynamic makes nn.quantized.dynamic.LSTM, whose matrix products run in integers.",
    MultiheadAttention=(
        "nn.MultiheadAttention becomes nn.quantizable.MultiheadAttention, converted part by part."
    ),
    PReLU="nn.PReLU stays a float module between integers: prepare observes its result.",
)
