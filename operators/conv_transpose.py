"""Transposed convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.operator import Case, Float, Operator, Rule, register
from onnxq.operators._examples import normal

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx_ir as ir


@register
class ConvTranspose(Operator):
    """Y[n, o, i * stride + k - pad] += X[n, c, i] * W[c, o, k]; ONNX ConvTranspose-11.

    ONNX Runtime has no integer kernel and fuses nothing: Q and DQ around it only cost time (0.3 to
    0.7 of its float speed was measured for such nodes) and precision.
    """

    op_type = "ConvTranspose"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Float, whatever the node."""
        return Float(
            "ONNX Runtime has no integer kernel for ConvTranspose: quantizers around it would only "
            "slow it down"
        )

    def cases(self) -> Iterable[Case]:
        """One."""
        yield Case("plain", (normal(1, 3, 4, 4), normal(3, 2, 3, 3, seed=1)), (1,))
