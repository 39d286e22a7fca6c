"""The first place where a quantized model leaves its float model, for one that is far from it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import onnx_ir as ir

from onnxq.checking.comparison import Comparison
from onnxq.checking.side_by_side import Pair
from onnxq.checking.sides import FLOAT_HASH_KEY, Sides, sides_in_memory, sides_of
from onnxq.checking.validation import Batch
from onnxq.checking.verify import findings_of, open_for
from onnxq.checking.visible import cut_at, cuttable
from onnxq.core.arrays import Array
from onnxq.ort import runtime
from onnxq.ort.expose import expose, observable
from onnxq.quantized.output_verdict import LOW_SQNR_DB, Collapse
from onnxq.samples import Samples, as_taken, input_specs
from onnxq.samples.state import State

BATCHES = 8  # looked at: enough to find a place
MOST_STEPS = 4  # back from a low tensor: a square, a sum, a MatMul ahead of a logarithm, and one


def find_collapse(
    source: ir.Model, quantized: ir.Model, batches: Iterable[Batch], feedback: Mapping[str, str]
) -> Collapse | None:
    """The first tensor in graph order that is low, and the node that makes it; None: none is."""
    some = list(islice(batches, BATCHES))
    producers = {v.name: node.name for node in source.graph for v in node.outputs}
    is_prepared = FLOAT_HASH_KEY in quantized.metadata_props
    sides = (sides_in_memory if is_prepared else sides_of)(source, quantized)
    found = findings_of(sides, open_for(sides, Samples(some, feedback=feedback)), feedback)
    sqnr = {tensor.name: tensor.sqnr_db for tensor in found.tensors}
    if not sqnr:  # integers made at run time have no scale to compare with
        sqnr = _of_floats(source, quantized, some, feedback)
    for name, decibels in sqnr.items():
        if producers.get(name) and not decibels >= LOW_SQNR_DB:
            spoilt_by = _spoilt_by(sides, name, some, feedback)
            return Collapse(str(producers[name]), name, decibels, spoilt_by)
    return None


def _spoilt_by(
    sides: Sides, name: str, batches: Sequence[Batch], feedback: Mapping[str, str]
) -> tuple[str, ...]:
    """Names of what a low tensor is computed from, where the rounding of these alone makes it low.

    With these in float, the tensors ahead of them are rounded: they are asked next, up to
    MOST_STEPS times, since each of them runs the model anew.
    """
    pair = next((each for each in sides.tensors if each.name == name), None)
    if pair is None:
        return ()
    found: dict[str, None] = {}
    inputs = quantized_inputs(sides, pair)
    for _ in range(MOST_STEPS):
        decibels = sqnr_of_rounding(sides, pair, inputs, batches, feedback)
        if decibels is None or decibels >= LOW_SQNR_DB:
            break
        found |= dict.fromkeys(each.node or each.name for each in inputs)
        ahead = [one for each in inputs for one in quantized_inputs(sides, each)]
        inputs = tuple({each.name: each for each in ahead}.values())
    return tuple(found)


def _of_floats(
    source: ir.Model, quantized: ir.Model, batches: list[Batch], feedback: Mapping[str, str]
) -> dict[str, float]:
    """SQNR of the float tensors that either model has under one name, in graph order."""
    theirs = set(observable(quantized))
    names = [name for name in observable(source) if name in theirs]
    models = [expose(model, names) for model in (source, quantized)]
    specs = input_specs(source, feedback.values())
    taken = [input_specs(model) for model in (source, quantized)]
    states = [State(specs, feedback) for _ in models]
    sums = {name: Comparison() for name in names}
    with (
        runtime.open_session(models[0].model, threads=1) as ours,
        runtime.open_session(models[1].model, threads=1) as theirs_session,
    ):
        for batch in batches:
            results = []
            for session, state, inputs in zip((ours, theirs_session), states, taken, strict=True):
                results.append(session.run_named(as_taken(state.feeds(batch), inputs)))
                state.keep(results[-1])
            for name, each in sums.items():
                x, y = (r[m.outputs[name]] for r, m in zip(results, models, strict=True))
                if getattr(x, "dtype", None) == "float32" and x.shape == y.shape:
                    each.update(x, y)
    return {name: each.sqnr_db for name, each in sums.items() if each.elements}


# --- Rounding of what a node reads: whether it alone spoils the node's result
#
#     T_f   a tensor of the float model
#     T_r   the same nodes, on the nearest tensors that have integers, which are rounded to these
#
# A Log is the example: integers near 0 are far apart for it, whatever its own result is stored in.


def quantized_inputs(sides: Sides, tensor: Pair) -> tuple[Pair, ...]:
    """The nearest tensors with integers that the quantized model computes a tensor from."""
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
    """SQNR of T_r beside T_f, in dB; None: the float model cannot be cut at these inputs."""
    if not inputs or not {tensor.source, *(p.source for p in inputs)} <= cuttable(sides.source):
        return None
    names = list(dict.fromkeys([tensor.source, *(p.source for p in inputs)]))
    state = State(input_specs(sides.source, feedback.values()), feedback)
    sums = Comparison()
    with runtime.open_session(expose(sides.source, names).model, threads=1) as whole:
        for batch in batches:
            feeds = state.feeds(batch)
            got = whole.run_named(feeds)
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
