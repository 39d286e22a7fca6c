"""Operations of two tensors as modules: what FloatFunctional becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from onnxq.errors import UnsupportedError, kind_of
from onnxq.pytorch.modules.float_functional import Arithmetic, FloatFunctional
from onnxq.pytorch.nn.quantized.observed import check_observed, output_fake_quantize
from onnxq.pytorch.nn.quantized.output_qparams import OutputQParams
from onnxq.pytorch.nn.quantized.requantize import Requantize

if TYPE_CHECKING:
    from torch import nn


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
