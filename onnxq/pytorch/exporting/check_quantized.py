"""Compares an exported quantized model with its module, in LSB of its outputs.

Both round with the same qparams, but add up in another order: the module in float32, ONNX Runtime
in integers. A sum that lies at a tie within float32's error may come out one LSB apart: below 0.2%
of a layer's elements, each of which may move sums behind it. At worst the rounding of every layer
becomes an independent one. Two of these differ with a variance of 1/6 of a squared LSB, so that for
L quantized tensors, one behind the other, each with the amplification of 1 that scales fitted to
their ranges have on average,

    root mean square <= 1 + sqrt(L / 6)        largest <= 1 + 6 sqrt(L / 6)

in LSB, the 1 for a tie at the output itself. An output in float32 has an LSB of its largest
absolute value / 127. A wrong translation (another padding, a lost bias) moves many elements by tens
of LSB.

Where the bound is exceeded, rounding_noise measures on the module itself what noise of
u in [-1/2, 1/2) LSB in every quantized tensor moves, which takes the place of sqrt(L / 6), with a
warning, as long as it is below the spread of the output. Beyond that each layer is looked at by
itself: given ONNX Runtime's integers ahead of it, the module's are equal or one LSB apart, at a
tie. docs/why/numerics.md says why.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from onnxq.errors import UnsupportedError, VerificationError
from onnxq.pytorch.arguments.forward import compute, flatten
from onnxq.pytorch.exporting.check import run_both
from onnxq.pytorch.modules.places import hooked
from onnxq.pytorch.nn.quantized.requantize import Requantize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    from torch import nn

    from onnxq.pytorch.arguments.bound_inputs import BoundInputs
    from onnxq.pytorch.exporting.agreement import Layers
    from onnxq.pytorch.exporting.check import Run

    ByLayer = Callable[[BoundInputs], Layers]

SIGMAS = 6  # of the largest among up to 10^8 elements
FLOAT_LSB = 127
DRAWS = 4  # the largest of them counts: few outputs make a root mean square of one draw uncertain


def check_in_lsb(
    module: nn.Module,
    run: Run,
    outputs: Sequence[tuple[str, float | None]],
    inputs: BoundInputs,
    roundings: int,
    tolerance: float | None,
    by_layer: ByLayer | None = None,
) -> None:
    """Holds one run of the exported model, arrays by input name -> outputs, against the module.

    Outputs are a name and a scale each, None where they are float32. Without a tolerance it follows
    from the number of roundings; by_layer compares layer by layer, where the graph is known.
    """
    where, pairs = run_both(module, run, inputs)
    sigma = math.sqrt(roundings / 6)
    noise: list[float] = []
    for index, ((name, scale), pair) in enumerate(zip(outputs, pairs, strict=True)):
        there = f"{where}, output '{name}'"
        found = difference(there, *pair, scale)
        if found is None or found.is_within(sigma, tolerance):
            continue
        message = _message(there, found, sigma, tolerance)
        if tolerance is not None:
            raise VerificationError(message)
        noise = noise or rounding_noise(module, inputs)
        moved = noise[index] / found.lsb
        if moved < found.spread and found.is_within(moved, None):
            _warn(there, moved, found, _WIDE)
            continue
        message += _cause(moved, found)
        if by_layer is None:
            raise VerificationError(message)
        count = _check_layers(message, by_layer, inputs)
        _warn(there, moved, found, _RIGHT.format(count))


def _check_layers(message: str, by_layer: ByLayer, inputs: BoundInputs) -> int:
    """Number of tensors that agree within one LSB, each computed from integers of ONNX Runtime."""
    try:
        layers = by_layer(inputs)
    except UnsupportedError as error:
        raise VerificationError(f"{message} Layer by layer: {error}") from error
    for one in layers.tensors:
        if one.largest > 1:
            raise VerificationError(
                f"{message} Given the integers that ONNX Runtime computed ahead of it, "
                f"'{one.node}' (tensor '{one.tensor}') differs by up to {one.largest} LSB, "
                f"in {one.differing} of {one.elements} elements."
            )
    for index, pair in enumerate(layers.outputs):
        there = f"{message} Given ONNX Runtime's integers ahead of it, output {index}"
        found = difference(there, *pair, None)
        if found is not None and not found.is_within(math.sqrt(1 / 6), None):
            raise VerificationError(f"{there} differs by up to {found.largest:.3g} errors.")
    return len(layers.tensors)


class Difference(NamedTuple):
    """Differences of an output from the module's, in LSB; spread is that of the module's own."""

    lsb: float
    largest: float
    mean: float
    spread: float

    def is_within(self, sigma: float, tolerance: float | None) -> bool:
        """Whether roundings that move elements by sigma, or a tolerance, explain it."""
        # half an LSB is the slack of float32 in a quotient that is a whole number
        if tolerance is not None:
            return self.largest <= tolerance + 0.5
        return self.largest <= _most(sigma) + 0.5 and self.mean <= 1 + sigma


def _most(sigma: float) -> float:
    return 1 + SIGMAS * sigma


def difference(
    where: str,
    actual: npt.NDArray[np.generic],
    expected: npt.NDArray[np.generic],
    scale: float | None,
) -> Difference | None:
    """Differences of an output from the module's; None where there is nothing to compare."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise VerificationError(
            f"{where}: {actual.dtype}{list(actual.shape)}; the module gives "
            f"{expected.dtype}{list(expected.shape)}. Report the module to onnxq."
        )
    if not actual.size:
        return None
    if not np.issubdtype(expected.dtype, np.floating):
        return None  # argmax and the like: an LSB decides a tie
    reference = expected.astype(np.float64)
    lsb = float(np.abs(reference).max()) / FLOAT_LSB if scale is None else scale
    lsb = max(lsb, float(np.finfo(np.float32).tiny))
    errors = np.abs(actual.astype(np.float64) - reference) / lsb
    mean = math.sqrt(float((errors**2).mean()))
    return Difference(lsb, float(errors.max()), mean, float(reference.std()) / lsb)


