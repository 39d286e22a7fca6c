"""Options on inputs and outputs of a quantized model: pixels or integers in, integers out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from onnxq.cli.options import added, numbers, pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.qconfig.quantized_input import Pixels, QuantizedInput


OPTIONS = (
    click.option(
        "--quantized-output",
        multiple=True,
        metavar="NAME",
        help="Give this output as integers; the file's metadata explain them. May be repeated.",
    ),
    click.option(
        "--pixels-scale",
        metavar="NUMBER",
        callback=numbers,
        help="Pixels p are (p * scale - mean) / std to the model; default: 1/255.",
    ),
    click.option(
        "--pixels-std", metavar="NUMBER[,...]", callback=numbers, help="One, or one per channel."
    ),
    click.option(
        "--pixels-mean", metavar="NUMBER[,...]", callback=numbers, help="One, or one per channel."
    ),
    click.option(
        "--quantized-input",
        multiple=True,
        metavar="NAME=pixels|integers",
        callback=pair,
        help="Take this input as uint8: pixels 0 to 255, with the model's normalization folded in "
        "(say which with --pixels-..., unless the model has it), or integers of its quantizer.",
    ),
)


@dataclass(frozen=True, slots=True)
class InputsOutputs:
    """Values of the options; see onnxq.qconfig.quantized_input."""

    inputs: dict[str, str]
    outputs: tuple[str, ...]
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    scale: tuple[float, ...] | None

    def __post_init__(self) -> None:
        if self._numbers and "pixels" not in self.inputs.values():
            raise click.UsageError(
                f"--pixels-{next(iter(self._numbers))} has no meaning without "
                "--quantized-input NAME=pixels."
            )

    @property
    def quantized_input(self) -> dict[str, QuantizedInput | Pixels]:
        """Meaning of each input's integers, as `prepare` takes it."""
        from onnxq.qconfig.quantized_input import Pixels, QuantizedInput, as_quantized_input

        asked = as_quantized_input(self.inputs)
        numbers = self._numbers
        if not numbers:
            return asked
        scale = numbers.pop("scale", (Pixels().scale,))
        if len(scale) != 1:
            raise click.UsageError(f"--pixels-scale: got {len(scale)} numbers; wanted one.")
        pixels = Pixels(**numbers, scale=scale[0])
        return {n: pixels if m is QuantizedInput.PIXELS else m for n, m in asked.items()}

    @property
    def words(self) -> list[str]:
        """The options as a command line has them."""
        return [
            *(f"--quantized-input={name}={meaning}" for name, meaning in self.inputs.items()),
            *(f"--quantized-output={name}" for name in self.outputs),
            *(f"--pixels-{n}={','.join(map(repr, each))}" for n, each in self._numbers.items()),
        ]

    @property
    def _numbers(self) -> dict[str, tuple[float, ...]]:
        given = {"mean": self.mean, "std": self.std, "scale": self.scale}
        return {name: numbers for name, numbers in given.items() if numbers is not None}


NO_IO = InputsOutputs({}, (), None, None, None)
"""All inputs and outputs as they are in the float model."""


def io_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options to a command, which gets their values as one, `io`."""

    @wraps(command)
    def packed(**given: Any) -> None:  # click hands options by their names
        inputs, outputs = given.pop("quantized_input"), given.pop("quantized_output")
        numbers = [given.pop(f"pixels_{name}") for name in ("mean", "std", "scale")]
        command(**given, io=InputsOutputs(inputs, outputs, *numbers))

    return added(packed, OPTIONS)
