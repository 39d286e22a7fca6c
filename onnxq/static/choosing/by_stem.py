"""Leaves the first integer layers of a float residual stream in float, where they save too little.

A stem is integer nodes which integers connect, and which read what comes of the model's inputs
with no linear layer ahead. Where float sums go on with its integers, its error is in all that
follows: what is added makes it no smaller, and no normalization takes it away.

    noise = 10^(-SQNR / 10)                   of its integers that float sums read
    share = time that it saves / the model's time in float
    it stays in integers where  share >= noise / NOISE_OF_TIME, or a time is not known

Other roundings of such a model are made in branches, and diluted where these are added.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.graph.walk import node_name, value_name
from onnxq.observers.tensor_noise import noise_at
from onnxq.operator import OpCategory
from onnxq.ort.layouts import ADDED_BY_CONV
from onnxq.static.choosing.measurements import Measurements
from onnxq.static.choosing.proposals import Proposal, Proposals, in_float
from onnxq.static.choosing.weighing import Weighing, in_us, neighbours
from onnxq.static.insertion.decision import Quantize
from onnxq.static.noise.sensitive import TYPICAL_NOISE, tensor_losses
from onnxq.static.prepared import Prepared
from onnxq.static.reasons import NoisyStem
from onnxq.static.statistics import Statistics

NOISE_OF_TIME = 2e-3
"""Noise of a stem that all of float's time would be worth; chosen between what whole CNNs have for
each unit of time that integers save them, 7e-4, and the stem of a small ViT, 8e-3."""


def by_stem(prepared: Prepared, measurements: Measurements) -> Proposals:
    """Proposes float for stems whose error is worth more than the time that they save."""
    if measurements.times is None:
        return {}
    stems = [stem for stem in _stems(prepared) if stem.integers]
    if not stems:
        return {}
    weighing = Weighing(prepared, *measurements.times)
    float_ns = weighing.ns({})
    noises = _noises(prepared, measurements.statistics)
    naming: dict[str, Proposal] = {}
    for stem in stems:
        noise = max(noises.get(name, TYPICAL_NOISE) for name in stem.integers)
        saved = weighing.saved_by_integers(stem.nodes)
        is_worth_it = saved * NOISE_OF_TIME >= noise * float_ns
        if is_worth_it or not weighing.knows(stem.nodes):
            continue
        sqnr_db, saved_us = -10 * math.log10(noise), in_us(max(saved, 0.0))
        reason = NoisyStem(sqnr_db, saved_us, in_us(float_ns), weighing.target)
        naming |= in_float(prepared.qconfig, stem.nodes, reason)
    return naming


@dataclass(frozen=True, slots=True, eq=False)
class _Stem:
    """Integer nodes that integers connect, behind inputs of the model.

    Attributes:
        nodes: in graph order, with what is folded into them.
        integers: names of their results in integers that float sums read.
    """

    nodes: list[ir.Node]
    integers: list[str]


def _noises(prepared: Prepared, statistics: Statistics) -> dict[str, float]:
    """Tensor -> noise of its integers over its power, where it is known."""
    found = {
        name: noise_at(one.noise.sqnr_db)
        for name, one in tensor_losses(prepared, statistics).items()
        if one.noise.sqnr_db is not None
    }
    for group in prepared.groups:
        known = [found[source] for source in group.observed if source in found]
        if known:
            found.update(dict.fromkeys(group.members, max(known)))
    return found


def _stems(prepared: Prepared) -> Iterable[_Stem]:
    in_integers = [n for n in prepared.model.graph if _is_quantized(n, prepared)]
    for nodes in neighbours(in_integers):
        region = set(nodes)
        if any(_has_linear_ahead(node, region, prepared) for node in nodes):
            continue
        yield _Stem(nodes, [name for node in nodes for name in _summed_integers(node, prepared)])


def _is_quantized(node: ir.Node, prepared: Prepared) -> bool:
    return isinstance(prepared.decisions[node_name(node)], Quantize)


def _has_linear_ahead(node: ir.Node, region: set[ir.Node], prepared: Prepared) -> bool:
    """Whether what the node reads from outside the region comes of more than moves and sums."""
    waiting, seen = [node], {node}
    while waiting:
        for value in waiting.pop().inputs:
            source = None if value is None else value.producer()
            if source is None or source in region or source in seen:
                continue
            if prepared.rules.category(source) not in (
                OpCategory.MOVEMENT,
                OpCategory.CLAMP,
                OpCategory.ELEMENTWISE,
            ):
                return True
            seen.add(source)
            waiting.append(source)
    return False


def _summed_integers(node: ir.Node, prepared: Prepared) -> list[str]:
    """Results of an integer node that float sums read, moved or as they are."""
    decision = prepared.decisions[node_name(node)]
    assert isinstance(decision, Quantize)
    written = [v for v in node.outputs if v.name in decision.results]
    return [value_name(value) for value in written if _is_summed(value, prepared)]


def _is_summed(value: ir.Value, prepared: Prepared) -> bool:
    waiting, seen = [value], {value}
    while waiting:
        for use in waiting.pop().uses():
            reader = use.node
            if _is_quantized(reader, prepared):
                continue
            if reader.op_type in ADDED_BY_CONV:
                return True
            if prepared.rules.category(reader) is OpCategory.MOVEMENT:
                new = [v for v in reader.outputs if v not in seen]
                seen.update(new)
                waiting.extend(new)
    return False
