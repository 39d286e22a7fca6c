"""Batch norm with running statistics, folded into the layer in front of it."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from onnxq.core.batch_norm import folded_bias
from onnxq.errors import ModelError
from onnxq.pytorch.modules.transposed import TRANSPOSED, per_weight


def folded(layer: Any, bn: Any) -> nn.Module:
    """The layer with batch norm's running statistics, weight and bias in its own."""
    if bn.running_mean is None or bn.running_var is None:
        raise ModelError(
            f"fuse_modules: {bn} has no running statistics to fold into the weights; it was made "
            "with track_running_stats=False."
        )
    made: Any = copy.deepcopy(layer)
    slope = gamma_of(bn) / std_of(bn)
    with torch.no_grad():
        made.weight.mul_(
            per_weight(slope, made.weight, made.groups)
            if isinstance(layer, TRANSPOSED)
            else slope.reshape(-1, *[1] * (made.weight.ndim - 1))
        )
        bias = bias_behind(bn, slope, layer.bias)
    made.bias = nn.Parameter(bias, made.weight.requires_grad)
    return made  # type: ignore[no-any-return]  # a copy of the layer


def std_of(bn: Any) -> Tensor:
    """sqrt(running_var + eps), (channels,)."""
    return torch.sqrt(bn.running_var + bn.eps)


def gamma_of(bn: Any) -> Tensor:
    """The weight of the batch norm, (channels,); ones with affine=False."""
    gamma: Tensor = torch.ones_like(bn.running_var) if bn.weight is None else bn.weight
    return gamma


def bias_behind(bn: Any, slope: Tensor, bias: Tensor | None) -> Tensor:
    """Bias of a layer with the batch norm folded in, (channels,)."""
    beta = 0.0 if bn.bias is None else bn.bias
    mean: Tensor = bn.running_mean
    made: Tensor = folded_bias(0.0 if bias is None else bias, slope, mean, beta)
    return made
