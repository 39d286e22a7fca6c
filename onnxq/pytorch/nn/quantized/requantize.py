"""Requantize: the QuantizeLinear and DequantizeLinear around what runs in integers."""

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from onnxq.dtypes import INT32, QDType
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.pytorch.modules.stubs import DeQuantStub, QuantStub
from onnxq.pytorch.nn.quantized.observed import check_observed, output_fake_quantize
from onnxq.pytorch.nn.quantized.stored import Stored, qparams_of, tensors_of
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.pytorch.numerics.integer_types import qdtype_of
from onnxq.pytorch.numerics.rounding_ops import (
    NO_AXIS,
    dequantize_linear,
    leave_integers,
    quantize_linear,
)
from onnxq.qparams import PerTensor, QParams


def _number(value: float | torch.Tensor) -> npt.NDArray[Any]:
    """The number as an array of shape (); one of more elements is for QParams to refuse."""
    return np.asarray(value.cpu() if isinstance(value, torch.Tensor) else value).squeeze()


class Requantize(Stored):
    """y = (clip(saturate(rint(x / scale) + zero_point)) - zero_point) * scale.

    Float32 in, fake-quantized float32 out: `export` writes QuantizeLinear, DequantizeLinear, and a
    Clip on integers between them where fewer integers are used than the type has.

    Args:
        scale: positive number.
        zero_point: integer of 0.
        dtype: of the integers: torch.quint8, torch.uint8, onnxq.dtypes.UINT8, "quint8", ...
        quant_min: smallest integer in use; None: the type's.
        quant_max: largest integer in use; None: the type's.
    Attributes:
        scale: float32, shape ().
        zero_point: shape (), of the type that holds the integers.
        integer_range: int64 (2,), smallest and largest integer in use.
    Raises:
        ShapeError: scale or zero point out of range, or of more than one element.
        QConfigError: dtype is not known.
    """

    float_type: ClassVar[type[nn.Module]] = FakeQuantize

    scale: torch.Tensor
    zero_point: torch.Tensor
    integer_range: torch.Tensor

    def __init__(
        self,
        scale: float | torch.Tensor = 1.0,
        zero_point: int | torch.Tensor = 0,
        dtype: torch.dtype | QDType | str = torch.uint8,
        quant_min: int | None = None,
        quant_max: int | None = None,
    ) -> None:
        super().__init__()
        qdtype = qdtype_of(dtype)
        qparams = QParams(_number(scale).astype(np.float32), _number(zero_point), qdtype)
        self.hold(qparams, quant_min, quant_max)

    def hold(self, qparams: QParams, quant_min: int | None, quant_max: int | None) -> None:
        """Makes the buffers; part of the constructors."""
        dtype = qparams.dtype
        if dtype == INT32:
            raise UnsupportedError(
                "ONNX QuantizeLinear does not give int32, which biases have; use quint8 or qint8."
            )
        low = dtype.qmin if quant_min is None else quant_min
        high = dtype.qmax if quant_max is None else quant_max
        if not dtype.qmin <= low <= high <= dtype.qmax:
            raise ShapeError(f"integers {low}..{high}; {dtype} holds {dtype.qmin}..{dtype.qmax}.")
        scale, zero_point = tensors_of(qparams)
        self.register_buffer("scale", scale)
        self.register_buffer("zero_point", zero_point)
        self.register_buffer("integer_range", torch.tensor([low, high]))
        self.refresh()

    @classmethod
    def of(
        cls, qparams: QParams, quant_min: int | None = None, quant_max: int | None = None
    ) -> Self:
        """The module of per-tensor qparams."""
        if not isinstance(qparams.granularity, PerTensor):
            raise UnsupportedError(
                f"an activation is quantized with {qparams.granularity}; ONNX Runtime's integer "
                "kernels want one scale per activation. Choose a per-tensor observer for it."
            )
        made = cls.__new__(cls)
        Stored.__init__(made)
        made.hold(qparams, quant_min, quant_max)
        return made

    @classmethod
    def from_float(cls, mod: nn.Module) -> Self:
        """The qparams that a FakeQuantize, or the module that holds one as its output's, has found.

        Raises:
            UnsupportedError: the module has no FakeQuantize.
            CalibrationError: it has seen no data.
        """
        fake = output_fake_quantize(mod)
        if fake is None:
            raise UnsupportedError(
                f"{cls.__name__}.from_float: the {type(mod).__name__} has no FakeQuantize for its "
                "output. Call prepare or prepare_qat with a qconfig for it, and run data through "
                "the model."
            )
        check_observed(fake, type(mod).__name__)
        if not fake.fake_quant_enabled:  # only observed: nothing was trained to stay inside
            return cls.of(fake.qparams())
        return cls.of(fake.qparams(), fake.quant_min, fake.quant_max)

    @property
    def qparams(self) -> QParams:
        """Scale, zero point and type."""
        return qparams_of(self.scale, self.zero_point)

    def refresh(self) -> None:
        """Reads the integers in use: numbers, so that tracing has no branch on a tensor."""
        low, high = (int(limit) for limit in self.integer_range.tolist())
        every = torch.iinfo(self.zero_point.dtype)
        self._clip = None if (low, high) == (every.min, every.max) else (low, high)

    @property
    def integers_in_use(self) -> str:
        """Smallest and largest integer."""
        low, high = self.integer_range.tolist()
        return f"{low}..{high}"

    @property
    def every_integer(self) -> bool:
        """Whether all integers of the type are in use."""
        return self._clip is None

    def set_(self, *, scale: float | None = None, zero_point: int | None = None) -> None:
        """Changes scale or zero point in place."""
        old = self.qparams
        new = QParams(
            old.scale if scale is None else np.asarray(scale, np.float32),
            old.zero_point if zero_point is None else np.asarray(zero_point),
            old.dtype,
        )
        for buffer, value in zip((self.scale, self.zero_point), tensors_of(new), strict=True):
            buffer.copy_(value)

    def integers(self, x: torch.Tensor) -> torch.Tensor:
        """saturate(rint(x / scale) + zero_point), within the integers in use."""
        integers = quantize_linear(x, self.scale, self.zero_point, NO_AXIS)
        return integers if self._clip is None else integers.clamp(*self._clip)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 of any shape, to the nearest level."""
        return dequantize_linear(self.integers(x), self.scale, self.zero_point, NO_AXIS)

    def extra_repr(self) -> str:
        """Scale, zero point, dtype; the integers in use where they are not all."""
        dtype = str(self.zero_point.dtype).removeprefix("torch.")
        text = f"scale={float(self.scale):.6g}, zero_point={int(self.zero_point)}, dtype={dtype}"
        return text if self.every_integer else f"{text}, integers={self.integers_in_use}"


class Quantize(Requantize):
    """Where a model's quantized part begins; what QuantStub becomes.

    As `Requantize`: the result is fake-quantized float32, not a tensor of another type.
    """

    float_type = QuantStub

    def __init__(
        self,
        scale: float | torch.Tensor,
        zero_point: int | torch.Tensor,
        dtype: torch.dtype | QDType | str,
        factory_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(scale, zero_point, dtype)
        if factory_kwargs:
            self.to(factory_kwargs.get("device"))


class DeQuantize(nn.Module):
    """Where a model's quantized part ends; what DeQuantStub becomes.

    Its input is fake-quantized already, so that nothing is computed. What follows stays in
    float, also in the exported model.
    """

    float_type = DeQuantStub

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The input as it is."""
        return leave_integers(x)

    @classmethod
    def from_float(cls, mod: nn.Module) -> Self:  # noqa: ARG003  # the documented signature
        """The module; a stub holds no numbers."""
        return cls()
