"""Modules with weights: int8 integers, an int32 bias at x_scale * w_scale, from_float."""

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from onnxq.affine import quantize
from onnxq.errors import ModelError, QConfigError, ShapeError, UnsupportedError
from onnxq.pytorch.modules.transposed import along_channels, arguments_of
from onnxq.pytorch.nn.mapped_module import MappedModule
from onnxq.pytorch.nn.quantized.bias_integers import bias_integers, bias_scale, scale_for_int32_bias
from onnxq.pytorch.nn.quantized.observed import (
    check_observed,
    input_fake_quantize,
    output_fake_quantize,
)
from onnxq.pytorch.nn.quantized.output_qparams import OptionalOutput, OutputQParams
from onnxq.pytorch.nn.quantized.requantize import Requantize
from onnxq.pytorch.nn.quantized.stored import qparams_of, tensors_of
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize, fake_quantize_module
from onnxq.pytorch.numerics.rounding_ops import dequantize_linear, quantize_linear
from onnxq.qconfig import QConfig
from onnxq.qtensor import QTensor


class FloatWeights(NamedTuple):
    """Weights of a prepared module: float32, batch norm folded."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    fake: FakeQuantize


class Weighted(OutputQParams, OptionalOutput, MappedModule):
    """y = [requantize](op(x, (weight_integers - zp) * weight_scale, bias_integers * bias_scale)).

    `op` ends in a ReLU where one is fused with the layer.

    Attributes:
        bias_integers: int32 (channels,), or None.
        bias_scale: float32, shape of weight_scale: input_scale * weight_scale; None without bias.
        input_scale: float32 (): of the tensor that comes in.
        output: qparams of the result; None leaves it in float32.
    """

    fixed_shapes = ("weight_integers", "bias_integers")

    bias_integers: torch.Tensor | None
    bias_scale: torch.Tensor | None
    bias_zero_point: torch.Tensor | None
    input_scale: torch.Tensor
    output: Requantize | None

    def make_buffers(self, shape: tuple[int, ...], bias: int | None) -> None:
        """Weights of 0 at scale 1, as they are before numbers are given."""
        self.register_weight(shape)
        self.register_buffer("input_scale", torch.ones(()))
        none = bias is None
        integers = None if bias is None else torch.zeros(bias, dtype=torch.int32)
        self.register_buffer("bias_integers", integers)
        self.register_buffer("bias_scale", None if none else torch.ones(()))
        zero = None if none else torch.zeros((), dtype=torch.int32)
        self.register_buffer("bias_zero_point", zero)
        self.output = Requantize()

    # --- numbers

    @property
    def output_channels(self) -> int:
        """Length of a bias."""
        return int(self.weight_integers.shape[0])

    def bias(self) -> torch.Tensor | None:
        """The bias in float32 as it is added: a multiple of input_scale * weight_scale."""
        if self.bias_integers is None:
            return None
        assert self.bias_scale is not None
        assert self.bias_zero_point is not None
        return dequantize_linear(self.bias_integers, self.bias_scale, self.bias_zero_point, 0)

    def set_weight_bias(
        self,
        w: QTensor | torch.Tensor,
        b: torch.Tensor | None,
        input_scale: float | torch.Tensor | None = None,
    ) -> None:
        """Stores a quantized weight, and the bias as int32 at input_scale * weight_scale.

        A channel whose bias would not fit gets a larger weight scale, and a warning.

        Args:
            w: a QTensor, or a tensor quantized by torch (qint8, per tensor or channel).
            b: float32 (channels,), or None.
            input_scale: of the tensor that comes in; None: as it is.
        Raises:
            ShapeError: another shape than the constructor was given; a bias where there is none.
            ModelError: the bias holds NaN or Inf.
        """
        weight = self.fitting(w)
        device = self.weight_integers.device
        scale = tensors_of(weight.qparams)[0].to(device)
        if input_scale is not None:
            self.input_scale = torch.as_tensor(input_scale, dtype=torch.float32).reshape(())
            self.input_scale = self.input_scale.to(device)
        if b is not None:
            b = b.detach().to(device, torch.float32).reshape(-1)
            if b.numel() != self.output_channels:
                wanted = f"wanted {self.output_channels}"
                raise ShapeError(f"{self.title}: bias of {b.numel()} elements; {wanted}.")
            if not bool(torch.isfinite(b).all()):
                raise ModelError(f"{self.title}: the bias holds NaN or Inf; repair the model.")
            increased = scale_for_int32_bias(scale, b, self.input_scale)
            if not torch.equal(increased, scale):
                weight = self._at(weight, increased)
                scale = increased
        self.store_weight(weight)
        self.bias_integers = self.bias_scale = self.bias_zero_point = None
        if b is None:
            return
        self.bias_scale = bias_scale(self.input_scale, scale, b.numel())
        self.bias_integers = bias_integers(b, self.bias_scale)
        self.bias_zero_point = torch.zeros_like(self.bias_scale, dtype=torch.int32)

    def _at(self, weight: QTensor, scale: torch.Tensor) -> QTensor:
        """The weight's real values at larger scales."""
        old = torch.from_numpy(weight.qparams.scale.copy()).to(scale.device)
        self._warn_of_increased(int((scale != old).sum()))
        zero_point = torch.from_numpy(weight.qparams.zero_point.copy())
        qparams = qparams_of(scale.cpu(), zero_point, self.channel_axis)
        qparams = replace(qparams, dtype=weight.dtype)
        return QTensor(quantize(weight.dequantize(), qparams), qparams)

    def _warn_of_increased(self, channels: int) -> None:
        warnings.warn(
            f"{self.title}: the weight scale of {channels} channel(s) was increased so that the "
            "bias fits int32 at input_scale * weight_scale.",
            stacklevel=4,
        )

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for name in ("bias_integers", "bias_scale", "bias_zero_point"):
            if prefix + name not in state_dict:
                setattr(self, name, None)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def qparams_repr(self) -> str:
        """The end of a repr: scale and zero point of the result."""
        if self.output is None:
            return "float output"
        text = f"scale={self.scale:.6g}, zero_point={self.zero_point}"
        return (
            text if self.output.every_integer else f"{text}, integers={self.output.integers_in_use}"
        )

    # --- from a prepared module

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: object = False) -> Self:  # noqa: ARG003  # torch's
        """The module of a prepared one: of nn.qat or nn.intrinsic.qat, or torch.nn's, observed.

        Raises:
            UnsupportedError: another type of module.
            CalibrationError: no data was seen.
        """
        check_layer(mod, cls.float_type, cls.__name__)
        source = float_weights(mod, cls.__name__)
        made = cls(**arguments_of(core_of(mod)) | {"bias": source.bias is not None})
        return made.take(mod, source)

    def take(self, mod: nn.Module, source: FloatWeights) -> Self:
        """Fills the module with what a prepared one has learned.

        Raises:
            CalibrationError: no data was seen.
        """
        owner = type(mod).__name__
        incoming = input_fake_quantize(mod)
        check_observed(incoming, owner)
        x = Requantize.of(incoming.qparams())
        weight = source.weight.detach().to(torch.float32)
        self.to(weight.device)
        self.set_weight_bias(self._quantized(weight, source, x.scale), source.bias, x.scale)
        outgoing = output_fake_quantize(mod)
        self.output = None if outgoing is None else Requantize.from_float(outgoing)
        return self.to(weight.device)

    def _quantized(
        self, weight: torch.Tensor, source: FloatWeights, input_scale: torch.Tensor
    ) -> QTensor:
        """The weight's integers, as the module was trained with them."""
        fake, qparams = source.fake, source.fake.qparams()
        scale, zero_point = (x.to(weight.device) for x in tensors_of(qparams))
        if source.bias is not None:
            found = source.bias.detach().reshape(-1)
            increased = scale_for_int32_bias(scale, found, input_scale.to(weight.device))
            if not torch.equal(increased, scale):
                self._warn_of_increased(int((increased != scale).sum()))
                scale = increased
        integers = quantize_linear(weight, scale, zero_point, self.channel_axis)
        integers = integers.to(torch.int32).clamp_(fake.quant_min, fake.quant_max)
        qparams_for_int32_bias = replace(
            qparams_of(scale, zero_point, self.channel_axis), dtype=qparams.dtype
        )
        return QTensor(integers.cpu().numpy().astype(qparams.dtype.storage), qparams_for_int32_bias)


