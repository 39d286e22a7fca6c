"""OptionalOutput: modules whose result is at quantized levels, or stays in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxq.pytorch.nn.quantized.requantize import Requantize
from onnxq.pytorch.nn.quantized.weight_buffers import WeightBuffers

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch


class OptionalOutput(WeightBuffers):
    """A module with a weight in integers, and qparams for its result or none.

    Attributes:
        output: qparams of the result; None leaves it in float32.
    """

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

    def __repr__(self) -> str:
        return f"{self.title}({self.extra_repr()})"
