"""Sizes of the values of a model: a run tells those that inference does not find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.graph.sizes import sizes_of
from onnxq.ort.types_by_run import types_by_run
from onnxq.samples import as_taken, input_specs

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from onnxq.core.arrays import Array
    from onnxq.graph.sizes import Sizes


def known_shapes(model: ir.Model, feeds: Mapping[str, Array]) -> dict[str, Sizes]:
    """Shapes from which `every_size` finds all others: {value name: shape}, inputs first.

    Behind operators of other domains inference finds nothing, and a time that goes by sizes would
    be none there. So a run tells what is lacking, where something is.

    Args:
        model: canonical.
        feeds: one sample.

    Raises:
        ModelError, CalibrationError: ONNX Runtime does not run the model on them.
    """
    inputs = {name: tuple(map(int, x.shape)) for name, x in feeds.items()}
    known = sizes_of(model, inputs)
    names = [str(value.name) for node in model.graph for value in node.outputs if value.name]
    lacking = [name for name in names if name not in known]
    if not lacking:
        return inputs
    told = types_by_run(model, lacking, as_taken(feeds, input_specs(model)))
    return inputs | {name: shape for name, (_, shape) in told.items()}


def every_size(model: ir.Model, shapes: Mapping[str, Sizes]) -> dict[str, Sizes]:
    """Sizes of all values: those that inference finds, and those that a run told.

    Args:
        model: canonical.
        shapes: as `known_shapes` gives them.
    """
    return {**shapes, **sizes_of(model, shapes)}
