"""Layers without weights: each takes fake-quantized float32 and returns it."""

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everywhere

from onnxq.pytorch.nn.quantized.observed import output_fake_quantize
from onnxq.pytorch.nn.quantized.output_qparams import QuantizedOutput
from onnxq.pytorch.nn.quantized.requantize import Requantize
from onnxq.pytorch.nn.quantized.weighted import arguments_in, check_type
from onnxq.pytorch.nn.triplets import REQUIRED, given, signature_of

__all__ = ["ELU", "Hardswish", "LeakyReLU", "MaxPool2d", "ReLU", "ReLU6", "Sigmoid", "Softmax"]


class ReLU(nn.ReLU):
    """max(x, 0): with the qparams of x, because 0 is a level of all."""

    float_type = nn.ReLU
    keeps_qparams = True

    @classmethod
    def from_float(cls, mod: nn.Module) -> Self:
        """The module; a float one holds no numbers. Raises UnsupportedError for another type."""
        check_type(mod, cls.float_type, cls.__name__)
        return cls()


class MaxPool2d(nn.MaxPool2d):
    """The largest of each window: with the qparams of x."""

    float_type = nn.MaxPool2d
    keeps_qparams = True

    @classmethod
    def from_float(cls, mod: nn.Module) -> Self:
        """The module with the windows of a float one. Raises UnsupportedError for another type."""
        check_type(mod, cls.float_type, cls.__name__)
        return cls(**arguments_in(mod, cls))


class ReLU6(nn.ReLU6):
    """min(max(x, 0), 6), cut off at the level nearest 6.

    Attributes:
        output: qparams of the result; None: x's, which the exported model uses (x may then
            be 6 here where it is the level nearest to 6 there).
    """

    float_type = nn.ReLU6

    def __init__(self, inplace: bool = False, output: Requantize | None = None) -> None:
        super().__init__(inplace)
        self.output = output

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 of any shape."""
        y = super().forward(x)
        return y if self.output is None else self.output(y)

    @classmethod
    def from_float(cls, mod: nn.Module) -> Self:
        """The module with the observed qparams. Raises UnsupportedError for another type."""
        check_type(mod, cls.float_type, cls.__name__)
        fake = output_fake_quantize(mod)
        return cls(output=None if fake is None else Requantize.from_float(fake))


def _form(**parameters: object) -> inspect.Signature:
    """The signature with these parameters and defaults, and torch's last two."""
    return signature_of(object, "", **parameters, device=None, dtype=None)


_OUTPUT: dict[str, object] = {"scale": REQUIRED, "zero_point": REQUIRED}


class _Activation(QuantizedOutput):
    """A function that ONNX Runtime has no integer kernel for, and the qparams of its result.

    The arguments are those of torch.nn.quantized; dtype is of the integers, None: uint8.
    """

    function: ClassVar[Callable[..., torch.Tensor]]
    argument: ClassVar[str] = ""
    """Name of what the function is called with beside x."""
    __signature__ = _form(**_OUTPUT)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        named = given(self, args, kwargs)
        self.output = Requantize(named["scale"], named["zero_point"], named["dtype"] or torch.uint8)
        self.output.to(named["device"])
        if self.argument:
            setattr(self, self.argument, named[self.argument])

    @classmethod
    def from_float(cls, mod: nn.Module) -> Self:
        """The module with the arguments of a float one and the observed qparams."""
        check_type(mod, cls.float_type, cls.__name__)
        output = Requantize.from_float(mod)
        qparams = {"scale": float(output.scale), "zero_point": int(output.zero_point)}
        made = cls(**arguments_in(mod, cls) | qparams, dtype=output.zero_point.dtype)
        made.output = output
        return made

    def computed(self, x: torch.Tensor) -> torch.Tensor:
        """The function in float32."""
        return self.function(x, *([getattr(self, self.argument)] if self.argument else []))

    def extra_repr(self) -> str:
        """The argument beside the qparams."""
        return f"{self.argument}={getattr(self, self.argument)}" if self.argument else ""


class Hardswish(_Activation):
    """x * relu6(x + 3) / 6, fake-quantized."""

    float_type = nn.Hardswish
    function = staticmethod(F.hardswish)


class Sigmoid(_Activation):
    """1 / (1 + exp(-x)), fake-quantized."""

    float_type = nn.Sigmoid
    function = staticmethod(torch.sigmoid)


class ELU(_Activation):
    """x above 0, alpha * (exp(x) - 1) below, fake-quantized."""

    float_type = nn.ELU
    function = staticmethod(F.elu)
    argument = "alpha"
    __signature__ = _form(**_OUTPUT, alpha=1.0)


class LeakyReLU(_Activation):
    """x above 0, negative_slope * x below, fake-quantized."""

    float_type = nn.LeakyReLU
    function = staticmethod(F.leaky_relu)
    argument = "negative_slope"
    __signature__ = _form(**_OUTPUT, negative_slope=0.01, inplace=False)


class Softmax(_Activation):
    """exp(x) / sum(exp(x)) along an axis, fake-quantized."""

    float_type = nn.Softmax
    function = staticmethod(F.softmax)
    argument = "dim"
    __signature__ = _form(dim=None, scale=1.0, zero_point=0)
