"""Compares an exported quantized model with its module, in steps of the outputs' grids.

Both round to the same grids, but add up in another order: the module in float32, ONNX Runtime in
integers. A sum that lies at a tie within float32's error may then come out one step apart, which is
rare (below 0.2% of the elements of one layer on equal inputs), but what differs by a step makes
sums behind it differ. At worst that turns the rounding of every layer into an independent one. The
difference of two independent roundings has a variance of 1/6 of a squared step, so that for L
tensors on grids, one behind the other, each with the gain of 1 that grids fitted to their ranges
have on average,

    root mean square <= 1 + sqrt(L / 6)        largest <= 1 + 6 sqrt(L / 6)

in steps, the 1 for a tie at the output itself. An output in float32 has steps of its largest
absolute value / 127. A wrong translation shows as far more: another padding or a lost bias moves
many elements by tens of steps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import VerificationError
from onnxq.pytorch.exporting.check import run_both

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from torch import nn

    from onnxq.pytorch.arguments.bound_inputs import BoundInputs
    from onnxq.pytorch.exporting.check import Run

SIGMAS = 6  # of the largest among up to 10^8 elements
FLOAT_STEPS = 127


def check_in_steps(
    module: nn.Module,
    run: Run,
    outputs: Sequence[tuple[str, float | None]],
    inputs: BoundInputs,
    grids: int,
    tolerance: float | None,
) -> None:
    """Holds one run of the exported model against the module.

    Args:
        module: quantized, in eval mode.
        run: arrays by input name -> the exported model's outputs.
        outputs: name and scale of each; None: it is in float32.
        inputs: one batch.
        grids: number of tensors that are rounded.
        tolerance: largest accepted difference in steps; None: derived from `grids`.
    Raises:
        VerificationError: an output differs in count, shape or value.
        ModelError: forward fails, which took the example inputs as they were given.
    """
    where, pairs = run_both(module, run, inputs)
    for (name, scale), (actual, expected) in zip(outputs, pairs, strict=True):
        _compare(f"{where}, output '{name}'", actual, expected, scale, grids, tolerance)


def _compare(
    where: str,
    actual: npt.NDArray[np.generic],
    expected: npt.NDArray[np.generic],
    scale: float | None,
    grids: int,
    tolerance: float | None,
) -> None:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise VerificationError(
            f"{where}: {actual.dtype}{list(actual.shape)}; the module gives "
            f"{expected.dtype}{list(expected.shape)}. Report the module to onnxq."
        )
    if not actual.size:
        return
    if not np.issubdtype(expected.dtype, np.floating):
        return  # argmax and the like: a step decides a tie
    reference = expected.astype(np.float64)
    step = float(np.abs(reference).max()) / FLOAT_STEPS if scale is None else scale
    steps = np.abs(actual.astype(np.float64) - reference) / max(step, np.finfo(np.float32).tiny)
    largest, mean = float(steps.max()), math.sqrt(float((steps**2).mean()))
    sigma = math.sqrt(grids / 6)
    most = 1 + SIGMAS * sigma if tolerance is None else tolerance
    # a half step is the slack of float32 in a quotient that is a whole number
    if not largest <= most + 0.5 or not (mean <= 1 + sigma or tolerance is not None):
        raise VerificationError(
            f"{where}: differs from the module by up to {largest:.3g} steps, root mean square "
            f"{mean:.3g}; rounding explains {most:.3g} and {1 + sigma:.3g}. Compare layer by "
            "layer, report the module to onnxq, or, if small differences are amplified in it, "
            "pass a larger tolerance (in steps)."
        )
