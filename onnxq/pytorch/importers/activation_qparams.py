"""Qparams of activations, which torch.ao keeps as numbers, as constants of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from onnxq.errors import ModelError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

STORED = {
    torch.quint8: torch.uint8,
    torch.qint8: torch.int8,
    torch.uint8: torch.uint8,
    torch.int8: torch.int8,
}
"""Types of activations -> type of their integers."""


@dataclass(frozen=True, eq=False)
class TracedQParams:
    """Real values that integers stand for: (q - zero_point) * scale.

    Attributes:
        scale: float32 as a Python number.
        zero_point: an integer.
        dtype: of the integers, torch.uint8 or torch.int8.
        tensors: scale and zero point, rank 0.
    """

    scale: float
    zero_point: int
    dtype: torch.dtype
    tensors: tuple[Tensor, Tensor]


def stored_type(dtype: torch.dtype, where: str) -> torch.dtype:
    """The type of the integers of an activation."""
    if dtype not in STORED:
        raise UnsupportedError(
            f"{where}: activations of {str(dtype).removeprefix('torch.')}; ONNX Runtime has "
            "integer kernels for quint8 and qint8. Prepare the model with a qconfig of these types."
        )
    return STORED[dtype]


class Constants(nn.Module):
    """Buffers in the order in which one forward asks for them; the later ones get the same.

    The first forward runs on real tensors and makes them; torch.export then sees buffers, where the
    numbers of torch.ao would be frozen into its trace without names.
    """

    def __init__(self) -> None:
        super().__init__()
        self._order: list[tuple[str, TracedQParams | None]] = []
        self._next = 0
        self.recording = True

    def restart(self) -> None:
        """Before each forward: the next constant is the first again."""
        self._next = 0

    def freeze(self) -> None:
        """After the first forward: no more are made."""
        self.recording = False

    def take(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """The next constant, made by the first forward."""
        if self.recording:
            free = f"{name}_{len(self._order)}"
            self.register_buffer(free, make())
            self._order.append((free, None))
        key, _ = self._following()
        found: Tensor = getattr(self, key)
        return found

    def qparams(
        self, name: str, make: Callable[[], tuple[float, int, torch.dtype]]
    ) -> TracedQParams:
        """The next qparams, made by the first forward from (scale, zero point, dtype)."""
        if self.recording:
            scale, zero_point, dtype = make()
            free = f"{name}_{len(self._order)}"
            self.register_buffer(f"{free}_scale", torch.tensor(scale, dtype=torch.float32))
            self.register_buffer(f"{free}_zero_point", torch.tensor(zero_point, dtype=dtype))
            exact = float(getattr(self, f"{free}_scale"))
            placeholder = torch.empty(0)
            self._order.append(
                (free, TracedQParams(exact, zero_point, dtype, (placeholder, placeholder)))
            )
        key, made = self._following()
        if made is None:
            raise AssertionError("a forward asks for the same constants in the same order")
        tensors = (getattr(self, f"{key}_scale"), getattr(self, f"{key}_zero_point"))
        return TracedQParams(made.scale, made.zero_point, made.dtype, tensors)

    def _following(self) -> tuple[str, TracedQParams | None]:
        if self._next >= len(self._order):
            raise ModelError(
                "forward takes another way than with the example inputs before: its operators "
                "must not depend on the values or the number of rows of its inputs."
            )
        self._next += 1
        return self._order[self._next - 1]
