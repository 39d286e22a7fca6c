"""Rounding of what a node reads: whether it alone spoils the node's result.

    T_f   a tensor of the float model
    T_r   the same nodes, on the nearest tensors that have integers, which are rounded to these

A Log is the example: integers near 0 are far apart for it, whatever its own result is stored in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.checking.comparison import Comparison
from onnxq.checking.cut_models import cut_at, cuttable
from onnxq.ort import runtime
from onnxq.ort.expose import expose
from onnxq.samples import input_specs
from onnxq.samples.state import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from onnxq.checking.side_by_side import Pair
    from onnxq.checking.sides import Sides
    from onnxq.checking.validation import Batch
    from onnxq.core.arrays import Array


def quantized_inputs(sides: Sides, tensor: Pair) -> tuple[Pair, ...]:
    """The nearest tensors with integers that the quantized model computes a tensor from.

    Args:
        sides: the models.
        tensor: a pair of theirs, of the main graph.
    """
    of_target = {pair.target: pair for pair in sides.tensors}
    values = {v.name: v for node in sides.target.graph for v in node.outputs}
    found: dict[str, Pair] = {}
    seen: set[str | None] = {tensor.target}
    ahead = _read(values.get(tensor.target))
    while ahead:
        value = ahead.pop()
        if value.name in seen:
            continue
        seen.add(value.name)
        pair = of_target.get(str(value.name))
        if pair is None:
            ahead += _read(value)
        elif pair.source != tensor.source:
            found[pair.name] = pair
    return tuple(pair for pair in sides.tensors if pair.name in found)


def _read(value: ir.Value | None) -> list[ir.Value]:
    """Inputs of the node that makes a value."""
    node = None if value is None else value.producer()
    return [] if node is None else [each for each in node.inputs if each is not None]


def sqnr_of_rounding(
    sides: Sides,
    tensor: Pair,
    inputs: Sequence[Pair],
    batches: Sequence[Batch],
    feedback: Mapping[str, str],
) -> float | None:
    """SQNR of T_r beside T_f, in dB; None: the float model cannot be cut at these inputs.

    Args:
        sides: the models.
        tensor: T.
        inputs: of `quantized_inputs`.
        batches: samples.
        feedback: output name -> input name.

    Raises:
        ModelError: ONNX Runtime does not open the cut model.
        CalibrationError: it does not run on a batch.
    """
    if not inputs or not {tensor.source, *(p.source for p in inputs)} <= cuttable(sides.source):
        return None
    names = list(dict.fromkeys([tensor.source, *(p.source for p in inputs)]))
    state = State(input_specs(sides.source, feedback.values()), feedback)
    sums = Comparison()
    with runtime.open_session(expose(sides.source, names).model, threads=1) as whole:
        for batch in batches:
            feeds = state.feeds(batch)
            got = dict(zip(whole.outputs, whole.run(feeds), strict=True))
            state.keep(got)
            sums.update(got[tensor.source], _rounded(sides.source, tensor, inputs, feeds, got))
    return sums.sqnr_db


def _rounded(
    source: ir.Model,
    tensor: Pair,
    inputs: Sequence[Pair],
    feeds: Mapping[str, Array],
    got: Mapping[str, Array],
) -> Array:
    """T_r of a batch, whose run gave `got`."""
    given = {pair.source: pair.rounded(got[pair.source])[1] for pair in inputs}
    cut = cut_at(expose(source, [tensor.source]).model, given)
    with runtime.open_session(cut.model, threads=1) as session:
        fed = {**feeds, **{cut.given[name]: array for name, array in given.items()}}
        (result,) = session.run(fed, [tensor.source])
    return result
