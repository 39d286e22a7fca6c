"""The documented `scale` and `zero_point` of modules whose result is on a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.errors import QConfigError

if TYPE_CHECKING:
    from onnxq.pytorch.nn.quantized.requantize import Requantize


class OutputGrid:
    """Reads and sets scale and zero point of `output`.

    Attributes:
        output: grid of the result; None: it stays in float32.
    """

    output: Requantize | None

    def output_grid(self) -> Requantize:
        """The grid of the result.

        Raises:
            QConfigError: there is none.
        """
        if self.output is None:
            raise QConfigError(
                f"Quantized{type(self).__name__}: its result stays in float32; there is no output "
                "scale."
            )
        return self.output

    @property
    def scale(self) -> float:
        """Scale of the result."""
        return float(self.output_grid().scale)

    @scale.setter
    def scale(self, value: float) -> None:
        self.output_grid().set_(scale=float(value))

    @property
    def zero_point(self) -> int:
        """Zero point of the result."""
        return int(self.output_grid().zero_point)

    @zero_point.setter
    def zero_point(self, value: int) -> None:
        self.output_grid().set_(zero_point=int(value))
