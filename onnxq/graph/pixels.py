"""Inputs that are pixels: what they mean, and the float model that takes them as uint8."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.errors import QConfigError
from onnxq.graph.passes.pixel_normalization import normalization
from onnxq.graph.passes.take_pixels import TakePixels
from onnxq.graph.quantized import (
    INPUTS_KEY,
    Meaning,
    QuantizedIO,
    read_quantized_io,
    write_quantized_io,
)
from onnxq.graph.types import infer_types
from onnxq.qconfig.quantized_input import Pixels, QuantizedInput, check_end

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST_RANK = 3
"""Axes of an image: rows, columns, and the batch or the channels."""
RAW = QuantizedIO(Meaning.PIXELS, "uint8", (1.0,), (0.0,))
"""Pixels as numbers 0.0 to 255.0."""


def quantized_pixels(
    model: ir.Model, asked: Mapping[str, QuantizedInput | Pixels]
) -> dict[str, QuantizedIO]:
    """{input name: the numbers that its pixels stand for}, of the inputs that are to be pixels.

    Args:
        model: canonical float model.
        asked: every wish.

    Raises:
        QConfigError: an input that is not there or no image, or whose normalization is not known.
    """
    inputs = {str(v.name): v for v in model.graph.inputs}
    for name in asked:
        check_end("input", name, inputs)
    return {
        name: _quantized(inputs[name], meaning)
        for name, meaning in asked.items()
        if meaning is not QuantizedInput.INTEGERS
    }


def take_pixels(model: ir.Model, quantized: Mapping[str, QuantizedIO]) -> tuple[str, ...]:
    """Rewrites a canonical model so that these inputs are uint8; sentences for the report.

    The metadata of the model say what they mean.
    """
    notes: list[str] = []
    for name, meaning in quantized.items():
        taken = TakePixels(name, meaning)
        taken(model)
        notes += taken.notes
    if quantized:
        infer_types(model)
        write_quantized_io(model, INPUTS_KEY, quantized)
    return tuple(notes)


def pixels_of(model: ir.Model) -> dict[str, QuantizedIO]:
    """Inputs of a quantized model that are pixels."""
    found = read_quantized_io(model, INPUTS_KEY)
    return {
        name: quantized for name, quantized in found.items() if quantized.meaning is Meaning.PIXELS
    }


def _quantized(image: ir.Value, asked: QuantizedInput | Pixels) -> QuantizedIO:
    where = f"quantized_input: input '{image.name}'"
    shape, dtype = image.shape, image.dtype
    taken = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.UINT8)
    if dtype not in taken or shape is None or len(shape) < LEAST_RANK:
        kind = "of no known type" if dtype is None else dtype.name.lower()
        raise QConfigError(
            f"{where} is no image: it is {kind} of shape {shape}; wanted float32, float16 or uint8 "
            "of at least 3 axes. Ask for 'integers' where its numbers are no pixels."
        )
    if isinstance(asked, QuantizedInput):
        if not normalization(image, RAW).nodes:
            raise QConfigError(
                f"{where} is pixels, but the model does not normalize it: what reads it is no Sub, "
                "Mul or Div with a constant. Say what the model was trained on, "
                "(p * scale - mean) / std: Pixels(mean, std, scale), on the command line "
                "--pixels-mean, --pixels-std, --pixels-scale (1 for 0 to 255, 1/255 for 0 to 1)."
            )
        return RAW
    if dtype == ir.DataType.UINT8:
        raise QConfigError(
            f"{where} is uint8 already, so that the model normalizes its pixels itself. Ask for "
            "'pixels' alone."
        )
    return QuantizedIO(
        Meaning.PIXELS, "uint8", asked.factors, asked.zeros, _channel_axis(image, shape, asked)
    )


def _channel_axis(image: ir.Value, shape: ir.Shape, asked: Pixels) -> int:
    """Axis of the channels: 1, or the last one (channels last)."""
    channels, last = len(asked.factors), len(shape) - 1
    axes = [axis for axis in (1, last) if shape[axis] == channels]
    if channels == 1 or axes:
        return axes[0] if axes else 1
    if not isinstance(shape[1], int):
        return 1
    raise QConfigError(
        f"quantized_input: input '{image.name}' has shape {shape}; mean and std are of {channels} "
        "channels. Give one number, or one per channel."
    )
