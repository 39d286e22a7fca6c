"""Requested inputs and outputs of a quantized model: pixels or integers in, integers out.

quantized_input={"image": Pixels((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))}
quantized_input={"image": "pixels", "state": "integers"}
"""

import enum
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from onnxq.errors import QConfigError, kind_of, nearest
from onnxq.page.card import card_of

WHITE = 255
"""The largest pixel."""
PIXEL_SCALE = 1 / WHITE
"""Pixels 0 to 255 as numbers 0 to 1, which the means of most models are given for."""


class QuantizedInput(enum.Enum):
    """Meaning of an input whose numbers come as uint8."""

    PIXELS = "pixels"
    """Pixels 0 to 255, of a model that normalizes them itself: its float input is 0.0 to 255.0."""
    INTEGERS = "integers"
    """Integers of the quantized model's own first quantizer."""


@dataclass(frozen=True, slots=True)
class Pixels:
    """Pixels p, 0 to 255, of a model that wants x = (p * scale - mean) / std.

    Attributes:
        mean: one number, or one per channel.
        std: one number, or one per channel; above 0.
        scale: what p is multiplied by; 1 where mean and std are given in pixels.
    Raises:
        QConfigError: numbers that are not finite, a std or scale that is not above 0, as many means
            as there are no stds, or means and stds of another scale.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    scale: float = PIXEL_SCALE

    _repr_html_ = card_of

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        (scale,) = _numbers("scale", self.scale)
        object.__setattr__(self, "scale", scale)
        if min(*self.std, self.scale) <= 0:
            raise QConfigError(
                f"pixels: std is {self.std}, scale is {self.scale}; wanted numbers above 0."
            )
        if len({len(self.mean), len(self.std)} - {1}) > 1:
            raise QConfigError(
                f"pixels: {len(self.mean)} means and {len(self.std)} stds; wanted one of each, or "
                "one per channel."
            )
        self._check_scale()

    def _check_scale(self) -> None:
        """Refuses means above the largest pixel, and stds beyond its range: they are of 0 to 255.

        No pixel would be above the mean, and all of them would be nearly one number.
        """
        largest = WHITE * self.scale
        if max(self.mean) <= largest and max(self.std) <= max(largest, 1.0):
            return
        divided = (
            f"{name} {', '.join(f'{number / WHITE:.4g}' for number in numbers)}"
            for name, numbers in (("mean", self.mean), ("std", self.std))
        )
        raise QConfigError(
            f"pixels: mean is {self.mean}, std is {self.std}; but x = (pixel * scale - mean) / "
            f"std, where the scale is {self.scale:.4g} and pixel * scale is 0 to {largest:.4g}. "
            f"Divide both by 255 ({', '.join(divided)}), or set the scale to 1 where there is one "
            "(scale=1, --pixels-scale 1)."
        )

    @property
    def factors(self) -> tuple[float, ...]:
        """Factor per channel: x = (p - zero) * factor."""
        return tuple(self.scale / std for std in self._each(self.std))

    @property
    def zeros(self) -> tuple[float, ...]:
        """Pixel per channel that stands for x = 0; it need not be a whole number."""
        return tuple(mean / self.scale for mean in self._each(self.mean))

    def _each(self, numbers: tuple[float, ...]) -> tuple[float, ...]:
        count = max(len(self.mean), len(self.std))
        return numbers if len(numbers) == count else numbers * count


Asked = QuantizedInput | Pixels | str
"""Forms of a wish about one input."""


def as_quantized_input(asked: object) -> dict[str, QuantizedInput | Pixels]:
    """{input name: its meaning}; None: no input comes as integers."""
    if asked is None:
        return {}
    if not isinstance(asked, Mapping):
        raise QConfigError(
            f"quantized_input is {kind_of(asked)}; wanted {{input name: QuantizedInput or "
            "Pixels}, such as {'image': 'pixels'}."
        )
    return {str(name): _meaning(str(name), value) for name, value in asked.items()}


def as_quantized_output(asked: object) -> tuple[str, ...]:
    """Names of the outputs that are to be integers."""
    if isinstance(asked, str) or not isinstance(asked, Sequence):
        raise QConfigError(
            f"quantized_output is {asked!r}; wanted a list of names, such as ['logits']."
        )
    return tuple(dict.fromkeys(map(str, asked)))


def check_end(kind: str, name: str, known: Collection[str]) -> None:
    """Passes the name of an input or output that the model has."""
    if name not in known:
        raise QConfigError(
            f"{kind}_integers: the model has no {kind} '{name}'; it has {', '.join(known)}."
            f"{nearest(name, known)}"
        )


def _meaning(name: str, value: object) -> QuantizedInput | Pixels:
    if isinstance(value, QuantizedInput | Pixels):
        return value
    known = [meaning.value for meaning in QuantizedInput]
    if value not in known:
        raise QConfigError(
            f"quantized_input: '{name}' is {value!r}; wanted {' or '.join(known)}, or Pixels(mean, "
            f"std, scale).{nearest(str(value), known)}"
        )
    return QuantizedInput(value)


def _numbers(name: str, value: object) -> tuple[float, ...]:
    try:
        items = [value] if isinstance(value, int | float) else list(value)  # type: ignore[call-overload]  # guarded
        numbers = tuple(float(item) for item in items)
    except (TypeError, ValueError) as error:
        raise QConfigError(f"pixels: {name} is {value!r}; wanted numbers.") from error
    if not numbers or not all(map(math.isfinite, numbers)):
        raise QConfigError(f"pixels: {name} is {value!r}; wanted finite numbers, one or more.")
    return numbers
