"""Documented names of torch that have no counterpart here: using one says what to use in its place.

Importing such a name works, so that a script that names it and goes another way runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from onnxq.errors import UnsupportedError


@dataclass(frozen=True)
class RefusedName:
    """A name that is refused where it is called, subclassed, or asked for an attribute."""

    name: str
    remedy: str

    def refuse(self) -> NoReturn:
        """Says what to use."""
        raise UnsupportedError(f"{self.name} is not there. {self.remedy}")

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Refuses, as a function or a class of that name would be used."""
        self.refuse()

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)  # copy, pickle and inspect ask for what may be missing
        self.refuse()

    def __mro_entries__(self, bases: tuple[object, ...]) -> NoReturn:
        self.refuse()

    def __instancecheck__(self, instance: object) -> bool:
        return False


def refusing(namespace: str, remedies: Mapping[str, str]) -> Callable[[str], RefusedName]:
    """The `__getattr__` of a module that refuses these names, and has no others."""

    def of(name: str) -> RefusedName:
        if name not in remedies:
            raise AttributeError(f"module '{namespace}' has no attribute '{name}'")
        return RefusedName(f"{namespace}.{name}", remedies[name])

    return of


# --- Names of torch.nn's quantized namespaces, each with what to use.

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
