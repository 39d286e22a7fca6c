"""Integers, scales and zero points as buffers of a module, and QParams of them and back."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from onnxq.dtypes import BYTE_BITS, INT4, UINT4
from onnxq.errors import ShapeError
from onnxq.pytorch.numerics.exact_buffers import ExactBuffers
from onnxq.pytorch.numerics.integer_types import from_torch, qdtype_of, torch_dtype
from onnxq.pytorch.numerics.rounding_ops import dequantize_4bits, dequantize_linear
from onnxq.qparams import PerChannel, PerTensor, QParams
from onnxq.qtensor import QTensor


class Stored(ExactBuffers):
    """A module whose buffers take shape and dtype of what a state_dict gives them.

    A scale per channel or one for the tensor, uint8 or int8 integers: this is known when numbers
    are loaded, not when the module is made. A cast of the model to half precision leaves them
    alone.
    """

    fixed_shapes: tuple[str, ...] = ()
    """Buffers whose shape the constructor's arguments say; only their dtype may change."""

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for name, buffer in list(self._buffers.items()):
            loaded = state_dict.get(prefix + name)
            if not isinstance(loaded, torch.Tensor):
                continue
            if name in self.fixed_shapes and buffer is not None:
                self._buffers[name] = buffer.to(loaded.dtype)
                continue
            device = loaded.device if buffer is None else buffer.device
            self._buffers[name] = torch.empty_like(loaded, device=device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self.refresh()

    def refresh(self) -> None:
        """Called when buffers have been loaded."""


def tensors_of(qparams: QParams) -> tuple[torch.Tensor, torch.Tensor]:
    """(scale float32, zero point in the type of the integers), both of shape () or (channels,)."""
    zero_point = torch.from_numpy(qparams.zero_point.copy()).to(torch_dtype(qparams.dtype))
    return torch.from_numpy(qparams.scale.copy()), zero_point


def qparams_of(scale: torch.Tensor, zero_point: torch.Tensor, axis: int = 0) -> QParams:
    """QParams of a scale of shape () or, along that axis, (channels,)."""
    if scale.ndim > 1:
        raise ShapeError(f"scale has shape {tuple(scale.shape)}; wanted () or (channels,).")
    return QParams(
        scale.detach().cpu().numpy(),
        zero_point.detach().cpu().numpy(),
        qdtype_of(zero_point.dtype),
        PerChannel(axis) if scale.ndim else PerTensor(),
    )


# --- A weight as modules store it: integers, scales and zero points, set from quantized tensors.


class WeightBuffers(Stored):
    """Holds real weights (weight_integers - weight_zero_point) * weight_scale.

    Attributes:
        weight_integers: integers of the weight's shape, which stays.
        weight_scale: float32, () or one per channel along `channel_axis`.
        weight_zero_point: of the type of the integers, shape of weight_scale.
        weight_bits: int64 (): 4, where ONNX stores them in fewer bits than torch has; else None.
    """

    channel_axis: int = 0
    fixed_shapes: tuple[str, ...] = ("weight_integers",)

    weight_integers: torch.Tensor
    weight_scale: torch.Tensor
    weight_zero_point: torch.Tensor
    weight_bits: torch.Tensor | None
    _is_narrow = False  # of weight_bits: a number, so that tracing has no branch

    def register_weight(self, shape: tuple[int, ...], dtype: torch.dtype = torch.int8) -> None:
        """Makes the buffers: weights of 0 at scale 1."""
        self.register_buffer("weight_integers", torch.zeros(shape, dtype=dtype))
        self.register_buffer("weight_scale", torch.ones(()))
        self.register_buffer("weight_zero_point", torch.zeros((), dtype=dtype))
        self.register_buffer("weight_bits", None)

    def refresh(self) -> None:
        """Notes whether the weight has zero points: a number, so that tracing has no branch."""
        self._centred = not bool(self.weight_zero_point.any())

    @property
    def title(self) -> str:
        """The class in messages and reprs, as torch's: QuantizedConv2d."""
        return f"Quantized{type(self).__name__}"

    def __repr__(self) -> str:
        return f"{self.title}({self.extra_repr()})"

    def weight(self) -> QTensor:
        """The weight as a quantized tensor of onnxq: integers and qparams, in NumPy."""
        qparams = qparams_of(self.weight_scale, self.weight_zero_point, self.channel_axis)
        if self._is_narrow:
            dtype = INT4 if qparams.dtype.signed else UINT4
            qparams = dataclasses.replace(qparams, dtype=dtype)
        return QTensor(self.weight_integers.cpu().numpy(), qparams)

    def real_weight(self) -> torch.Tensor:
        """float32 (integers - zero_point) * scale, as DequantizeLinear gives it."""
        dequantize = dequantize_4bits if self._is_narrow else dequantize_linear
        return dequantize(
            self.weight_integers, self.weight_scale, self.weight_zero_point, self.channel_axis
        )

    def fitting(self, w: QTensor | torch.Tensor) -> QTensor:
        """A weight of the right shape, as onnxq's."""
        weight = w if isinstance(w, QTensor) else from_torch(w)
        if weight.shape != tuple(self.weight_integers.shape):
            raise ShapeError(
                f"{self.title}: weight of shape {weight.shape}; "
                f"wanted {tuple(self.weight_integers.shape)}."
            )
        return weight

    def store_weight(self, weight: QTensor) -> None:
        """Makes its integers and qparams the buffers, on their device."""
        device = self.weight_integers.device
        scale, zero_point = (x.to(device) for x in tensors_of(weight.qparams))
        integers = torch.from_numpy(weight.int_repr()).to(device, torch_dtype(weight.dtype))
        self.weight_integers = integers
        self.weight_scale, self.weight_zero_point = scale, zero_point
        bits = weight.dtype.bits
        self.weight_bits = torch.tensor(bits, device=device) if bits < BYTE_BITS else None
        self._is_narrow = self.weight_bits is not None

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        found = state_dict.get(f"{prefix}weight_bits")
        self.weight_bits = None if found is None else torch.empty_like(found)
        self._is_narrow = found is not None
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
