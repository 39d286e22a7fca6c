"""Inputs of linear layers as the model alone tells them, where no sample was seen.

Raw data, such as the pixels of a patch or the samples of a sound, are much the same:

    x_i = m + n_i        E[x x'] = E[n n'] + E[m^2] 1 1'

What the numbers have in common adds the errors of a row up before they are squared. It is in what a
model is given, as far as that is moved, or scaled by constants, and no norm has taken it out.

Behind a norm, channels have about the power that its constants give them, whatever it reads:

    x_i = gain_i z_i + shift_i        E[x_i^2] = E[z_i^2] gain_i^2 + shift_i^2

E[z_i^2] is 1 on the average over the channels, and not known of each. So half of it is believed, in
decibels: errors count by the root of what it would be at 1.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.core.arrays import Singles
from onnxq.graph.passes.fold_factors import SATURATION_MODE
from onnxq.graph.walk import value_name
from onnxq.graph.weights import constant
from onnxq.operator import Float, Normalizing
from onnxq.operator.nodes import find_input, is_constant
from onnxq.operator.rule import OpCategory

ALIKE = 1.0
"""Power that raw data has in common, over what each number has of its own."""
TRUST = 0.5
"""Exponent of the power: the whole power would trust what layers leave of raw data as if samples
had shown it. 4-bit logits of models/decoder and models/transformer get no worse by hqq with it than
they are by rtn (benchmarks/results/weights.md)."""
PROBE = 2
"""Channels of a factor that asks which parameters carry one."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Input of a linear layer, as far as the model tells.

    Attributes:
        alike: how much its numbers are the same, as `search_ranges` has it.
        power: float32 (inputs,), what an error of each number's weight counts, at a mean of 1;
            None: all the same.
    """

    alike: float = 0.0
    power: Singles | None = None


UNKNOWN = Known()


def raw_tensors(model: ir.Model) -> set[str]:
    """Names of a model's inputs, and of the tensors that they are moved or scaled to."""
    raw = {value for value in model.graph.inputs if value.name}
    for node in model.graph:
        data = [v for slot, v in enumerate(node.inputs) if v and not is_constant(node, slot)]
        if data and raw.issuperset(data) and _keeps(node, len(data)):
            raw.update(value for value in node.outputs if value.name)
    return {value_name(value) for value in raw}


def power_behind_norm(value: ir.Value) -> Singles | None:
    """Weights of errors in each channel of the last axis, at a mean of 1; None: no norm tells."""
    node = value.producer()
    operator = None if node is None else catalog.find(node.op_type, node.domain)
    if node is None or operator is None or value.shape is None or value is not node.outputs[0]:
        return None
    if not any(isinstance(each, Normalizing) for each in operator.responses(node)):
        return None
    along = np.ones([1] * (len(value.shape) - 1) + [PROBE])
    parameters = [slot for way in operator.scaled(node, along) for slot in way]
    found = [constant(each) for slot in parameters if (each := find_input(node, slot)) is not None]
    squares = [np.square(array.numpy(), dtype=np.float64) for array in found if array is not None]
    if len(squares) < len(found) or not squares or any(each.ndim != 1 for each in squares):
        return None
    power = np.sum(np.broadcast_arrays(*squares), axis=0) ** TRUST
    mean = power.mean()
    return np.asarray(power / mean, np.float32) if np.isfinite(mean) and mean > 0 else None


def _keeps(node: ir.Node, operands: int) -> bool:
    """Whether results are alike where all operands are."""
    operator = catalog.find(node.op_type, node.domain)
    rule = None if operator is None else operator.rule(node)
    if rule is None or isinstance(rule, Float):
        return False
    scales = node.op_type in SATURATION_MODE and operands == 1
    return scales or rule.category in (OpCategory.MOVEMENT, OpCategory.CLAMP)
