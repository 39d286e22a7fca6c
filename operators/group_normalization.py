"""Group normalization."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Case, NodeCall, Normalizing, Reals
from onnxq.operator.examples import normal
from onnxq.operators._normalize import EPSILON, axes_from, normalization, normalized, per_channel


def cases() -> Iterable[Case]:
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


def averages(call: NodeCall) -> Normalizing:
    """Means over groups of channels; scales per channel since opset 21."""
    groups = call.integer("num_groups", 1)
    return Normalizing(2, 1, groups, call.real("epsilon", EPSILON))


@normalization("GroupNormalization", cases=cases, averages=averages)
def group_normalization(
    x: Reals, scale: Reals, bias: Reals, *, num_groups: int = 0, epsilon: float = EPSILON
) -> Reals:
    """Y = (X - mean) / sqrt(variance + epsilon) * scale + bias over groups of channels.

    ONNX GroupNormalization-21; X is (N, C, *spatial), C a multiple of num_groups. Since 21 scale
    and bias are per channel; in 18 they are per group. ONNX Runtime has no kernel, it runs the
    operator's ONNX function.
    """
    if x.ndim < 2 or num_groups < 1 or x.shape[1] % num_groups:
        raise ValueError(
            f"x {x.shape}, num_groups {num_groups}; wanted (N, C, *spatial), C a multiple of "
            "num_groups."
        )
    channels = x.shape[1]
    split = x.reshape(x.shape[0], num_groups, channels // num_groups, *x.shape[2:])
    y = normalized(split, axes_from(2, split.ndim), epsilon).reshape(x.shape)
    scale, bias = (
        np.repeat(v, channels // num_groups) if v.size == num_groups else v for v in (scale, bias)
    )
    return y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)
