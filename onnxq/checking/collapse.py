"""The first place where a quantized model leaves its float model, for one that is far from it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from onnxq.checking.comparison import Comparison
from onnxq.checking.rounded_inputs import quantized_inputs, sqnr_of_rounding
from onnxq.checking.sides import sides_of
from onnxq.checking.verify import findings_of, open_for
from onnxq.ort import runtime
from onnxq.ort.expose import expose, observable
from onnxq.quantized.verdict import LOW_SQNR_DB, Collapse
from onnxq.samples import Samples, as_taken, input_specs
from onnxq.samples.state import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir

    from onnxq.checking.sides import Sides
    from onnxq.checking.validation import Batch

BATCHES = 8  # looked at: enough to find a place
MOST_STEPS = (
    4  # back from a low tensor: a square, a sum and a product ahead of a logarithm, and one
)


def find_collapse(
    source: ir.Model, quantized: ir.Model, batches: Iterable[Batch], feedback: Mapping[str, str]
) -> Collapse | None:
    """The first tensor in graph order that is low, and the node that makes it; None: none is.

    Args:
        source: canonical float model.
        quantized: made from it, with outputs that are low.
        batches: to look at; the first BATCHES of them.
        feedback: output name -> input name.
    """
    some = list(islice(batches, BATCHES))
    producers = {v.name: node.name for node in source.graph for v in node.outputs}
    sides = sides_of(source, quantized)
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
            sessions = zip((ours, theirs_session), states, taken, strict=True)
            for session, state, inputs in sessions:
                run = session.run(as_taken(state.feeds(batch), inputs))
                results.append(dict(zip(session.outputs, run, strict=True)))
                state.keep(results[-1])
            for name, each in sums.items():
                x, y = (r[m.outputs[name]] for r, m in zip(results, models, strict=True))
                if getattr(x, "dtype", None) == "float32" and x.shape == y.shape:
                    each.update(x, y)
    return {name: each.sqnr_db for name, each in sums.items() if each.elements}
