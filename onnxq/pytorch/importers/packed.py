"""Weights of quantized torch modules: read out of their packed parameters into plain buffers.

torch.ao keeps weights in TorchScript objects (Conv2dPackedParamsBase, LinearPackedParamsBase), laid
out for one engine; torch.export does not take them. What is in them:

    weight   integers int8, scale and zero point per tensor, or per channel along an axis
    bias     float32

ONNX Runtime adds the bias as int32 at x_scale * weight_scale, as qnnpack does (fbgemm adds it in
float). x_scale is known when the module is called: each call has its own integers of the bias.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onnxq.errors import UnsupportedError
from onnxq.pytorch.importers.notes import note
from onnxq.pytorch.importers.region import Constants, TracedQParams
from onnxq.pytorch.nn.quantized.bias_integers import bias_integers, bias_scale, scale_for_int32_bias
from onnxq.pytorch.nn.quantized.stored import tensors_of
from onnxq.pytorch.numerics.integer_types import from_torch
from onnxq.pytorch.numerics.rounding import spread
from onnxq.pytorch.numerics.rounding_ops import NO_AXIS, dequantize_linear
from onnxq.qparams import PerChannel
from onnxq.qtensor import QTensor


@dataclass(frozen=True, slots=True)
class WindowSizes:
    """Attributes of a convolution."""

    stride: list[int]
    padding: list[int]
    output_padding: list[int]
    dilation: list[int]
    groups: int
    transposed: bool


def read_quantized(x: Tensor, where: str) -> QTensor:
    """Integers and qparams of a weight that torch has quantized."""
    if x.dtype != torch.qint8:
        raise UnsupportedError(
            f"{where}: its weight is {str(x.dtype).removeprefix('torch.')}; wanted qint8. Quantize "
            "it with a weight observer of dtype torch.qint8."
        )
    try:
        return from_torch(x)
    except UnsupportedError as error:
        raise UnsupportedError(f"{where}: its weight is {error}") from error


class PackedWeight(nn.Module):
    """One weight and its bias, in the place of a TorchScript object.

    Attributes:
        weight: int8 integers.
        weight_scale: float32, shape () or (channels,).
        weight_zero_point: int8, same shape.
        axis: of the channels; -1 where there is one scale.
        bias: float32 as torch keeps it, or None; no buffer, see above.
        windows: of a convolution; None: a linear layer.
        where: path of the module, for messages.
    """

    weight: Tensor
    weight_scale: Tensor
    weight_zero_point: Tensor

    def __init__(
        self, weight: Tensor, bias: Tensor | None, windows: WindowSizes | None, where: str
    ) -> None:
        super().__init__()
        read = read_quantized(weight, where)
        granularity = read.qparams.granularity
        self.axis = granularity.axis if isinstance(granularity, PerChannel) else NO_AXIS
        self.windows, self.where = windows, where
        self.bias = None if bias is None else bias.detach().to(torch.float32).clone()
        scale, zero_point = tensors_of(read.qparams)
        # contiguous: fbgemm unpacks as channels_last, which would spread
        self.register_buffer("weight", torch.from_numpy(read.int_repr()).contiguous())
        self.register_buffer("weight_scale", scale)
        self.register_buffer("weight_zero_point", zero_point)

    def real_weight(self) -> Tensor:
        """float32 (integers - zero_point) * scale."""
        return dequantize_linear(self.weight, self.weight_scale, self.weight_zero_point, self.axis)

    def real_bias(self, constants: Constants, x: TracedQParams) -> Tensor | None:
        """float32 multiples of x_scale * weight_scale, from int32 integers."""
        if self.bias is None:
            return None
        bias = self.bias
        if constants.recording:
            self._make_room(bias, x)
        name = self.where.replace(".", "_") or "model"
        scale = constants.take(
            f"{name}_bias_scale", lambda: bias_scale(x.tensors[0], self.weight_scale)
        )
        integers = constants.take(f"{name}_bias", lambda: bias_integers(bias, scale))
        zero = constants.take(
            f"{name}_bias_zero_point", lambda: torch.zeros_like(scale, dtype=torch.int32)
        )
        return dequantize_linear(integers, scale, zero, 0)

    def _make_room(self, bias: Tensor, x: TracedQParams) -> None:
        """Raises the scale of channels whose bias would not fit int32: dead ones, as a rule."""
        increased = scale_for_int32_bias(self.weight_scale, bias, x.tensors[0])
        if torch.equal(increased, self.weight_scale):
            return
        note(
            f"{self.where}: the weight scale of {int((increased != self.weight_scale).sum())} "
            "channel(s) was increased so that the bias fits int32 at x_scale * weight_scale."
        )
        ratio = spread(self.weight_scale / increased, self.weight.ndim, self.axis)
        self.weight = (self.weight.float() * ratio).round().to(torch.int8)
        self.weight_scale = increased


def packed_weights(model: nn.Module, skipped: Collection[str]) -> dict[int, PackedWeight]:
    """The weight of every packed parameter that the model holds, by the id of its object."""
    made: dict[int, PackedWeight] = {}
    for path, module in model.named_modules():
        if any(path == skip or path.startswith(f"{skip}.") for skip in skipped):
            continue
        for name, script in vars(module).items():
            if isinstance(script, torch.ScriptObject) and id(script) not in made:
                made[id(script)] = _read(script, path.removesuffix("._packed_params") or name)
    return made


def make_printable(model: nn.Module) -> None:
    """torch.ao's modules read the packed parameters for their repr, which the exporter prints."""
    for module in list(model.modules()):
        if type(module).__module__.startswith("torch.ao.nn."):
            module.extra_repr = str  # type: ignore[method-assign]  # its own fails on such weights
        for name, child in module.named_children():
            if type(child).__name__ == "LinearPackedParams":
                holder = nn.Module()
                holder._packed_params = child._packed_params
                setattr(module, name, holder)


def _read(script: Any, where: str) -> PackedWeight:
    kind = script._type().name()
    is_linear = kind.startswith("Linear") and "Sparse" not in kind
    if not is_linear and not kind.startswith("Conv"):
        raise UnsupportedError(
            f"{where}: holds a {kind}; linear layers and convolutions can be imported. Replace the "
            "module by its float original and let onnxq quantize it."
        )
    weight, bias = script.unpack()
    if is_linear:
        return PackedWeight(weight, bias, None, where)
    names = ("stride", "padding", "output_padding", "dilation", "groups", "transpose")
    windows = WindowSizes(*(getattr(script, name)() for name in names))
    return PackedWeight(weight, bias, windows, where)
