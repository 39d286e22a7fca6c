"""Opset of the model: one that onnxq and ONNX Runtime know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.graph.untrusted.problem import DAMAGED, Problem
from onnxq.operator.nodes import ONNX_DOMAINS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

OLDEST_OPSET = 7  # ONNX Runtime guarantees nothing below
NEWEST_OPSET = 26  # the last that ONNX Runtime 1.31 calls released


def check_opset(model: ir.Model) -> Iterator[Problem]:
    """Finds an opset of ai.onnx that is missing, too old or too new."""
    opset = next((model.opset_imports[d] for d in ONNX_DOMAINS if d in model.opset_imports), None)
    supported = f"supported are {OLDEST_OPSET} to {NEWEST_OPSET}"
    if opset is None:
        yield _missing(model, supported)
    elif opset < OLDEST_OPSET:
        yield Problem(
            f"opset {opset} of domain ai.onnx is too old; {supported}",
            "Export the model again, or convert it with onnx.version_converter.",
        )
    elif opset > NEWEST_OPSET:
        yield Problem(
            f"opset {opset} of domain ai.onnx is too new; {supported}",
            f"Export the model with opset_version={NEWEST_OPSET} or lower.",
        )


def _missing(model: ir.Model, supported: str) -> Problem:
    if any(node.domain in ONNX_DOMAINS for node in model.graph):
        return Problem(f"no opset of domain ai.onnx is imported ({supported})", DAMAGED)
    domains = ", ".join(f"'{domain}'" for domain in model.opset_imports) or "none"
    return Problem(
        f"it imports no opset of domain ai.onnx ({supported}), only of {domains}",
        "onnxq quantizes operators of ai.onnx, and there are none: leave this model as it is.",
    )
