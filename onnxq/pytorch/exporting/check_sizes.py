"""Runs an exported model beside its module, on the example inputs and in other sizes."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, NamedTuple

from torch import fx, nn

from onnxq.errors import VerificationError
from onnxq.pytorch.arguments.forward import FORWARD_RAISES, compute
from onnxq.pytorch.exporting.agreement import layer_by_layer
from onnxq.pytorch.exporting.check import check_against, relative_tolerance
from onnxq.pytorch.exporting.check_quantized import check_in_lsb
from onnxq.pytorch.exporting.exact_sums import check_here_or_exactly
from onnxq.pytorch.modules.transformers import zeroes_padding
from onnxq.qdq.tidy import output_scales

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import onnx_ir as ir

    from onnxq.pytorch.arguments.axes import Axes
    from onnxq.pytorch.arguments.bound_inputs import BoundInputs
    from onnxq.pytorch.exporting.check import Run
    from onnxq.pytorch.exporting.check_quantized import ByLayer
    from onnxq.pytorch.exporting.engines import Engine


class Limits(NamedTuple):
    """Limits that the check of an exported model goes by.

    Attributes:
        roundings: number of tensors that are rounded; 0: a float model.
        tolerance: the caller's, or None.
    """

    roundings: int
    tolerance: float | None


def check_sizes(
    module: nn.Module, model: ir.Model, bound: BoundInputs, axes: Axes, limits: Limits
) -> None:
    """Compares both on the example inputs, and in other sizes of what is dynamic.

    Args:
        module: in eval mode.
        model: what was exported of it, in the form that is written.
        bound: example inputs.
        axes: those that are dynamic.
        limits: how far apart results may be.
    Raises:
        VerificationError: the model computes something else.
        ModelError: forward fails on the example inputs.
    """
    trials = [bound, *_other_sizes(module, bound, axes)]
    check = functools.partial(_check_trials, module, model, trials, limits)
    check_here_or_exactly(check, model, trials)


def _other_sizes(module: nn.Module, bound: BoundInputs, axes: Axes) -> Iterator[BoundInputs]:
    """One row and one row more; of the other sizes, each by itself, one less.

    Batch norms without running statistics take no single row; then there is a warning.
    """
    for label in axes.labels:
        if axes.terms(label):
            continue
        length = axes.length(bound, label)
        sizes = (1, length + 1) if label == axes.batch else (length - 1,)
        for size in sizes:
            if axes.allows(label, size):
                validation = axes.resized(bound, label, size)
                if size != 1 or not _wants_rows(module, validation):
                    yield validation


def _wants_rows(module: nn.Module, one_row: BoundInputs) -> bool:
    """Whether torch's batch norm refuses one row, of which it cannot take the statistics."""
    try:
        compute(module, one_row)
    except ValueError as error:
        if "Expected more than 1 value per channel" not in str(error):
            return False
        warnings.warn(
            f"{type(module).__name__}: a batch norm without running statistics takes those of the "
            "batch, so that rows depend on each other, and the module refuses a single one. The "
            "exported model takes it, and gives that norm's bias.",
            UserWarning,
            stacklevel=5,
        )
        return True
    except FORWARD_RAISES:
        return False  # said where it is compared
    return False


_PADDING = (
    "In eval mode, torch's nn.TransformerEncoder sets results at padded positions to 0, as an ONNX "
    "model does not: build it with enable_nested_tensor=False."
)


def _check_trials(
    module: nn.Module,
    model: ir.Model,
    trials: Sequence[BoundInputs],
    limits: Limits,
    engine: Engine,
) -> None:
    with engine(model) as session:
        by_layer = None
        if isinstance(module, fx.GraphModule):
            by_layer = functools.partial(layer_by_layer, module, model, engine)
        for validation in trials:
            _check_validation(module, model, session.run, validation, limits, by_layer)


def _check_validation(
    module: nn.Module,
    model: ir.Model,
    run: Run,
    validation: BoundInputs,
    limits: Limits,
    by_layer: ByLayer | None,
) -> None:
    tolerance = limits.tolerance
    if limits.roundings:
        outputs = output_scales(model)
        check_in_lsb(module, run, outputs, validation, limits.roundings, tolerance, by_layer)
        return
    limit = relative_tolerance(module) if tolerance is None else tolerance
    names = [value.name or "" for value in model.graph.outputs]
    try:
        check_against(module, run, names, validation, limit)
    except VerificationError as error:
        if not zeroes_padding(module):
            raise
        raise VerificationError(f"{error} {_PADDING}") from error
