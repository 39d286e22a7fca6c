"""qparams of constants: the weight and the bias of a node."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.dtypes import INT8, INT32
from onnxq.errors import ModelError
from onnxq.graph.prequantized_weights import is_prequantized
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.graph.weights import constant_array
from onnxq.observers.weight_observation import WeightKey
from onnxq.operator import Rule
from onnxq.operator.nodes import has_input, input_at
from onnxq.ort.matmul_add import matmul_add
from onnxq.qparams import MIN_SCALE, PerChannel, PerTensor, QParams, scale_for_int32_bias, sum_scale
from onnxq.static.insertion.decision import (
    Decision,
    Quantize,
    weight_limit,
    weight_observer,
    weight_of,
)
from onnxq.static.prepared import Prepared
from onnxq.targets.bias_preserving import (
    BiasPreservingRounding,  # the codec reads annotations at run time
)


@dataclass(frozen=True, slots=True)
class PlannedWeight:
    """How one node's weight is stored.

    Attributes:
        integer_limit: integers are clipped to [-integer_limit, integer_limit]; None: the type's own
            range.
        channel_scale: one factor per row that the float weight is multiplied by first; None: none.
        bias_preserving: how integers are rounded; None: to the nearest.
    """

    tensor: str
    qparams: QParams
    integer_limit: int | None
    channel_scale: tuple[float, ...] | None = None
    bias_preserving: BiasPreservingRounding | None = None


@dataclass(frozen=True, slots=True)
class PlannedBias:
    """int32 integers of a bias at x_scale * w_scale, zero point 0.

    Attributes:
        channel_scale: one factor per channel that the float bias is multiplied by first; None:
            none.
    """

    tensor: str
    qparams: QParams
    channel_scale: tuple[float, ...] | None = None


def weight_key(prepared: Prepared, node: ir.Node, rule: Rule) -> WeightKey:
    """Key of a node's weight: tensor, observer, and the integers that the target runs exactly."""
    assert rule.weight is not None
    spec = weight_observer(node, rule, prepared.qconfig)
    limit = weight_limit(rule, prepared.target)
    if not spec().qscheme.symmetric and rule.saturating_pairs:
        # a larger scale moves integers towards the zero point, which may itself be too large
        limit = prepared.target.weight_qmax_saturating
    return WeightKey(value_name(weight_of(node, rule)), rule.weight.axis, limit, spec)


def plan_weight(key: WeightKey, qparams: QParams, value: ir.Value) -> PlannedWeight:
    """Plan of the key's weight, with qparams that `qparams_of_weight` found for it."""
    has_least = key.limit == INT8.qmax and is_prequantized(value)  # whose integers may be -128
    limited = qparams.dtype == INT8 and not has_least
    return PlannedWeight(key.tensor, qparams, key.limit if limited else None)