def _message(where: str, found: Difference, sigma: float, tolerance: float | None) -> str:
    most = _most(sigma) if tolerance is None else tolerance
    return (
        f"{where}: differs from the module by up to {found.largest:.3g} LSB, root mean square "
        f"{found.mean:.3g}; rounding explains {most:.3g} and {1 + sigma:.3g}. Compare layer by "
        "layer, report the module to onnxq, or, if small differences are amplified in it, "
        "pass a larger tolerance (in LSB)."
    )


def _cause(moved: float, found: Difference) -> str:
    """A sentence to end the message with, where the module's own roundings drown its output."""
    if not moved or moved < found.spread:
        return ""
    return (
        f" On these inputs roundings alone move it by {moved:.3g} LSB, and its own spread is "
        f"{found.spread:.3g}: it is noise, as in a model that is not trained yet."
    )


def _warn(where: str, moved: float, found: Difference, verdict: str) -> None:
    warnings.warn(
        f"{where}: roundings alone move it by {moved:.3g} LSB (root mean square; its own spread "
        f"is {found.spread:.3g}), and it differs from the module by {found.mean:.3g}. {verdict} "
        "onnxq.cross_check compares the exported model node by node.",
        stacklevel=2,
    )


_WIDE = (
    "The ranges of some tensors are far wider than their values: train or calibrate on data like "
    "this."
)
_RIGHT = (
    "The layers are right: {} tensors agree within one LSB, each computed from what ONNX Runtime "
    "computed ahead of it. As a whole the output is noise: ranges are far wider than the values, "
    "as in a model that is not trained, or whose batch norm has statistics of other data."
)


def rounding_noise(module: nn.Module, inputs: BoundInputs) -> list[float]:
    """Root mean square of what other roundings change in each output, the largest of DRAWS."""
    reference = flatten(compute(module, inputs))
    generator = torch.Generator().manual_seed(0)

    def dither(part: Requantize, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        noise = torch.rand(args[0].shape, generator=generator) - 0.5  # of an LSB's width
        return (args[0] + noise.to(args[0].device) * part.scale,)

    rounding = [part for part in module.modules() if isinstance(part, Requantize)]
    largest = [0.0] * len(reference)
    for _ in range(DRAWS):
        with hooked([part.register_forward_pre_hook(dither) for part in rounding]):
            moved = flatten(compute(module, inputs))
        changes = [_change(a, b) for a, b in zip(moved, reference, strict=True)]
        largest = [max(pair) for pair in zip(largest, changes, strict=True)]
    return largest


def _change(actual: torch.Tensor, expected: torch.Tensor) -> float:
    if not expected.is_floating_point() or not expected.numel():
        return 0.0
    return float((actual.double() - expected.double()).square().mean().sqrt())
