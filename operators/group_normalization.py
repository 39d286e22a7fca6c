"""Group normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from onnxq.errors import ShapeError
from onnxq.operator import (
    Array,
    Call,
    Case,
    Float,
    Form,
    Operator,
    Role,
    Rule,
    Site,
    register,
)
from onnxq.operator.examples import normal
from onnxq.operators._function import around_kernel, lower_around
from onnxq.operators._normalize import EPSILON, normalized, per_channel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import onnx_ir as ir

    Reals = npt.NDArray[np.float64]


@register
class GroupNormalization(Operator):
    """Y = (X - mean) / sqrt(variance + epsilon) * scale + bias over groups of channels.

    ONNX GroupNormalization-21; X is (N, C, *spatial), C a multiple of num_groups. Since 21 scale
    and bias are per channel; in 18 they are per group. ONNX Runtime has no kernel at all, it runs
    the operator's ONNX function: in float32 between codes, scale and bias are float.
    """

    op_type = "GroupNormalization"

    def rule(self, node: ir.Node) -> Rule | Float:
        """X is an activation, scale and bias stay as they are."""
        return Rule(Role.ELEMENTWISE, form=Form.FLOAT)

    def cases(self) -> Iterable[Case]:
        """Both meanings of scale, groups of one and of all channels, ranks, constant groups."""
        scale, b = normal(6, seed=1), normal(6, seed=2)
        x = normal(2, 6, 5, 4)
        yield Case("plain", (x, scale, b), (1, 2), {"num_groups": 3})
        yield Case("one group", (x, scale, b), (1, 2), {"num_groups": 1, "epsilon": 0.1})
        yield Case("a group per channel", (x, scale, b), (1, 2), {"num_groups": 6})
        yield Case("1d", (normal(2, 6, 9), scale, b), (1, 2), {"num_groups": 2})
        yield Case("3d", (normal(2, 6, 2, 3, 4), scale, b), (1, 2), {"num_groups": 2})
        per_group = (x, scale[:3], b[:3])
        yield Case("parameters per group", per_group, (1, 2), {"num_groups": 3}, opset=18)
        yield Case("constant groups", (0 * x + 1, scale, b), (1, 2), {"num_groups": 3})

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """The operator between DequantizeLinear and QuantizeLinear."""
        return lower_around(site)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        groups, epsilon = call.integer("num_groups", 0), call.real("epsilon", EPSILON)
        x = call.inputs[0]
        if x is None or x.ndim < 2 or groups < 1 or x.shape[1] % groups:
            got = "nothing" if x is None else x.shape
            raise ShapeError(
                f"GroupNormalization: x {got}, num_groups {groups}; wanted (N, C, *spatial), "
                "C a multiple of num_groups."
            )
        return (around_kernel(call, _function(groups, epsilon)),)


def _function(groups: int, epsilon: float) -> Callable[..., Reals]:
    def function(x: Reals, scale: Reals, bias: Reals) -> Reals:
        channels = x.shape[1]
        split = x.reshape(x.shape[0], groups, channels // groups, *x.shape[2:])
        y = normalized(split, tuple(range(2, split.ndim)), epsilon).reshape(x.shape)
        scale, bias = (
            np.repeat(v, channels // groups) if v.size == groups else v for v in (scale, bias)
        )
        return y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)

    return function