def with_channel_scale(
    weight: PlannedWeight,
    made: npt.NDArray[np.float32] | None,
    read: npt.NDArray[np.float32] | None,
) -> PlannedWeight:
    """The weight whose row o is multiplied by made[o] / read[channel that row o sees].

    The scales take the factors, so that the integers stay the same.

    Args:
        weight: with a scale per row.
        made: float32 (rows,), channel scales of the node's result; None: none.
        read: float32 (channels,), those of its input; channels divide rows; None: none.
    """
    rows = weight.qparams.scale.size
    channel_scale = np.ones(rows, np.float32) if made is None else made
    if read is not None:
        channel_scale = np.divide(
            channel_scale, np.repeat(read, rows // read.size), dtype=np.float32
        )
    scale = np.maximum(weight.qparams.scale * channel_scale, MIN_SCALE)
    qparams = dataclasses.replace(weight.qparams, scale=scale)
    return dataclasses.replace(weight, qparams=qparams, channel_scale=tuple(channel_scale.tolist()))


def check_weights_left(prepared: Prepared, decisions: Mapping[str, Decision]) -> None:
    """Passes finite weights and biases of the nodes that their activations alone left in float.

    A NaN in a weight makes its results NaN, which must not pass for a habit of the model.
    """
    nodes = {node_name(node): node for node, _ in walk(prepared.model.graph)}
    for name, wanted in prepared.decisions.items():
        if not isinstance(wanted, Quantize) or isinstance(decisions[name], Quantize):
            continue
        rule = wanted.rule
        if rule.weight is None or wanted.folded_into:
            continue
        constants = {"weight": weight_of(nodes[name], rule)}
        if rule.bias is not None and has_input(nodes[name], rule.bias):
            constants["bias"] = input_at(nodes[name], rule.bias)
        for kind, value in constants.items():
            if not np.isfinite(constant_array(value)).all():
                raise ModelError(
                    f"{kind} '{value.name}' of '{name}' holds NaN or Inf; repair the model."
                )


def plan_bias(
    node: ir.Node,
    rule: Rule,
    x: QParams,
    weight: PlannedWeight,
    made: npt.NDArray[np.float32] | None = None,
) -> tuple[PlannedWeight, PlannedBias, list[str]]:
    """The bias at x_scale * w_scale; the weight, with a larger scale where it left int32; notes.

    `made`: float32 (channels,), channel scales of the node's result; None: none.
    """
    assert rule.bias is not None
    value = input_at(node, rule.bias)
    bias = constant_array(value).astype(np.float64)
    if not np.isfinite(bias).all():
        raise ModelError(
            f"bias '{value.name}' of '{node.name}' holds NaN or Inf; repair the model."
        )
    if made is not None:
        bias = bias * made
    weight, notes = _raised(node, weight, scale_for_int32_bias(weight.qparams.scale, bias, x.scale))
    scale = sum_scale(x, weight.qparams)
    if scale.ndim:  # one scale per element of the bias: groups share those of the weight
        columns = bias.shape[-1] if bias.ndim else 1
        scale = np.tile(scale, max(columns // max(scale.size, 1), 1))
    # a bias of one row, or of one element, is stored as a vector; Gemm's may have a row per sample
    rows = bias.ndim > 1 and bias.shape[0] > 1
    granularity = PerChannel(int(rows)) if scale.ndim else PerTensor()
    qparams = QParams(scale, np.zeros(scale.shape, np.int32), INT32, granularity)
    channel_scale = None if made is None else tuple(made.tolist())
    return weight, PlannedBias(value_name(value), qparams, channel_scale), notes


def folded_bias(node: ir.Node, decisions: Mapping[str, Decision]) -> ir.Value | None:
    """The bias of an Add that is folded into a MatMul; None: there is none."""
    found = matmul_add(node)
    decision = None if found is None else decisions[node_name(found.add)]
    if found is None or not isinstance(decision, Quantize):
        return None
    return found.bias if decision.folded_into == node_name(node) else None


def with_room(
    node: ir.Node, bias: ir.Value, x: QParams, weight: PlannedWeight
) -> tuple[PlannedWeight, list[str]]:
    """The weight of a MatMul whose float bias ONNX Runtime may round to int32 by itself; notes.

    It does so where the sizes make a Gemm of MatMul and Add (see onnxq.ort.matmul_add), at
    float32(x_scale * w_scale): that must not be 0, and the quotient must not leave int32. A session
    may fix sizes that the model leaves open, so that the sizes of the model do not matter here.
    """
    needed = scale_for_int32_bias(
        weight.qparams.scale, constant_array(bias).astype(np.float64), x.scale
    )
    with np.errstate(over="ignore"):
        least = np.float32(MIN_SCALE / x.scale)
    return _raised(node, weight, np.maximum(needed, least))


def _raised(
    node: ir.Node, weight: PlannedWeight, scale: npt.NDArray[np.float32]
) -> tuple[PlannedWeight, list[str]]:
    """The weight at these scales; a note where they are larger than its own."""
    count = int(np.count_nonzero(scale > weight.qparams.scale))
    if not count:
        return weight, []
    note = (
        f"'{node.name}': the weight scale of {count} channel(s) was raised so that the bias "
        "fits int32 at x_scale * w_scale"
    )
    qparams = dataclasses.replace(weight.qparams, scale=scale)
    return dataclasses.replace(weight, qparams=qparams), [note]
