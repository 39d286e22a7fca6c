"""QatModule, a layer with a fake-quantized weight: the arithmetic that will be deployed.

    y = layer(x, fq(weight), fq32(bias))     weight and bias with batch norm folded in
    fq32(b) = rint(b / (x_scale * w_scale)) * (x_scale * w_scale)

so that what is trained is what ONNX Runtime adds up in integers: sum((xq - xz) * wq) + bq, times
x_scale * w_scale. Float32 accumulation over these numbers is enough: on random convolutions (9 to
4608 products per sum, depthwise, groups, scales that are powers of two with exact ties) the rounded
results differ from QLinearConv's in at most 0.004% of the elements, by one LSB. Integer-valued
floats differed in none, for two more passes over the activations, and give no gradient for x.

x_scale is that of the FakeQuantize that made the input; `onnxq.pytorch.train.sources` finds it in
the first forward pass of a prepared model. Without one the bias stays as it is.
"""

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from onnxq.errors import ModelError, QConfigError
from onnxq.pytorch.modules.torch_qconfig import own_entry
from onnxq.pytorch.modules.transposed import along_channels, arguments_of
from onnxq.pytorch.nn.intrinsic import FusedModule, without_batch_norm
from onnxq.pytorch.nn.mapped_module import MappedModule
from onnxq.pytorch.nn.quantized.bias_integers import bias_scale, rounded_bias, scale_for_int32_bias
from onnxq.pytorch.nn.quantized.observed import bind_input
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize, fake_quantize_module
from onnxq.pytorch.numerics.rounding import spread
from onnxq.qconfig import FakeQuantSpec, QConfig, QConfigDynamic


