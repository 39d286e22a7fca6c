"""Carries out a plan: a float model in, an integer model out. Decides nothing.

Guard of a rewrite: a plan may come from a file, and be of other nodes than the model's.
"""

import logging

import onnx_ir as ir

from onnxq import catalog
from onnxq.core.collector import without_collector
from onnxq.dtypes import INT8, QDType
from onnxq.dynamic.check_decisions import check_decisions, does_not_fit
from onnxq.dynamic.rewrite_dynamic import opset_needed, write_dynamic
from onnxq.errors import CalibrationError, nearest
from onnxq.graph.canonical import upgrade_opset
from onnxq.graph.checks import FORMAT_KEY
from onnxq.graph.folded import write_as_given
from onnxq.graph.walk import node_name, tensor_names, walk
from onnxq.graph.weights import constant_array
from onnxq.operator.nodes import find_input
from onnxq.ort.add_norm import write_sums
from onnxq.ort.clipped_matmul import write_max
from onnxq.qconfig.quantized_input import QuantizedInput
from onnxq.qdq.compact import compact, names_in
from onnxq.qdq.float_matmul import keep_float_matmul
from onnxq.qdq.fuse import Int8Activations
from onnxq.qdq.fuse.float_biases import store_float_biases
from onnxq.qdq.integer_io import cancel_round_trips, give_integers, take_integers
from onnxq.qdq.narrow import narrow_types, store_narrow
from onnxq.qdq.qoperator import FORMATS, check_format
from onnxq.qdq.signed_integers import keep_loadable
from onnxq.qdq.write import min_opset
from onnxq.qparams import QParams
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.static.insertion.decision import Quantize, weight_of
from onnxq.static.plan import Plan
from onnxq.static.prepared import Prepared
from onnxq.static.rewrite.qdq import write_qdq

LOG = logging.getLogger(__name__)


@without_collector()
def rewrite(prepared: Prepared, plan: Plan, format: str = "qdq") -> QuantizedModel:
    """The quantized model; `prepared.model` stays as it is and shares its unquantized weights.

    Args:
        prepared: what the plan was made from.
        plan: every decision with its numbers.
        format: "qdq": QuantizeLinear and DequantizeLinear around float operators; ONNX Runtime
            fuses them to integer kernels. "qoperator": these kernels, written out; both give the
            same integers (see `write_qoperator` for what stays as it is in QDQ format).
    Raises:
        CalibrationError: the plan is of another model, or does not fit it (an edited file).
        QConfigError: the format is not known, or an end that is to be integers has none.
        UnsupportedError: the opset cannot be raised as far as the plan's types need.
    """
    check_format(format)
    if plan.model_hash != prepared.model_hash:
        raise CalibrationError(
            f"the plan is of model {plan.model_hash[:12]}, this one is {prepared.model_hash[:12]}; "
            "make the plan from this model."
        )
    if plan.outcomes != prepared.outcomes:
        raise CalibrationError(
            "the plan is of improved weights, which the prepared model does not have: rewrite what "
            "onnxq.weights returned, the Prepared and its Plan; or leave out `improve`, and plan."
        )
    LOG.info("rewriting as %s", format)
    check_plan(prepared.model, plan)
    check_decisions(prepared.model, plan.dynamic)
    model = prepared.model.clone()
    write_qdq(model, plan)
    write_dynamic(model, plan.dynamic)
    write_as_given(model)
    cancel_round_trips(model)
    take_integers(
        model, [n for n, m in prepared.quantized_input.items() if m is QuantizedInput.INTEGERS]
    )
    give_integers(model, prepared.quantized_output)
    upgrade_opset(model, max(_opset_needed(plan), opset_needed(plan.dynamic)))
    keep_loadable(model)
    keep_float_matmul(model)
    write_max(model)
    write_sums(model)
    signed = any(qparams.dtype == INT8 for qparams in plan.tensors.values())
    integers = Int8Activations.KEPT if signed else Int8Activations.SHIFTED
    model = FORMATS[format](model, integers)
    if format == "qdq":
        store_float_biases(model)
    compact(model, names_in(prepared.model))
    store_narrow(model, _narrow_types(plan))
    model.metadata_props.update(
        {
            "onnxq.target": plan.target,
            "onnxq.float_model_hash": prepared.source_hash or plan.model_hash,
            FORMAT_KEY: format,
        }
    )
    return QuantizedModel.of(model)


