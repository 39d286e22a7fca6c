"""Means of what weights are multiplied by, where weights give up range and are rounded by them.

A target whose pairs of products saturate has larger scales (see onnxq.static.planning.pair_range);
which of two integers a weight then takes follows from these means (onnxq.targets.bias_preserving).
Of other targets calibration looks at none.
"""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxq.graph.walk import node_name, value_name, walk
from onnxq.graph.weights import constant_array
from onnxq.observers import ChannelMeanObserver, Observer, ObserverSpec
from onnxq.operator import Rule
from onnxq.operator.nodes import input_at, is_constant
from onnxq.static.insertion.decision import Decision, Quantize, weight_of
from onnxq.targets import Target
from onnxq.targets.bias_preserving import InputMeans


def averaged(
    model: ir.Model, decisions: Mapping[str, Decision], target: Target
) -> dict[str, ObserverSpec]:
    """Tensor -> observer, for the float32 inputs of weights whose pairs may leave int16."""
    found: dict[str, ObserverSpec] = {}
    if not target.reduces_range:
        return found
    for node, loop in walk(model.graph):
        decision = decisions[node_name(node)]
        if loop is not None or not isinstance(decision, Quantize) or not decision.rule.pair_axes:
            continue
        value = input_at(node, decision.rule.activations[0])
        if value.dtype == ir.DataType.FLOAT and not is_constant(node, decision.rule.activations[0]):
            axis = _channel_axis(node, decision.rule)
            found.setdefault(value_name(value), ChannelMeanObserver.with_args(ch_axis=axis))
    return found


def input_means(node: ir.Node, rule: Rule, probed: Mapping[str, Observer]) -> InputMeans | None:
    """Means of the channels that a node's weight is multiplied by; None: nobody looked at them."""
    seen = probed.get(value_name(input_at(node, rule.activations[0])))
    if not rule.pair_axes or not isinstance(seen, ChannelMeanObserver) or not seen.rows:
        return None
    axis = rule.pair_axes[-1]  # of one tap, channels are neighbours
    sizes = constant_array(weight_of(node, rule)).shape
    # another node may read the tensor along another axis
    if seen.ch_axis_of_data != _channel_axis(node, rule):
        return None
    means, deviations = seen.means.tolist(), np.sqrt(seen.variances).tolist()
    inputs = InputMeans(axis, tuple(means), tuple(deviations))
    return inputs if inputs.suits({axis: sizes[axis]}) else None


def _channel_axis(node: ir.Node, rule: Rule) -> int:
    """Axis of the activation along which products are summed."""
    if len(rule.pair_axes) > 1:  # taps and channels
        return 1
    return 0 if node.attributes.get_int("transA", 0) else -1