class QatModule(MappedModule):
    """A layer with `weight`, `bias` and `weight_fake_quant`.

    A family (convolutions, ...) says `layer`; a class of it says its `float_type`, and what follows
    from it, a ReLU or batch norm behind the layer, is not said again.

    Attributes:
        weight_fake_quant: rounds the weight, with batch norm folded in where there is one.
        input_fake_quant: what made the input; None: not known, or the input is float. A reference:
            neither a submodule nor in the state_dict.
    """

    weight: Tensor
    bias: Any  # Tensor | None; the bases, torch's, say each something else of it
    weight_fake_quant: FakeQuantize
    input_fake_quant: FakeQuantize | None = None
    qconfig: QConfig | QConfigDynamic

    @classmethod
    def deployed_type(cls) -> type[nn.Module]:
        """Float module that computes what is deployed: batch norm folded into the layer."""
        return without_batch_norm(cls.float_type)

    @classmethod
    def arguments(cls, layer: Any) -> dict[str, Any]:
        """The constructor's arguments of a layer, float or trained."""
        return arguments_of(layer)

    def layer(self, x: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> Tensor:
        """The layer with these parameters; the family says it."""
        raise NotImplementedError

    def pre_activation(self, x: Tensor, *others: Any) -> Tensor:
        """The result of the layer before a ReLU; `others` go to `layer`."""
        return self.layer(x, *self.deployed(), *others)

    def set_qconfig(self, qconfig: object) -> None:
        """Keeps the qconfig and makes the weight's FakeQuantize of it; part of the constructors."""
        where = type(self).__name__
        found = own_entry(qconfig, where)
        if not isinstance(found, QConfig):
            raise QConfigError(
                f"{where}: got qconfig {qconfig!r}; wanted a QConfig, such as "
                "onnxq.qconfig.get_default_qat_qconfig()."
            )
        if not isinstance(found.weight, FakeQuantSpec):
            raise QConfigError(
                f"{where}: the qconfig's weight is the observer {found.weight}, which does not "
                "round; training wants a FakeQuantSpec. Use get_default_qat_qconfig(), or "
                "FakeQuantize.with_args(observer=...)."
            )
        self.qconfig = found
        part = along_channels(found.weight, self)
        self.weight_fake_quant = fake_quantize_module(part).to(self.weight.device)
        self.weight_fake_quant.is_replicated = True

    def bind_input(self, fake: FakeQuantize | None) -> None:
        """Notes which FakeQuantize made the input."""
        bind_input(self, fake)

    def per_weight(self, values: Tensor) -> Tensor:
        """A vector of output channels, shaped to broadcast with the weight."""
        return spread(values, self.weight.ndim, 0)

    def folded(self) -> tuple[Tensor, Tensor | None]:
        """(weight, bias) of the layer that is deployed, float32, with their gradient."""
        return self.weight, self.bias

    def deployed(self) -> tuple[Tensor, Tensor | None]:
        """(weight, bias) of `folded`, rounded to what will be deployed.

        Where the bias would leave int32 at x_scale * w_scale, w_scale of that channel is increased,
        as onnxq.plan does.
        """
        weight, bias = self.folded()
        fake, source = self.weight_fake_quant, self.input_fake_quant
        if bias is None or source is None or not fake.fake_quant_enabled:
            return fake(weight), bias
        if fake.has_own_forward:
            made = fake(weight)
            scale = bias_scale(source.scale, fake.calculate_qparams()[0], bias.numel())
            return made, round_bias(bias, scale.detach())
        fake.watch(weight)
        scale = scale_for_int32_bias(fake.scale, bias.detach(), source.scale.detach())
        rounded = round_bias(bias, bias_scale(source.scale, scale, bias.numel()).detach())
        return fake.rounded(weight, scale), rounded

    @classmethod
    def check_float(cls, mod: nn.Module) -> QConfig:
        """The qconfig of a float module that from_float takes."""
        if type_before_parametrizations(mod) is not cls.float_type:
            raise ModelError(
                f"{cls.__module__}.{cls.__name__}.from_float: got {type(mod).__name__}; "
                f"wanted {cls.float_type.__name__}."
            )
        qconfig = getattr(mod, "qconfig", None)
        if qconfig is None:
            raise QConfigError(
                f"{cls.__name__}.from_float: the {type(mod).__name__} has no qconfig. Set its "
                "`.qconfig`, or that of a module around it before prepare_qat."
            )
        return qconfig  # type: ignore[no-any-return]  # any attribute of a module

    @classmethod
    def from_float(cls, mod: nn.Module) -> Self:
        """The module with the parameters of a float one that has a qconfig.

        Raises:
            ModelError: another type of module, or batch norm that cannot be folded.
            QConfigError: no qconfig.
        """
        qconfig = cls.check_float(mod)
        parts: Any = mod if isinstance(mod, FusedModule) else [mod]
        made = cls(**cls.arguments(parts[0]), qconfig=qconfig)
        made.take(parts)
        return made.train(mod.training)

    def take(self, parts: Any) -> None:
        """Makes the float layer's parameters its own: not copies."""
        self.weight, self.bias = parts[0].weight, getattr(parts[0], "bias", None)
        self.weight_fake_quant.to(self.weight.device)

    @torch.no_grad()
    def start_at(self, weight: Tensor, bias: Tensor | None) -> None:
        """Changes the parameters so that `folded` gives these."""
        self.weight.copy_(weight)
        if bias is not None:
            self._start_bias_at(bias)

    def _start_bias_at(self, bias: Tensor) -> None:
        if self.bias is not None:
            self.bias.copy_(bias)
        elif bias.any():
            self.bias = nn.Parameter(bias.to(self.weight))

    def to_float(self) -> nn.Module:
        """The float module with the parameters as they are now, batch norm folded in."""
        kind = self.deployed_type()
        parts = kind.PARTS if issubclass(kind, FusedModule) else (kind,)
        weight, bias = self.folded()
        arguments = self.arguments(self)
        if "bias" in arguments:  # which embeddings have not
            arguments["bias"] = bias is not None
        layer: Any = parts[0](**arguments)
        layer.weight = nn.Parameter(weight.detach())
        if bias is not None:
            layer.bias = nn.Parameter(bias.detach())
        made: Any = kind(layer, *(part() for part in parts[1:])) if len(parts) > 1 else layer
        made.qconfig = layer.qconfig = self.qconfig
        return made.train(self.training)  # type: ignore[no-any-return]  # of an untyped call


def round_bias(bias: Tensor, scale: Tensor) -> Tensor:
    """rint(bias / scale) * scale, saturated to int32 integers; the gradient is the bias's."""
    rounded = rounded_bias(bias.detach(), scale).float() * scale
    return rounded.to(bias.dtype) + (bias - bias.detach())
