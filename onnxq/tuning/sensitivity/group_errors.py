"""Errors at the results of groups of nodes: a quantized model beside the float model, inside."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxq.checking.codes import find_codes
from onnxq.checking.side_by_side import Pair, SideBySide
from onnxq.errors import CalibrationError, ModelError
from onnxq.graph.coded import INPUTS_KEY, read_coded
from onnxq.graph.walk import node_name, walk
from onnxq.ort.expose import observable
from onnxq.samples import as_taken, input_specs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from onnxq.qparams import QParams
    from onnxq.tuning.scoring.tuning_samples import TuningSamples
    from onnxq.tuning.timing.node_group import NodeGroup


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
        ModelError: the quantized model does not run on the samples, on which the float one did.
    """
    shown = _shown(source, target, tensors)
    if not shown:
        return {}
    pairs = [Pair(tensor, tensor, name, qparams) for tensor, (name, qparams) in shown.items()]
    inputs = input_specs(source, tuple(feedback.values()), read_coded(target, INPUTS_KEY))
    with SideBySide(source, target, pairs, [], feedback, threads=1) as run:
        compare = run.open()
        for batch in samples.batches:
            try:
                found = compare(as_taken(samples.fed(batch), inputs))
            except CalibrationError as error:
                raise ModelError(str(error)) from error  # the float model ran on it
            for pair, sums in zip(pairs, found, strict=True):
                pair.sums.add(sums)
    compared = {pair.name: pair.sums.compared for pair in pairs}
    return {tensor: sums.sqnr_db for tensor, sums in compared.items() if sums.elements}


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
