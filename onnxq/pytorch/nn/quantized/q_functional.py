"""Operations of two tensors as modules: what FloatFunctional becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch import nn

from onnxq.errors import UnsupportedError, kind_of
from onnxq.pytorch.modules.float_functional import FloatFunctional
from onnxq.pytorch.nn.quantized.observed import check_observed, output_fake_quantize
from onnxq.pytorch.nn.quantized.output_qparams import OutputQParams
from onnxq.pytorch.nn.quantized.requantize import Requantize

if TYPE_CHECKING:
    from collections.abc import Sequence


class QFunctional(OutputQParams, nn.Module):
    """y = requantize(f(a, b)): fake-quantized float32 in and out.

    In the exported model QLinearAdd, QLinearMul, QLinearConcat, QLinearMatMul. One instance serves
    one place of a model: it has one scale and zero point.

    Attributes:
        activation_post_process: qparams of the result.
    """

    float_type = FloatFunctional

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = Requantize()

    def output_requantize(self) -> Requantize:
        """The qparams of the result."""
        return self.activation_post_process

    def _requantized(self, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.activation_post_process(y)
        return result

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: ARG002  # as torch's
        """Is not meant to be called.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError("QFunctional has no forward: call its add, mul, cat, ...")

    def add(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The sum x + y."""
        return self._requantized(torch.add(x, y))

    def add_scalar(self, x: torch.Tensor, y: float) -> torch.Tensor:
        """The sum x + y, y a number."""
        return self._requantized(torch.add(x, y))

    def mul(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The product x * y, element by element."""
        return self._requantized(torch.mul(x, y))

    def mul_scalar(self, x: torch.Tensor, y: float) -> torch.Tensor:
        """The product x * y, y a number."""
        return self._requantized(torch.mul(x, y))

    def cat(self, x: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
        """The tensors one after another along an axis."""
        return self._requantized(torch.cat(list(x), dim=dim))

    def add_relu(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """max(x + y, 0)."""
        return self._requantized(torch.relu(torch.add(x, y)))

    def matmul(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Matrix product of two activations."""
        return self._requantized(torch.matmul(x, y))

    @classmethod
    def from_float(cls, mod: nn.Module) -> Self:
        """The module with the qparams that a FloatFunctional has found.

        Raises:
            UnsupportedError: another type of module.
            CalibrationError: no data was seen.
        """
        fake = output_fake_quantize(mod)
        if not hasattr(mod, "add_relu") or fake is None:
            raise UnsupportedError(
                f"{cls.__name__}.from_float: got {kind_of(mod)}; wanted a FloatFunctional "
                "that prepare or prepare_qat has given a FakeQuantize."
            )
        check_observed(fake, type(mod).__name__)
        made = cls()
        made.activation_post_process = Requantize.from_float(fake)
        return made
