"""AWQ: inputs with large channels are divided, the weights that read them multiplied alike.

    W x = (W diag(s)) (diag(1/s) x)        s = (mean square of x)^(a / 2), at a mean of 1

A weight whose input is large has a larger share of its block's range then, and a smaller error
(Lin et al. 2023). The division goes into constants ahead, a norm's or another product's, so that
nothing runs more than before; where there are none, the input stays as it is. The exponent a is the
one with which products lose least, as the float model's samples show it:

    sum over readers of    tr(D H D'),    D = W - Q diag(1/s),    Q the codes' numbers of W diag(s)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.blocks.group_walk import GroupWalk
from onnxq.blocks.plan_weights import rows_of
from onnxq.blocks.rtn import Nearest
from onnxq.blocks.seen_inputs import noise_in
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.improve.carried import carriers, undoing
from onnxq.improve.factor_sites import Site, along, with_factors
from onnxq.operator.nodes import input_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx_ir as ir

    from onnxq.blocks.plan_weights import InBlocks, WeightPlan
    from onnxq.blocks.seen_inputs import PartMoments
    from onnxq.core.arrays import Reals
    from onnxq.samples.inputs import Batch

EXPONENTS = (0.25, 0.5, 0.75, 1.0)
"""Exponents that are tried beside 0, which leaves the input as it is."""
MOST_ROWS = 256
"""Rows of a weight that the exponents are tried on, evenly spread."""
QUIET = 1e-4
"""Share of the mean power that a channel counts with at least: nothing is divided by nothing."""
LAST = -1


def folded(model: ir.Model, plan: WeightPlan, batches: Iterable[Batch]) -> ir.Model:
    """A model that computes the same, with channels divided where that helps; or the model itself.

    Args:
        model: canonical float model; it is not changed.
        plan: of its weights.
        batches: of samples.

    Raises:
        CalibrationError: samples that the model does not run on, or that make NaN or Inf.
    """
    nodes = {node_name(node): node for node, _ in walk(model.graph)}
    chosen: dict[Site, Reals] = {}
    for group, inputs in GroupWalk(model, plan, batches).groups(list(plan.quantized)):
        members = [nodes[name] for name in group.nodes]
        site = None if inputs is None else _site(members)
        if site is None or inputs is None:
            continue
        factors = _factors(members, plan, inputs.moments())
        if factors is not None:
            chosen[site] = factors
    return with_factors(model, chosen) if chosen else model


def _site(members: Sequence[ir.Node]) -> Site | None:
    """The place whose channels constants can take; None: there is none."""
    x = input_at(members[0], 0)
    size = None if x.shape is None else x.shape[LAST]
    if x.shape is None or not isinstance(size, int) or not size:
        return None
    users = list(dict.fromkeys(use.node for use in x.uses()))
    if set(users) != set(members):
        return None
    probe = along(np.linspace(1, 2, size), LAST, len(x.shape))
    if carriers(x, 1 / probe, users) is None or undoing(x, probe, users) is None:
        return None
    return Site(value_name(x), LAST, tuple(map(node_name, members)), folds=True)


def _factors(members: Sequence[ir.Node], plan: WeightPlan, moments: PartMoments) -> Reals | None:
    """The factors of the best exponent, (inputs,); None: it is 0."""
    seen = _power(moments)
    power = np.maximum(seen, QUIET * max(float(seen.mean()), 1e-30))
    tried = {a: power ** (a / 2) / np.exp(np.log(power).mean() * a / 2) for a in EXPONENTS}
    noise = {a: _noise(members, plan, moments, factors) for a, factors in tried.items()}
    none = _noise(members, plan, moments, np.ones_like(power))
    best = min(noise, key=noise.__getitem__)
    return tried[best] if noise[best] < none else None


def _noise(
    members: Sequence[ir.Node], plan: WeightPlan, moments: PartMoments, factors: Reals
) -> float:
    """Mean square of what the readers lose with these factors."""
    return sum(
        _lost(input_at(node, plan.quantized[node_name(node)].slot), decision, moments, factors)
        for node in members
        for decision in (plan.quantized[node_name(node)],)
    )


def _lost(value: ir.Value, decision: InBlocks, moments: PartMoments, factors: Reals) -> float:
    rows = rows_of(value, decision, 0, decision.outputs)[:: max(1, decision.outputs // MOST_ROWS)]
    scale = factors.astype(np.float32)
    importance = np.asarray(_power(moments) / np.square(factors), np.float32)
    made = Nearest(importance)(rows * scale, decision.spec).reals / scale
    left = np.asarray(rows - made, np.float64)
    return noise_in(left, moments) * decision.outputs / len(rows)


def _power(moments: PartMoments) -> Reals:
    """float64 (inputs,): mean square of each input."""
    return np.concatenate([each.power for _, each in moments])
