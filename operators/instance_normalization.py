"""Instance normalization."""

from collections.abc import Iterable

from onnxq.operator import Case, NodeCall, Normalizing, Reals
from onnxq.operator.examples import normal
from onnxq.operators._normalize import EPSILON, axes_from, normalization, normalized, per_channel


def cases() -> Iterable[Case]:
    """1 to 3 axes, constant planes, empty batch."""
    scale, b = normal(3, seed=1), normal(3, seed=2)
    yield Case("plain", (normal(2, 3, 5, 4), scale, b), (1, 2))
    yield Case("1d", (normal(2, 3, 9), scale, b), (1, 2), {"epsilon": 0.1})
    yield Case("3d", (normal(2, 3, 2, 4, 3), scale, b), (1, 2))
    yield Case("parameters computed at run time", (normal(2, 3, 5, 4), scale, b))
    yield Case("constant planes", (0 * normal(2, 3, 5, 4) + 1, scale, b), (1, 2))
    yield Case("empty batch", (normal(0, 3, 5, 4), scale, b), (1, 2))


def averages(call: NodeCall) -> Normalizing:
    """Means over the spatial axes."""
    return Normalizing(2, 1, epsilon=call.real("epsilon", EPSILON))


@normalization("InstanceNormalization", cases=cases, averages=averages)
def instance_normalization(
    x: Reals, scale: Reals, bias: Reals, *, epsilon: float = EPSILON
) -> Reals:
    """Y = (X - mean) / sqrt(variance + epsilon) * scale + B over the spatial axes.

    ONNX InstanceNormalization-22, 1 to 3 of them; scale and B per channel.
    """
    y = normalized(x, axes_from(2, x.ndim), epsilon)
    return y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)
