"""Errors at the results of groups of nodes: a quantized model beside the float model, inside."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxq.checking.codes import find_codes
from onnxq.checking.comparison import Comparison
from onnxq.graph.coded import INPUTS_KEY, read_coded
from onnxq.graph.expose import Exposed, expose, observable
from onnxq.graph.walk import node_name, walk
from onnxq.ort.runtime import open_session
from onnxq.samples import as_taken, input_specs
from onnxq.samples.state import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from onnxq.core.arrays import Array
    from onnxq.ort.runtime import Session
    from onnxq.qparams import QParams
    from onnxq.tuning.node_group import NodeGroup
    from onnxq.tuning.tuning_samples import TuningSamples


def results_of(model: ir.Model, group: NodeGroup) -> list[str]:
    """Tensors that the nodes of a group give to others, or to the caller, in graph order.

    Args:
        model: the float model, as prepared.
        group: of its nodes.
    """
    names = set(group.nodes)
    inside = {node: None for node, _ in walk(model.graph) if node_name(node) in names}
    return [
        value.name
        for node in inside
        for value in node.outputs
        if value.name
        and (value.is_graph_output() or any(use.node not in inside for use in value.uses()))
    ]


def errors_inside(
    source: ir.Model,
    target: ir.Model,
    tensors: Sequence[str],
    samples: TuningSamples,
    feedback: Mapping[str, str],
) -> dict[str, float]:
    """Tensor -> dB in the quantized model; without those that it does not show.

    A tensor shows as its codes, or under its own name where it holds numbers. Codes that carry a
    factor per channel are left out.

    Args:
        source: the float model, as prepared.
        target: the quantized one.
        tensors: of the float model.
        samples: to run both on.
        feedback: output name -> input name.

    Raises:
        CalibrationError: a model does not run on the samples.
    """
    shown = _shown(source, target, tensors)
    if not shown:
        return {}
    ours = expose(source, list(shown))
    theirs = expose(target, [name for name, _ in shown.values()])
    sums = {tensor: Comparison() for tensor in shown}
    inputs = input_specs(source, tuple(feedback.values()), read_coded(target, INPUTS_KEY))
    taken = input_specs(target)
    states = [State(inputs, feedback) for _ in range(2)]
    with open_session(ours.model, threads=1) as floats, open_session(theirs.model, threads=1) as q:
        for batch in samples.batches:
            fed = samples.fed(batch)
            x = _run(floats, ours, as_taken(states[0].feeds(fed), inputs))
            y = _run(q, theirs, as_taken(states[1].feeds(fed), taken))
            states[0].keep(x)
            states[1].keep(y)
            for tensor, (name, qparams) in shown.items():
                if x[tensor].shape == y[name].shape:
                    sums[tensor].update(x[tensor], y[name], qparams)
    return {tensor: each.sqnr_db for tensor, each in sums.items() if each.elements}


def worst(errors: Mapping[str, float], tensors: Sequence[str]) -> float:
    """Least dB of those tensors; NaN where none of them was seen."""
    found = [errors[tensor] for tensor in tensors if tensor in errors]
    return min(found, key=lambda db: -math.inf if math.isnan(db) else db, default=math.nan)


def _shown(
    source: ir.Model, target: ir.Model, tensors: Sequence[str]
) -> dict[str, tuple[str, QParams | None]]:
    """Tensor -> (its name in the quantized model, what its codes mean)."""
    ours, theirs = set(observable(source)), set(observable(target))
    codes = {found.tensor: found for found in find_codes(target) if found.problem == ""}
    shown: dict[str, tuple[str, QParams | None]] = {}
    for tensor in tensors:
        if tensor not in ours:
            continue
        found = codes.get(tensor)
        if found is not None and found.gain is None:
            shown[tensor] = (found.name, found.qparams)
        elif found is None and tensor in theirs:
            shown[tensor] = (tensor, None)
    return shown


def _run(session: Session, exposed: Exposed, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs and exposed tensors by their names in the model."""
    outputs = dict(zip(session.outputs, session.run(feeds), strict=True))
    return outputs | {tensor: outputs[output] for tensor, output in exposed.outputs.items()}
