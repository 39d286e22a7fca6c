"""The documented `scale` and `zero_point` of modules whose result is at quantized levels."""

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import nn

from onnxq.errors import QConfigError, UnsupportedError, kind_of
from onnxq.pytorch.modules.float_functional import Arithmetic, FloatFunctional
from onnxq.pytorch.nn.mapped_module import MappedModule
from onnxq.pytorch.nn.quantized.requantize import Requantize
from onnxq.pytorch.nn.quantized.stored import WeightBuffers


class OutputQParams:
    """Reads and sets scale and zero point of `output`."""

    output: Requantize | None

    def output_requantize(self) -> Requantize:
        """The qparams of the result."""
        if self.output is None:
            raise QConfigError(
                f"Quantized{type(self).__name__}: its result stays in float32; there is no output "
                "scale."
            )
        return self.output

    @property
    def scale(self) -> float:
        """Scale of the result."""
        return float(self.output_requantize().scale)

    @scale.setter
    def scale(self, value: float) -> None:
        self.output_requantize().set_(scale=float(value))

    @property
    def zero_point(self) -> int:
        """Zero point of the result."""
        return int(self.output_requantize().zero_point)

    @zero_point.setter
    def zero_point(self, value: int) -> None:
        self.output_requantize().set_(zero_point=int(value))


class QuantizedOutput(OutputQParams, MappedModule):
    """y = output(computed(x)): a float function, and the qparams of its result."""

    output: Requantize

    def computed(self, x: torch.Tensor) -> torch.Tensor:
        """The function in float32; the subclass says it."""
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The function's result at quantized levels, float32."""
        y: torch.Tensor = self.output(self.computed(x))
        return y

    def __repr__(self) -> str:
        shown = filter(None, (self.extra_repr(), self.output.extra_repr()))
        return f"Quantized{type(self).__name__}({', '.join(shown)})"


# --- OptionalOutput: modules whose result is at quantized levels, or stays in float32.


class OptionalOutput(WeightBuffers):
    """A module with a weight in integers, and qparams for its result or none."""

    output: Requantize | None

    def requantized(self, y: torch.Tensor) -> torch.Tensor:
        """Fake-quantizes the result; returns it as it is where it stays in float."""
        return y if self.output is None else self.output(y)

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Has output qparams exactly where the state_dict has them."""
        if not any(key.startswith(f"{prefix}output.") for key in state_dict):
            self.output = None
        elif self.output is None:
            self.output = Requantize().to(self.weight_integers.device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


# --- Operations of two tensors as modules: what FloatFunctional becomes.


class QFunctional(OutputQParams, Arithmetic):
    """y = requantize(f(a, b)): fake-quantized float32 in and out.

    In the exported model QLinearAdd, QLinearMul, QLinearConcat, QLinearMatMul. One instance serves
    one place of a model: it has one scale and zero point.

    Attributes:
        activation_post_process: qparams of the result.
    """

    float_type = FloatFunctional
    activation_post_process: Requantize

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = Requantize()

    def output_requantize(self) -> Requantize:
        """The qparams of the result."""
        return self.activation_post_process

    @classmethod
    def from_float(cls, mod: nn.Module) -> Self:
        """The module with the qparams that a FloatFunctional has found.

        Raises:
            UnsupportedError: another type of module.
            CalibrationError: no data was seen.
        """
        if not hasattr(mod, "add_relu"):
            raise UnsupportedError(
                f"{cls.__name__}.from_float: got {kind_of(mod)}; wanted a FloatFunctional "
                "that prepare or prepare_qat has given a FakeQuantize."
            )
        made = cls()
        made.activation_post_process = Requantize.from_float(mod)
        return made
