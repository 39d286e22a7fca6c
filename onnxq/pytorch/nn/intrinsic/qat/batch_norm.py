"""A layer with batch norm behind it, trained as the one layer that will be deployed.

    f = gamma / sqrt(running_var + eps)
    folded weight = w f,  folded bias = beta + (b - running_mean) f

While batch statistics are live (Krishnamoorthi 2018, 3.2.2, in the form with one pass):

    y = bn(op(x, fq(w f)) / f + b)

with batch statistics inside bn. In eval mode, and in train mode once they are frozen, the deployed
arithmetic: y = op(x, fq(w f), fq32(folded bias)).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from onnxq.pytorch.nn.qat.base import QatModule, along
from onnxq.pytorch.numerics.compiling import never_compiled

if TYPE_CHECKING:
    from collections.abc import Mapping

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


class WithBatchNorm(QatModule):
    """A QatModule with `bn`.

    Attributes:
        bn: batch norm, of as many features as the weight has rows.
        freeze_bn: whether the running statistics are used, and left as they are, in train mode too.
    """

    bn: BatchNorm
    freeze_bn: bool = False

    def set_batch_norm(self, bn: BatchNorm, frozen: bool) -> None:
        """Takes the batch norm; part of the constructors."""
        self.bn = bn.to(self.weight.device)
        self.freeze_bn_stats() if frozen else self.update_bn_stats()

    def op(self, x: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> Tensor:
        """The layer without batch norm; the subclass says it."""
        raise NotImplementedError

    def pre_activation(self, x: Tensor, *others: Any) -> Tensor:
        """What the layer and its batch norm give, before a ReLU; `others` go to `op`."""
        if not self.bn.training:
            return self.op(x, *self.deployed(), *others)
        # a value of its own: compiled code keeps what it was given for the backward pass, and bn
        # changes running_var in place
        factor = self.bn.weight / _value(self._running_std())
        scaled = self.weight_fake_quant(self.weight * self.per_weight(factor))
        # gamma 0 folds to weight 0, whose result divided by 0 is NaN; the weight itself keeps the
        # statistics, and the gradient of gamma, right
        dead = factor == 0
        scaled = torch.where(self.per_weight(dead), self.weight, scaled)
        result = self.op(x, scaled, None, *others)
        result = result / along(torch.where(dead, 1.0, factor), result.ndim, 1)
        if self.bias is not None:
            result = result + along(self.bias, result.ndim, 1)
        normed: Tensor = self.bn(result)
        return normed

    def _running_std(self) -> Tensor:
        assert self.bn.running_var is not None
        return torch.sqrt(self.bn.running_var + self.bn.eps)

    def folded(self) -> tuple[Tensor, Tensor]:
        """(w f, beta + (b - running_mean) f)."""
        factor = self.bn.weight / self._running_std()
        assert self.bn.running_mean is not None
        mean = self.bn.running_mean if self.bias is None else self.bn.running_mean - self.bias
        return self.weight * self.per_weight(factor), self.bn.bias - mean * factor

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
        """As nn.Module.train; frozen statistics stay frozen."""
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


@never_compiled
def _value(x: Tensor) -> Tensor:
    return x.detach()


def update_bn_stats(module: nn.Module) -> None:
    """For model.apply: lets a module with batch norm use and average each batch's statistics."""
    if isinstance(module, WithBatchNorm):
        module.update_bn_stats()


def freeze_bn_stats(module: nn.Module) -> None:
    """For model.apply: lets a module with batch norm train as it will be deployed."""
    if isinstance(module, WithBatchNorm):
        module.freeze_bn_stats()
