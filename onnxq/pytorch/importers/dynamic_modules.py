"""Dynamically quantized torch.ao modules, exported as float modules, become integers again.

The plan of `onnxq.quantize_dynamic` says how ONNX Runtime runs each node; its scales, which an
observer found, are replaced by those of the packed parameters.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from onnxq import targets
from onnxq.affine import quantize
from onnxq.dtypes import INT8
from onnxq.dynamic.dynamic_decision import Objective, QuantizeDynamic
from onnxq.dynamic.dynamic_plan import dynamic_plan
from onnxq.dynamic.dynamic_weights import permuted, unpermuted
from onnxq.dynamic.reasons import WeightsStored
from onnxq.dynamic.rewrite_dynamic import rewrite_dynamic
from onnxq.errors import ModelError
from onnxq.graph.canonical import canonicalize_module
from onnxq.graph.io import model_hash
from onnxq.graph.walk import node_name, walk
from onnxq.graph.weights import constant_array
from onnxq.operator import Precision
from onnxq.ort.types_by_run import types_by_run
from onnxq.pytorch.exporting.dynamic_export import entries_of_nodes
from onnxq.pytorch.importers.int8_weights import INT8_MAX, within
from onnxq.qconfig import QConfigDynamic, float16_dynamic_qconfig, onnxq_default_dynamic_qconfig
from onnxq.qdq.tidy import holds_integers
from onnxq.qparams import PerChannel, PerTensor, QParams

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch import nn

    from onnxq.dynamic.dynamic_decision import DynamicWeightPlan
    from onnxq.pytorch.importers.dequantized import Dequantized

_INTEGER = QConfigDynamic(onnxq_default_dynamic_qconfig.weight, Precision.DYNAMIC_INT8)


def quantize_again(
    model: nn.Module, exported: ir.Model, dequantized: Dequantized, limit: int | None
) -> ir.Model:
    """The exported model with integer linear layers where the dequantized modules are.

    Args:
        model: that was exported, with the dequantized modules in it.
        exported: the ONNX model.
        dequantized: which modules they are, and their scales.
        limit: integers are brought into [-limit, limit]; None: as torch has them.
    """
    entries: dict[type[nn.Module] | str, QConfigDynamic | None] = {
        path: _INTEGER if integers else float16_dynamic_qconfig
        for path, integers in dequantized.paths.items()
    }
    canonical = exported  # canonicalizing would fold the DequantizeLinear of static weights
    if not holds_integers(exported):
        canonical = canonicalize_module(exported, types_by_run).model
    mapping = entries_of_nodes(model, canonical, entries)
    found = model_hash(canonical)
    plan = dynamic_plan(canonical, mapping, targets.get_default(), Objective.SIZE, known_hash=found)
    nodes = {node_name(node): node for node, _ in walk(canonical.graph)}
    decisions = {
        name: _with_scales(decision, nodes[name], dequantized, limit)
        if isinstance(decision, QuantizeDynamic)
        else decision
        for name, decision in plan.decisions.items()
    }
    return rewrite_dynamic(canonical, dataclasses.replace(plan, decisions=decisions), found)


def _with_scales(
    decision: QuantizeDynamic, node: ir.Node, dequantized: Dequantized, limit: int | None
) -> QuantizeDynamic:
    if decision.precision is Precision.WEIGHT_ONLY_FLOAT16:
        return decision
    weights = tuple(_with_scale(weight, node, dequantized, limit) for weight in decision.weights)
    how = WeightsStored("int8 weights as torch packed them", "activations quantized at run time")
    return dataclasses.replace(decision, how=how, weights=weights)


def _with_scale(
    weight: DynamicWeightPlan, node: ir.Node, dequantized: Dequantized, limit: int | None
) -> DynamicWeightPlan:
    """The plan of a weight with the scales that torch has for its rows."""
    value = node.inputs[weight.slot]
    if value is None or weight.qparams is None:
        raise AssertionError("a weight of a node that is quantized")
    array = constant_array(value)
    planned = unpermuted(weight.qparams, weight.perm)
    per_channel = isinstance(planned.granularity, PerChannel)
    axis = planned.granularity.axis if isinstance(planned.granularity, PerChannel) else 0
    rows = np.ascontiguousarray(np.moveaxis(array, axis, 0)).reshape(array.shape[axis], -1)
    known = [dequantized.rows.get(row.tobytes()) for row in rows]
    if any(pair is None for pair in known):
        raise ModelError(
            f"'{node_name(node)}' reads weight '{weight.tensor}', which is not as torch packed it: "
            "the exporter has changed its values. Import the modules one by one to find it."
        )
    pairs = [pair for pair in known if pair is not None]
    if per_channel:
        scale, zero = (np.array(part) for part in zip(*pairs, strict=True))
        qparams = QParams(scale, zero, INT8, PerChannel(axis))
    else:
        qparams = QParams(np.array(pairs[0][0]), np.array(pairs[0][1]), INT8, PerTensor())
    if limit is not None and limit < INT8_MAX:
        _, scale = within(quantize(array, qparams).astype(np.int8), qparams.scale, limit, axis)
        qparams = dataclasses.replace(qparams, scale=scale)
    return dataclasses.replace(weight, qparams=permuted(qparams, weight.perm), integer_limit=limit)
