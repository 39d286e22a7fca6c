"""Tensors that calibration looks at for what errors become behind them, not for qparams of theirs.

Few are: the inputs of normalizations, per channel, and those of functions that amplify somewhere.
"""

import onnx_ir as ir

from onnxq import catalog
from onnxq.graph.walk import value_name, walk
from onnxq.observers import FloatHistogramObserver, NormalizationObserver, ObserverSpec
from onnxq.operator import Curve, Normalizing, Response


def responses(node: ir.Node) -> tuple[Response, ...]:
    """How the node answers to errors of its inputs; empty: nothing is known of it."""
    operator = catalog.find(node.op_type, node.domain)
    return () if operator is None else operator.responses(node)


def probed(model: ir.Model) -> dict[str, ObserverSpec]:
    """Tensor -> observer, for the float32 inputs of Curve and Normalizing outside of loops."""
    found: dict[str, ObserverSpec] = {}
    for node, loop in walk(model.graph):
        if loop is not None:
            continue
        for response in responses(node):
            match response:
                case Curve(slot=slot):
                    spec = FloatHistogramObserver.with_args()
                case Normalizing():
                    slot, spec = 0, normalization_spec(response)
                case _:
                    continue
            value = node.inputs[slot]
            if value is None or value.dtype != ir.DataType.FLOAT or value.is_initializer():
                continue
            found.setdefault(value_name(value), spec)
    return found


def normalization_spec(response: Normalizing) -> ObserverSpec:
    """The observer that sees a tensor as this normalization does."""
    return NormalizationObserver.with_args(
        axis=response.axis,
        ch_axis=response.ch_axis,
        groups=response.groups,
        epsilon=response.epsilon,
        centred=response.centred,
    )
