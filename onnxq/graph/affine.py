"""BatchNormalization in eval mode as the affine function that it is."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.core.arrays import Reals
from onnxq.graph.walk import is_read

_DEFAULT_EPSILON = 1e-5
_PARAMETERS = range(1, 5)  # slots of scale, bias, mean and variance


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """y = (x - mean) * factor + beta, per channel.

    Attributes:
        factor: gamma / sqrt(variance + epsilon); float64 (channels,).
        mean: float64 (channels,).
        beta: float64 (channels,).
    """

    factor: Reals
    mean: Reals
    beta: Reals


def affine_of(
    norm: ir.Node, constant_in: Callable[[ir.Node, int], npt.NDArray[np.generic] | None]
) -> Affine | None:
    """The function that the node computes; None: it is not this one, or not known before it runs.

    Args:
        norm: any node.
        constant_in: (node, slot) -> the array that is there before the model runs, or None. It is
            asked for scale, bias, mean and variance of a BatchNormalization alone.
    """
    if norm.op_type != "BatchNormalization" or norm.domain:
        return None
    if norm.attributes.get_int("training_mode", 0) or any(is_read(y) for y in norm.outputs[1:]):
        return None
    found = [constant_in(norm, slot) for slot in _PARAMETERS]
    known = [x.astype(np.float64) for x in found if x is not None]
    if len(known) != len(found):
        return None
    gamma, beta, mean, variance = known
    if not (gamma.ndim == 1 and gamma.shape == beta.shape == mean.shape == variance.shape):
        return None  # no model that ONNX Runtime runs
    spread = variance + norm.attributes.get_float("epsilon", _DEFAULT_EPSILON)
    if not (np.isfinite(spread).all() and (spread > 0).all()):
        return None  # NaN at run time; not ours to hide
    return Affine(gamma / np.sqrt(spread), mean, beta)
