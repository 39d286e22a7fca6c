"""Meaning of a quantized model's ends, in its metadata: which inputs and outputs are integers.

    number = (q - zero_point) * scale        per tensor, or per channel of `axis`

Of pixels, the numbers are what the float model takes, and the zero point need not be whole.
"""

import enum
import json
from collections.abc import Mapping  # the codec reads annotations at run time
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array, Reals
from onnxq.core.saved import UNREADABLE, plain, read
from onnxq.errors import CalibrationError, ModelError

INPUTS_KEY = "onnxq.quantized_input"
OUTPUTS_KEY = "onnxq.quantized_output"
"""Metadata of a model: JSON of {name: Quantized}."""
LARGEST_PIXEL = 255
WHOLE = 0.25
"""Distance from a whole number up to which a number stands for a pixel: float16 rounds pixels that
were normalized by up to 0.11 (10 bits of 2.6, standard deviation 0.225)."""


class Meaning(enum.Enum):
    """Kind of numbers that are written as uint8."""

    PIXELS = "pixels"
    INTEGERS = "integers"


@dataclass(frozen=True, slots=True)
class QuantizedIO:
    """Meaning of an input or output that is integers.

    Attributes:
        meaning: whether they are pixels, or integers that a quantizer made.
        dtype: NumPy's name of their type.
        scale: one number, or one per channel.
        zero_point: as many.
        axis: of the channels.
    """

    meaning: Meaning
    dtype: str
    scale: tuple[float, ...]
    zero_point: tuple[float, ...]
    axis: int = 1

    def __post_init__(self) -> None:
        wrong = len(self.scale) != len(self.zero_point) or min(self.scale, default=0) <= 0
        if wrong or np.dtype(self.dtype).kind not in "iu":
            raise ValueError(f"no integers have {self}")

    def decode(self, integers: Array) -> Array:
        """Numbers of integers, float32, same shape."""
        scale, zero = (self.spread(numbers, integers.ndim) for numbers in self._numbers)
        return np.asarray(((integers.astype(np.float64) - zero) * scale).astype(np.float32))

    def encode(self, x: Array, where: str) -> Array:
        """Integers of numbers that the float model takes, same shape; saturated."""
        scale, zero = (self.spread(numbers, x.ndim) for numbers in self._numbers)
        exact = x.astype(np.float64) / scale + zero
        integers, limits = np.rint(exact), np.iinfo(self.dtype)
        if self.meaning is Meaning.PIXELS:
            _check_pixels(exact, where)
        return np.asarray(integers.clip(limits.min, limits.max).astype(self.dtype))

    def spread(self, numbers: tuple[float, ...], rank: int) -> Reals:
        """The numbers along `axis` of a tensor of that rank, to be broadcast; float64."""
        shape = [1] * rank
        if len(numbers) > 1:
            shape[self.axis] = len(numbers)
        return np.array(numbers, np.float64).reshape(shape)

    @property
    def _numbers(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.scale, self.zero_point

    def __str__(self) -> str:
        scale, zero = (", ".join(f"{number:.6g}" for number in each) for each in self._numbers)
        several = len(self.scale) > 1
        numbers = (f"({zero})", f"({scale})") if several else (zero, scale)
        return f"{self.dtype} {self.meaning.value} q, for (q - {numbers[0]}) * {numbers[1]}"


def _check_pixels(exact: Reals, where: str) -> None:
    low, high = float(exact.min(initial=0)), float(exact.max(initial=0))
    if low < -WHOLE or high > LARGEST_PIXEL + WHOLE:
        raise CalibrationError(
            f"{where}: its numbers stand for pixels from {low:.4g} to {high:.4g}; wanted 0 to 255. "
            "Give the mean, std and scale that they were normalized with, or the pixels as uint8."
        )
    if exact.size and float(np.abs(exact - np.rint(exact)).max()) > WHOLE:
        raise CalibrationError(
            f"{where}: its numbers stand for no whole pixels (from {low:.4g} to {high:.4g}). Give "
            "the mean, std and scale that they were normalized with, or the pixels as uint8, "
            "rounded as they will be when the model is used."
        )


def read_quantized_io(model: ir.Model, key: str) -> dict[str, QuantizedIO]:
    """{name: its meaning} of the inputs or outputs that are integers."""
    text = model.metadata_props.get(key)
    if text is None:
        return {}
    try:
        return dict(read(Mapping[str, QuantizedIO], json.loads(text)))
    except UNREADABLE as error:
        raise ModelError(
            f"metadata '{key}' of the model cannot be read ({error}). Quantize it again."
        ) from error


def write_quantized_io(model: ir.Model, key: str, quantized: Mapping[str, QuantizedIO]) -> None:
    """Says in the metadata which inputs or outputs are integers; nothing where none is."""
    if quantized:
        model.metadata_props[key] = json.dumps(plain(quantized), sort_keys=True)
