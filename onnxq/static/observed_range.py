"""A plan whose weights give up range only where products left int16 on the samples.

The quantized model is run on the samples as x86 without VNNI would, and the scales of the channels
in which a pair of products left int16 are raised until none can. Other scales change what the
layers behind see, so this is repeated until no sum leaves int16. A channel that was raised stays
so, whatever comes; hence it ends.

Exact on these samples alone: on other inputs, other channels may saturate.
"""

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.samples import Batches, input_specs, open_samples
from onnxq.samples.state import State
from onnxq.static.plan import Plan, plan
from onnxq.static.prepared import Prepared
from onnxq.static.rewrite import rewrite
from onnxq.static.statistics import Statistics
from onnxq.targets.accumulation import Overflows, SaturationEffect, SaturationMode
from onnxq.targets.reduce_range import ReduceRange

Channels = dict[str, frozenset[int]]
"""Name of a node, or of its weight -> channels."""


def plan_as_targeted(
    prepared: Prepared,
    statistics: Statistics,
    samples: object | None,
    objective: Objective = Objective.SPEED,
) -> Plan:
    """Plan by `plan_observed` where the target asks for that, else by `plan`."""
    if prepared.target.reduce_range is not ReduceRange.OBSERVED or samples is None:
        return plan(prepared, statistics, objective)
    return plan_observed(prepared, statistics, samples, objective)


def plan_observed(
    prepared: Prepared,
    statistics: Statistics,
    samples: object,
    objective: Objective = Objective.SPEED,
) -> Plan:
    """Plan, as of `plan`, for a target whose reduced range is OBSERVED."""
    saturated: Channels = {}
    made = plan(prepared, statistics, objective, saturated)
    if not prepared.target.reduces_range:
        return made
    inputs = input_specs(prepared.model, prepared.feedback.values())
    batches = open_samples(samples, inputs)
    while True:
        state = State(inputs, prepared.feedback)
        found = _overflowing(rewrite(prepared, made, "qdq"), batches, state)
        seen = _by_weight(made, found)
        more = {
            name: channels | saturated.get(name, frozenset()) for name, channels in seen.items()
        }
        if saturated | more == saturated:
            return made
        saturated |= more
        made = plan(prepared, statistics, objective, saturated)


def _overflowing(model: ir.Model, batches: Batches, state: State) -> Channels:
    """Node -> channels in which a pair of products left int16; sums stay exact meanwhile."""
    # the kernels of all of ONNX, 0.2 s of CPU time to import: for those alone who come here
    from onnxq import reference
    from onnxq.reference.float_nodes import FloatNodes

    channels: dict[str, set[int]] = {}

    def hear(node: onnx.NodeProto, found: Overflows) -> None:
        channels.setdefault(node.name, set()).update(found.channel.tolist())

    evaluator = reference.evaluator(
        model,
        float_nodes=FloatNodes(model),
        saturation_mode=SaturationMode.SATURATES,
        hear=hear,
        effect=SaturationEffect.NOTED,
    )
    names = [value.name for value in model.graph.outputs]
    for batch in batches:
        results: list[npt.NDArray[np.generic]] = evaluator.run(None, state.feeds(batch))
        state.keep({str(n): result for n, result in zip(names, results, strict=True)})
    return {name: frozenset(found) for name, found in channels.items()}


def _by_weight(made: Plan, found: Channels) -> Channels:
    """Channels of nodes that have a weight to hold back; MatMuls of two activations have none."""
    channels: Channels = {}
    for name in found.keys() & made.weights.keys():
        weight = made.weights[name]
        # a transposed convolution runs as one with the channels of each phase, one after another
        count = max(weight.qparams.scale.size, 1)
        seen = frozenset(channel % count for channel in found[name])
        channels[weight.tensor] = seen | channels.get(weight.tensor, frozenset())
    return channels