def write_part(model: ir.Model, plan: Plan) -> None:
    """Rewrites a part of the planned model in place: it computes what it computes in the whole.

    Args:
        model: some nodes of the canonical model; what they read of the others are its inputs. A
            node stands with those that are folded into it.
        plan: of the whole.
    """
    write_qdq(model, plan)
    write_dynamic(model, plan.dynamic)
    upgrade_opset(model, max(_opset_needed(plan), opset_needed(plan.dynamic)))
    keep_loadable(model)
    keep_float_matmul(model)
    write_max(model)
    write_sums(model)


def _narrow_types(plan: Plan) -> set[QDType]:
    dynamic = (w.qparams for d in plan.dynamic.values() for w in d.weights)
    stored = (*(w.qparams for w in plan.weights.values()), *dynamic)
    return narrow_types(qparams for qparams in stored if qparams is not None)


def _opset_needed(plan: Plan) -> int:
    every: list[QParams] = [*plan.tensors.values()]
    every += [w.qparams for w in plan.weights.values()]
    return max(map(min_opset, every), default=0)


def check_plan(model: ir.Model, plan: Plan) -> None:
    """Passes a plan whose decisions are of the model's nodes, and whose numbers are all there."""
    nodes = {node_name(node): node for node, _ in walk(model.graph)}
    tensors = set(tensor_names(model))
    for name in plan.decisions.keys() ^ nodes.keys():
        where = "plan" if name in nodes else "model"
        raise does_not_fit(name, f"the {where} has no such node.{nearest(name, nodes)}")
    for name, decision in plan.decisions.items():
        if isinstance(decision, Quantize):
            _check_slots(nodes[name], decision)
            _check_numbers(nodes[name], decision, plan, tensors)


def _check_slots(node: ir.Node, decision: Quantize) -> None:
    """Guards against slots that the node does not have."""
    rule, name = decision.rule, node_name(node)
    if catalog.find(node.op_type, node.domain) is None:
        raise does_not_fit(name, f"onnxq has no integer form of {node.op_type}.")
    weights = [] if rule.weight is None else [rule.weight.slot]
    read = [*rule.activations, *weights]
    if len(set(read)) < len(read) or any(find_input(node, slot) is None for slot in read):
        raise does_not_fit(name, f"it has {len(node.inputs)} inputs; the plan reads {read}.")
    if not rule.activations:
        raise does_not_fit(name, "the plan reads no activation of it.")
    if rule.bias is not None and (rule.bias < 0 or rule.bias in read):
        raise does_not_fit(name, f"its bias is input {rule.bias}: none, or something else too.")
    for slot in weights:
        value = find_input(node, slot)
        if value is None or value.const_value is None:
            raise does_not_fit(name, f"its weight, input {slot}, is no constant.")
    outputs = rule.outputs
    if len(set(outputs)) < len(outputs) or not set(outputs) <= set(range(len(node.outputs))):
        raise does_not_fit(name, f"it has {len(node.outputs)} outputs; the plan writes {outputs}.")


def _check_numbers(node: ir.Node, decision: Quantize, plan: Plan, tensors: set[str]) -> None:
    """Guards against qparams that are missing."""
    rule, name = decision.rule, node_name(node)
    if decision.folded_into is not None:
        into = plan.decisions.get(decision.folded_into)
        if not isinstance(into, Quantize) or into.folded_into is not None:
            raise does_not_fit(
                name, f"it is folded into '{decision.folded_into}', which is not planned."
            )
        return
    if rule.weight is not None and name not in plan.weights:
        raise does_not_fit(name, "its weight has no entry in the plan.")
    kept = None if rule.weight is None else plan.weights[name].bias_preserving
    if kept is not None and kept.axes != rule.pair_axes:
        raise does_not_fit(
            name,
            f"its weight keeps sums over axes {kept.axes}; products run over {rule.pair_axes}.",
        )
    if kept is not None and not kept.suits(constant_array(weight_of(node, rule)).shape):
        raise does_not_fit(name, "its weight has other channels than those whose sums it keeps.")
    inputs = (find_input(node, slot) for slot in rule.activations)
    read = [str(value.name) for value in inputs if value is not None]
    for tensor in (*read, *decision.results):
        if tensor not in tensors:
            raise does_not_fit(
                name, f"the model has no tensor '{tensor}'.{nearest(tensor, tensors)}"
            )
        if tensor not in plan.tensors:
            raise does_not_fit(name, f"tensor '{tensor}' has no scale in the plan.")
