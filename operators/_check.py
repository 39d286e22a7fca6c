"""Guards of the kernels: every refusal is a ShapeError that says what was wanted."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import ShapeError
from onnxq.qparams import IntArray, PerChannel, PerTensor, QParams

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxq.operator import Array, NodePlan


def codes(op: str, inputs: Sequence[Array | None], plan: NodePlan, slot: int) -> IntArray:
    """The integers in an input slot.

    Raises:
        ShapeError: absent, without qparams, or of another dtype than its qparams say.
    """
    x = inputs[slot] if slot < len(inputs) else None
    qparams = plan.inputs[slot] if slot < len(plan.inputs) else None
    if x is None or qparams is None:
        raise ShapeError(f"{op}: input {slot} has no codes or no qparams; give both.")
    if x.dtype != qparams.dtype.storage:
        raise ShapeError(
            f"{op}: input {slot} has dtype {x.dtype}; its qparams say {qparams.dtype}."
        )
    return np.asarray(x, qparams.dtype.storage)


def plain(op: str, inputs: Sequence[Array | None], slot: int) -> Array:
    """The array in an input slot that is not quantized.

    Raises:
        ShapeError: absent.
    """
    x = inputs[slot] if slot < len(inputs) else None
    if x is None:
        raise ShapeError(f"{op}: input {slot} is absent; it is needed.")
    return x


def vector(op: str, inputs: Sequence[Array | None], slot: int) -> list[int]:
    """The whole numbers in an input slot: axes, sizes, pads.

    Raises:
        ShapeError: absent, not of rank 1, or no integers.
    """
    x = plain(op, inputs, slot)
    if x.ndim != 1 or not np.issubdtype(x.dtype, np.integer):
        raise ShapeError(f"{op}: input {slot} is {x.dtype} of shape {x.shape}; wanted a vector.")
    return [int(n) for n in x]


def optional_vector(op: str, inputs: Sequence[Array | None], slot: int) -> list[int] | None:
    """As `vector`; None where it is absent."""
    return None if slot >= len(inputs) or inputs[slot] is None else vector(op, inputs, slot)


def qparams_in(op: str, plan: NodePlan, slot: int) -> QParams:
    """Per-tensor qparams of an input.

    Raises:
        ShapeError: there are none, or they are not per-tensor.
    """
    return _per_tensor(op, plan.inputs[slot] if slot < len(plan.inputs) else None, f"input {slot}")


def qparams_out(op: str, plan: NodePlan, slot: int = 0) -> QParams:
    """Per-tensor qparams of an output.

    Raises:
        ShapeError: there are none, or they are not per-tensor.
    """
    found = plan.outputs[slot] if slot < len(plan.outputs) else None
    return _per_tensor(op, found, f"output {slot}")


def _per_tensor(op: str, qparams: QParams | None, place: str) -> QParams:
    if qparams is None or qparams.granularity != PerTensor():
        got = "none" if qparams is None else str(qparams.granularity)
        raise ShapeError(f"{op}: {place} needs per-tensor qparams; got {got}.")
    return qparams


def weight_qparams(op: str, plan: NodePlan, slot: int, w: Array, axis: int) -> QParams:
    """Qparams of a weight: per-tensor, or one scale per w.shape[axis] along `axis`.

    Raises:
        ShapeError: another granularity, axis or number of channels.
    """
    qparams = plan.inputs[slot]
    if qparams is None:
        raise ShapeError(f"{op}: the weight in input {slot} needs qparams.")
    if qparams.granularity == PerTensor():
        return qparams
    if not isinstance(qparams.granularity, PerChannel) or (
        qparams.granularity.axis % w.ndim != axis or qparams.scale.size != w.shape[axis]
    ):
        raise ShapeError(
            f"{op}: the weight of shape {w.shape} has {qparams.scale.size} scales, "
            f"{qparams.granularity}; wanted per-tensor, or {w.shape[axis]} along axis {axis}."
        )
    return qparams


def shared(op: str, plan: NodePlan, slots: Sequence[int] = (0,)) -> QParams:
    """The qparams that the inputs in `slots` and all outputs have in common.

    Raises:
        ShapeError: they differ: codes can be copied only between tensors of equal qparams.
    """
    first = qparams_in(op, plan, slots[0])
    others = [*(plan.inputs[slot] for slot in slots), *plan.outputs]
    if any(qparams is not None and qparams != first for qparams in others):
        raise ShapeError(f"{op}: it copies codes, so inputs and outputs must have equal qparams.")
    return first


def axis_within(op: str, axis: int, rank: int) -> int:
    """The axis, counted from the front.

    Raises:
        ShapeError: a tensor of that rank has no such axis.
    """
    if not -rank <= axis < rank:
        raise ShapeError(f"{op}: axis {axis} is outside a tensor of rank {rank}.")
    return axis % rank


@contextmanager
def shape_errors(op: str) -> Iterator[None]:
    """Turns NumPy's refusals of shapes, axes and indices into ShapeError."""
    try:
        yield
    except (ValueError, IndexError) as error:
        raise ShapeError(f"{op}: {error}") from error
