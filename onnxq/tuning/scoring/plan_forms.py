"""Precisions that the nodes of a plan take, as a model of times reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.static.insertion.decision import Quantize

if TYPE_CHECKING:
    from onnxq.operator import Precision
    from onnxq.static.plan import Plan


def forms_of(plan: Plan) -> dict[str, Precision | None]:
    """The forms of a plan's nodes.

    Args:
        plan: of a quantized model.
    """
    inside = {
        name
        for name, decision in plan.decisions.items()
        if isinstance(decision, Quantize) and decision.folded_into
    }
    return {n: None if n in inside else choice.precision for n, choice in plan.choices.items()}
