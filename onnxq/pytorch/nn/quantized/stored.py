"""Integers, scales and zero points as buffers of a module, and QParams of them and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from onnxq.errors import ShapeError
from onnxq.pytorch.numerics.exact_buffers import ExactBuffers
from onnxq.pytorch.numerics.integer_types import qdtype_of, torch_dtype
from onnxq.qparams import PerChannel, PerTensor, QParams

if TYPE_CHECKING:
    from collections.abc import Mapping


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
