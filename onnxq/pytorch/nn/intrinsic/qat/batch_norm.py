"""A layer with batch norm behind it, trained as the one layer that will be deployed.

    f = gamma / sqrt(running_var + eps)
    folded weight = w f,  folded bias = beta + (b - running_mean) f

While batch statistics are live (Krishnamoorthi 2018, 3.2.2, in the form with one pass):

    y = bn(layer(x, fq(w f)) / f + b)

with batch statistics inside bn. In eval mode, and in train mode once they are frozen, the deployed
arithmetic: y = layer(x, fq(w f), fq32(folded bias)).
"""

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from onnxq.errors import ModelError
from onnxq.pytorch.modules.folding import bias_behind, gamma_of, std_of
from onnxq.pytorch.nn.qat.base import QatModule
from onnxq.pytorch.numerics.exact_buffers import held
from onnxq.pytorch.numerics.rounding import spread

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


class WithBatchNorm(QatModule):
    """A QatModule with `bn`."""

    bn: BatchNorm
    freeze_bn: bool = False

    def make_batch_norm(
        self, features: int, eps: float, momentum: float | None, frozen: bool
    ) -> None:
        """Makes the batch norm that `float_type` has; part of the constructors."""
        fused: Any = self.float_type
        self.bn = fused.PARTS[1](features, eps, momentum).to(self.weight.device)
        self.freeze_bn_stats() if frozen else self.update_bn_stats()

    def take(self, parts: Any) -> None:
        """Makes the parameters of the float layer and its batch norm its own."""
        super().take(parts)
        self.bn = parts[1]
        if self.bn.running_var is None or self.bn.running_mean is None:
            raise ModelError(
                f"{self.bn}: wanted track_running_stats=True; what is deployed is the layer in "
                "front of it with running statistics folded in."
            )
        self.bn.__dict__.pop("qconfig", None)  # it is quantized with the layer, not by itself

    def pre_activation(self, x: Tensor, *others: Any) -> Tensor:
        """The result of the layer and its batch norm before a ReLU; `others` go to `layer`."""
        if not self.bn.training:
            return super().pre_activation(x, *others)
        # bn changes running_var in place; compiled code might read it again for the backward pass
        slope = gamma_of(self.bn) / held(std_of(self.bn))
        scaled = self.weight_fake_quant(self.weight * self.per_weight(slope))
        # gamma 0 folds to weight 0, whose result divided by 0 is NaN; the weight itself keeps the
        # statistics, and the gradient of gamma, right
        dead = slope == 0
        scaled = torch.where(self.per_weight(dead), self.weight, scaled)
        result = self.layer(x, scaled, None, *others)
        result = result / spread(torch.where(dead, 1.0, slope), result.ndim, 1)
        if self.bias is not None:
            result = result + spread(self.bias, result.ndim, 1)
        normed: Tensor = self.bn(result)
        return normed

    def folded(self) -> tuple[Tensor, Tensor]:
        """(w f, beta + (b - running_mean) f)."""
        slope = gamma_of(self.bn) / std_of(self.bn)
        return self.weight * self.per_weight(slope), bias_behind(self.bn, slope, self.bias)

    @torch.no_grad()
    def start_at(self, weight: Tensor, bias: Tensor | None) -> None:
        """Changes weight and shift so that `folded` gives these; channels of slope 0 stay."""
        slope = gamma_of(self.bn) / std_of(self.bn)
        of_weight = self.per_weight(slope)
        self.weight.copy_(torch.where(of_weight == 0, self.weight, weight / of_weight))
        if bias is None:
            return
        change = bias - self.folded()[1].double()
        if self.bn.bias is not None:
            self.bn.bias.copy_(self.bn.bias + change)
        else:
            before = 0.0 if self.bias is None else self.bias
            self._start_bias_at(before + torch.where(slope == 0, 0.0, change / slope))

    def update_bn_stats(self) -> Self:
        """Normalizes with each batch's statistics, and averages them into the running ones."""
        self.freeze_bn = False
        self.bn.train(self.training)
        return self

    def freeze_bn_stats(self) -> Self:
        """Normalizes with the running statistics, also in train mode, and keeps these."""
        self.freeze_bn = True
        self.bn.eval()
        return self

    def reset_running_stats(self) -> None:
        """Forgets the running statistics."""
        self.bn.reset_running_stats()

    def train(self, mode: bool = True) -> Self:
        """The module in train or eval mode; frozen statistics stay frozen."""
        super().train(mode)
        if self.freeze_bn:
            self.bn.eval()
        return self

    def _load_from_state_dict(
        self, state_dict: Mapping[str, object], prefix: str, *args: object
    ) -> None:
        """Takes the keys of the fused float module (0.weight, 1.running_mean) for its own."""
        assert isinstance(state_dict, dict)
        for key in [k for k in state_dict if k.startswith((f"{prefix}0.", f"{prefix}1."))]:
            part, name = key.removeprefix(prefix).split(".", 1)
            state_dict[prefix + (name if part == "0" else f"bn.{name}")] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *args)


def hold(norm: nn.Module) -> nn.Module:
    """The batch norm, of a layer of its own, as one for freeze_bn_stats and its like."""
    norm.freeze_bn = False  # type: ignore[assignment]  # a plain attribute
    return norm


def frozen_norm(module: nn.Module) -> nn.Module | None:
    """The batch norm whose statistics a module keeps frozen, its own or itself."""
    if getattr(module, "freeze_bn", False) is not True:
        return None
    if isinstance(module, WithBatchNorm):
        return module.bn
    return module if isinstance(module, _BatchNorm) else None


def update_bn_stats(module: nn.Module) -> None:
    """For model.apply: lets a module with batch norm use and average each batch's statistics."""
    if isinstance(module, WithBatchNorm):
        module.update_bn_stats()
    elif frozen_norm(module) is not None:
        module.freeze_bn = False  # type: ignore[assignment]  # a plain attribute
        module.train()


def freeze_bn_stats(module: nn.Module) -> None:
    """For model.apply: lets a module with batch norm train as it will be deployed."""
    if isinstance(module, WithBatchNorm):
        module.freeze_bn_stats()
    elif isinstance(module, _BatchNorm) and hasattr(module, "freeze_bn"):
        module.freeze_bn = True  # type: ignore[assignment]  # a plain attribute
        module.eval()