# --- The float weights of a prepared module, and the FakeQuantize that gives their integers.


@runtime_checkable
class Trained(Protocol):
    """A module of nn.qat or nn.intrinsic.qat."""

    weight_fake_quant: FakeQuantize

    @classmethod
    def deployed_type(cls) -> type[nn.Module]:
        """Float module that computes what is deployed: batch norm folded into the layer."""

    def folded(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(weight, bias) in float32, batch norm folded with its running statistics."""


def float_weights(mod: nn.Module, wanted_by: str) -> FloatWeights:
    """Weights of a QAT module, or of a float module that was observed."""
    if isinstance(mod, Trained):
        folded = mod.folded()
        fake = mod.weight_fake_quant
        if not fake.has_observed:
            fake = having_seen(fake, folded[0])
        return FloatWeights(*folded, fake)
    core = core_of(mod)
    qconfig = getattr(mod, "qconfig", None) or getattr(core, "qconfig", None)
    if not isinstance(qconfig, QConfig):
        raise QConfigError(
            f"{wanted_by}.from_float: the {type(mod).__name__} has no qconfig. Call prepare or "
            "prepare_qat with one for it, or set its qconfig before."
        )
    weight, bias = core.weight, getattr(core, "bias", None)  # embeddings have none
    assert isinstance(weight, torch.Tensor)
    assert bias is None or isinstance(bias, torch.Tensor)
    part = along_channels(qconfig.weight, core)
    return FloatWeights(weight, bias, having_seen(fake_quantize_module(part), weight))


def having_seen(fake: FakeQuantize, weight: torch.Tensor) -> FakeQuantize:
    """The module after it has seen the weight."""
    fake.to(weight.device)
    watching = fake.observer_enabled
    fake.enable_observer()
    fake(weight.detach().to(torch.float32))
    return fake.enable_observer(watching)


def arguments_in(mod: nn.Module, kind: type[nn.Module]) -> dict[str, Any]:
    """Arguments of a constructor that the float module has as attributes; scale 1, zero point 0."""
    given: dict[str, Any] = {"scale": 1.0, "zero_point": 0}
    names = list(inspect.signature(kind).parameters)
    return {
        name: getattr(mod, name, given.get(name))
        for name in names
        if hasattr(mod, name) or name in given
    }


def check_type(mod: object, float_type: type[nn.Module], wanted_by: str) -> None:
    """Passes a module of exactly that type: a subclass may compute something else."""
    got = _type_of(mod)
    if got is not float_type:
        raise UnsupportedError(
            f"{wanted_by}.from_float: got a {_name(got)}; wanted a {_name(float_type)}, prepared."
        )


def check_layer(mod: object, float_type: type[nn.Module], wanted_by: str) -> None:
    """Passes a module of exactly that type, or a trained one that is deployed as it."""
    got = _type_of(mod)
    kind = got
    if isinstance(mod, Trained) and "float_type" in vars(got):
        kind = mod.deployed_type()
    if kind is not float_type:
        raise UnsupportedError(
            f"{wanted_by}.from_float: got a {_name(got)}; wanted a {_name(float_type)}, prepared, "
            "or a module that was trained in its place."
        )


def _type_of(mod: object) -> type:
    return type_before_parametrizations(mod) if isinstance(mod, nn.Module) else type(mod)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def core_of(mod: nn.Module) -> nn.Module:
    """The part that holds weight and bias: the first of a fused float module, else itself."""
    return mod[0] if isinstance(mod, nn.Sequential) else mod
