"""Batch norm with running statistics, folded into the layer in front of it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from onnxq.errors import ModelError
from onnxq.pytorch.modules.transposed import TRANSPOSED, per_weight

if TYPE_CHECKING:
    from collections.abc import Callable

    Fuser = Callable[..., nn.Module]
    Pattern = tuple[type[nn.Module], ...]


def folded(layer: Any, bn: Any) -> nn.Module:
    """The layer with batch norm's running statistics, weight and bias in its own.

    Raises:
        ModelError: batch norm without running statistics.
    """
    if bn.running_mean is None or bn.running_var is None:
        raise ModelError(
            f"fuse_modules: {bn} has no running statistics to fold into the weights; it was made "
            "with track_running_stats=False."
        )
    if isinstance(layer, nn.Linear):
        return fuse_linear_bn_eval(layer, bn)
    if isinstance(layer, TRANSPOSED):
        return _folded_transposed(layer, bn)
    made: nn.Module = fuse_conv_bn_eval(layer, bn)
    return made


def _folded_transposed(layer: Any, bn: Any) -> nn.Module:
    """The transposed layer, folded; torch's own function orders the groups' channels otherwise."""
    made: Any = copy.deepcopy(layer)
    with torch.no_grad():
        factor = torch.rsqrt(bn.running_var + bn.eps)
        factor = factor if bn.weight is None else factor * bn.weight
        mean = bn.running_mean if layer.bias is None else bn.running_mean - layer.bias
        bias = -mean * factor if bn.bias is None else bn.bias - mean * factor
        made.weight.mul_(per_weight(factor, made.weight, made.groups))
    made.bias = nn.Parameter(bias, made.weight.requires_grad)
    return made  # type: ignore[no-any-return]  # a copy of the layer
