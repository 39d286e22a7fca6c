"""Values that are NaN or infinite, asked for once: no step of training waits for the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.errors import CalibrationError
from onnxq.pytorch.numerics.observing import Observing

if TYPE_CHECKING:
    from torch import nn


def forget_left_out(module: nn.Module) -> None:
    """For model.apply: accepts that batches with NaN or infinite values were left out."""
    if isinstance(module, Observing) and hasattr(module, "left_out"):
        module.left_out.zero_()


def check_observed_values(module: nn.Module) -> None:
    """Asks all observers in a module whether they were shown NaN or infinite values.

    Raises:
        CalibrationError: one was; the message names it, and how many others.
    """
    parts = {name: part for name, part in module.named_modules() if isinstance(part, Observing)}
    found: list[str] = []
    for name, part in parts.items():
        try:
            part.check_left_out()
        except CalibrationError as error:
            found.append(f"'{name}': {error}" if name else str(error))
    if found:
        others = f" So it is at {len(found) - 1} more." if len(found) > 1 else ""
        raise CalibrationError(found[0] + others)
