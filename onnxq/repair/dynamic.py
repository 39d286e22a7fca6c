"""Repair of what `quantize_dynamic` made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.checking.with_verdict import check_bound_is_seen, make_dynamic
from onnxq.repair.slower import dynamic_worth_it

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.checking.check import Check
    from onnxq.checking.runnable import Made
    from onnxq.checking.validation import Validation
    from onnxq.dynamic.dynamic_decision import DynamicPlan


def make_and_repair(
    source: ir.Model, plan: DynamicPlan, validation: Validation | None, check: Check
) -> Made[DynamicPlan]:
    """Plan and model, repaired where the verdict is low; the bound is on the outcome.

    Args:
        source: canonical float model.
        plan: made from it.
        validation: what to run it on; None: it is not run.
        check: has the bound, and says what may be repaired.
    """
    bound = check.min_sqnr_db
    if validation is None or check.repair is None:
        return make_dynamic(source, plan, validation, bound)
    check_bound_is_seen(validation, bound)

    def make(plan: DynamicPlan) -> Made[DynamicPlan]:
        return make_dynamic(source, plan, validation)

    made = dynamic_worth_it(source, make(plan), make, validation.work)
    if bound is not None and made.model.verdict is not None:
        made.model.verdict.check(bound)
    return made
