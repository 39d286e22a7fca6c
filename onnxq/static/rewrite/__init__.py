"""Carries out a plan: a float model in, an integer model out. Decides nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onnxq.core.collector import without_collector
from onnxq.dtypes import INT8
from onnxq.dynamic.check_decisions import check_decisions
from onnxq.dynamic.rewrite_dynamic import opset_needed, write_dynamic
from onnxq.errors import CalibrationError
from onnxq.graph.canonical import upgrade_opset
from onnxq.graph.checks import FORMAT_KEY
from onnxq.ort.add_norm import write_sums
from onnxq.ort.clipped_product import write_max
from onnxq.qconfig.quantized_input import QuantizedInput
from onnxq.qdq.compact import compact, names_in
from onnxq.qdq.ends import cancel_round_trips, give_integers, take_integers
from onnxq.qdq.float_products import keep_float_products
from onnxq.qdq.fuse import Int8Activations
from onnxq.qdq.qoperator import FORMATS, check_format
from onnxq.qdq.signed_integers import keep_loadable
from onnxq.qdq.write import min_opset
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.static.check_plan import check_plan
from onnxq.static.rewrite.qdq import write_qdq

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.qparams import QParams
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import Prepared

LOG = logging.getLogger(__name__)


@without_collector()
def rewrite(prepared: Prepared, plan: Plan, format: str = "qdq") -> QuantizedModel:
    """The quantized model; `prepared.model` stays as it is and shares its unquantized weights.

    Args:
        prepared: what the plan was made from.
        plan: every decision with its numbers.
        format: "qdq": QuantizeLinear and DequantizeLinear around float operators; ONNX Runtime
            fuses them to integer kernels. "qoperator": these kernels, written out; both give the
            same integers (see `write_qoperator` for what stays as it is in QDQ form).
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
    if plan.improvements != prepared.improvements:
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
    cancel_round_trips(model)
    take_integers(
        model, [n for n, m in prepared.quantized_input.items() if m is QuantizedInput.INTEGERS]
    )
    give_integers(model, prepared.quantized_output)
    upgrade_opset(model, max(_opset_needed(plan), opset_needed(plan.dynamic)))
    keep_loadable(model)
    keep_float_products(model)
    write_max(model)
    write_sums(model)
    model = FORMATS[format](model, _int8_integers(plan))
    compact(model, names_in(prepared.model))
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

    Raises:
        UnsupportedError: the opset cannot be raised as far as the plan's types need.
    """
    write_qdq(model, plan)
    write_dynamic(model, plan.dynamic)
    upgrade_opset(model, max(_opset_needed(plan), opset_needed(plan.dynamic)))
    keep_loadable(model)
    keep_float_products(model)
    write_max(model)
    write_sums(model)


def _int8_integers(plan: Plan) -> Int8Activations:
    """Form of int8 activations: a plan has them only where its target runs them."""
    signed = any(qparams.dtype == INT8 for qparams in plan.tensors.values())
    return Int8Activations.KEPT if signed else Int8Activations.SHIFTED


def _opset_needed(plan: Plan) -> int:
    every: list[QParams] = [*plan.tensors.values()]
    every += [w.qparams for w in plan.weights.values()]
    return max(map(min_opset, every), default=0)
