"""Layers that torchao quantized, as layers that hold the same integers and scales.

    weight of the layer                       becomes                  in the ONNX model
    int8, a scale per row or one              WeightOnlyLinear         Cast, Mul, MatMul or Gemm
    the same, activations quantized too       Linear                   MatMulInteger
    the same, with a scale for activations    Requantize, Linear       QuantizeLinear, Gemm of Q/DQ
    1 to 8 bits in groups of inputs           GroupwiseLinear           MatMulNBits
    of a convolution, or an embedding         Conv2d, Embedding        DequantizeLinear
    FakeQuantizedLinear, in training          what its weight would be

Classes are told by their names: torchao need not be there.
"""

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # as everywhere

from onnxq.dtypes import INT8
from onnxq.errors import UnsupportedError
from onnxq.pytorch.modules.places import copy_structure
from onnxq.pytorch.modules.transposed import CONVS, arguments_of
from onnxq.pytorch.nn.quantized.dynamic import conv
from onnxq.pytorch.nn.quantized.dynamic.linear import GroupwiseLinear, Linear
from onnxq.pytorch.nn.quantized.embedding import Embedding
from onnxq.pytorch.nn.quantized.linear import Linear as StaticLinear
from onnxq.pytorch.nn.quantized.requantize import Requantize
from onnxq.pytorch.numerics.half_inputs import takes_halves
from onnxq.qparams import PerChannel, PerTensor, QParams
from onnxq.qparams.group_spec import GROUP_SIZES, GroupSpec, Scheme
from onnxq.qparams.groups import GroupIntegers
from onnxq.qtensor import QTensor

_BYTE = 8
_NEED = "Use Int8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig, or IntxWeightOnlyConfig."
_PER_TENSOR = (
    "activations are quantized with one scale for each tensor, as DynamicQuantizeLinear does, in "
    "place of torchao's one for each token"
)
_IN_FLOAT = "activations stay float32, which torchao quantizes for each token"


class Activations(enum.Enum):
    """How a layer of torchao's quantizes what it reads."""

    FLOAT = ""
    DYNAMIC = "dynamic"
    STATIC = "static"


@dataclass(frozen=True, slots=True)
class _Weight:
    """Integers of a weight as torchao holds them.

    Attributes:
        integers: int8 (outputs, ...), of `bits` bits.
        scale: float32 (outputs or 1, groups).
        zero_point: same shape; whole numbers, but of Int4Tensor.
        bits: of an integer.
        activations: how the layer's input is quantized.
        input_scale: of a static one, float32 (); else None.
        is_reduced: whether activations use half of the integers.
    """

    integers: Tensor
    scale: Tensor
    zero_point: Tensor
    bits: int
    activations: Activations = Activations.FLOAT
    input_scale: Tensor | None = None
    is_reduced: bool = False

    @property
    def groups(self) -> int:
        """Scales of one output."""
        return self.scale.shape[1]

    def qtensor(self) -> QTensor:
        """The weight with one scale, or one for each output."""
        granularity = PerTensor() if self.scale.numel() == 1 else PerChannel(0)
        shape = () if self.scale.numel() == 1 else (-1,)
        scale, zero = (x.reshape(shape).numpy() for x in (self.scale, self.zero_point))
        return QTensor(self.integers.numpy(), QParams(scale, np.rint(zero), INT8, granularity))


@dataclass(frozen=True, slots=True)
class Taken:
    """A model whose layers hold what torchao's held."""

    model: nn.Module
    notes: tuple[str, ...]


def taken_from_torchao(model: nn.Module) -> Taken | None:
    """The model with layers of onnxq in place of those that torchao quantized; None: no such."""
    made: dict[int, nn.Module] = {}
    notes: list[str] = []
    for path, module in model.named_modules():
        weight = _weight_of(module, path)
        if weight is None:
            continue
        made[id(module)] = _layer(module, weight, path).train(module.training)
        if weight.activations is Activations.DYNAMIC:
            notes.append(_PER_TENSOR if isinstance(made[id(module)], Linear) else _IN_FLOAT)
    if not made:
        return None
    return Taken(copy_structure(model, made), tuple(dict.fromkeys(notes)))


# --- what torchao holds


def _weight_of(module: nn.Module, path: str) -> _Weight | None:
    """The weight of a layer that torchao quantized, or would after training."""
    if hasattr(module, "weight_fake_quantizer"):
        return _trained(module, path)
    found = None
    for name, x in module.named_parameters(recurse=False):
        if not type(x).__module__.startswith("torchao."):
            continue
        read = _READERS.get(type(x).__name__)
        if name != "weight" or read is None:
            raise UnsupportedError(
                f"'{path}' ({type(module).__name__}): torchao's {type(x).__name__} as '{name}' has "
                f"no form on ONNX Runtime's CPU. {_NEED}"
            )
        found = read(x)
    return found


def _int8(x: Any) -> _Weight:
    """Reads an Int8Tensor."""
    scale = x.scale.detach().float()
    zero = torch.zeros_like(scale) if x.zero_point is None else x.zero_point
    static = x.act_quant_scale is not None
    dynamic = Activations.DYNAMIC if x.act_quant_kwargs is not None else Activations.FLOAT
    return _Weight(
        x.qdata,
        scale.reshape(scale.shape[0], -1),
        zero.reshape(scale.shape[0], -1),
        _BYTE,
        Activations.STATIC if static else dynamic,
        x.act_quant_scale.float().reshape(()) if static else None,
        bool(x.reduce_range),
    )


def _intx(x: Any) -> _Weight:
    """Reads an IntxUnpackedToInt8Tensor."""
    bits = int(str(x.target_dtype).removeprefix("torch.int"))
    scale, zero = (part.detach().float().flatten(1) for part in (x.scale, x.zero_point))
    kind = Activations.FLOAT if x.activation_quantization is None else Activations.DYNAMIC
    return _Weight(x.qdata, scale, zero, bits, kind)


def _int4(x: Any) -> _Weight:
    """Reads an Int4Tensor: w = integers * scale + zero_point, two integers in a byte."""
    packed = x.qdata.to(torch.int8)
    low = (packed << 4) >> 4  # with its sign
    integers = torch.stack([low, packed >> 4], -1).flatten(-2)
    scale, zero = (part.detach().float().t().contiguous() for part in (x.scale, x.zero_point))
    return _Weight(integers, scale, -zero / scale, 4)


_READERS = {"Int8Tensor": _int8, "IntxUnpackedToInt8Tensor": _intx, "Int4Tensor": _int4}


def _trained(module: Any, path: str) -> _Weight | None:
    """Reads a layer in torchao's training, which it converts to the same integers."""
    quantizer = module.weight_fake_quantizer
    if quantizer is None:
        return None
    bits = str(getattr(quantizer.config, "dtype", "")).rpartition("int")[2]
    with torch.no_grad():
        real = quantizer(module.weight).float()
    if quantizer.__class__.__name__ != "IntxFakeQuantizer" or not bits.isdecimal():
        raise UnsupportedError(
            f"'{path}' ({type(module).__name__}): trained with torchao's "
            f"{type(quantizer).__name__}, which has no form here. {_NEED}"
        )
    rows = module.weight.shape[0]
    scale, zero = (
        part.detach().float().reshape(rows, -1) for part in (quantizer.scale, quantizer.zero_point)
    )
    integers = (real.reshape(rows, scale.shape[1], -1) / scale[..., None]).round() + zero[..., None]
    activations = getattr(module, "activation_fake_quantizer", None)
    return _Weight(
        integers.reshape(module.weight.shape).to(torch.int8),
        scale,
        zero,
        int(bits),
        Activations.FLOAT if activations is None else Activations.DYNAMIC,
    )


# --- what holds it here


class WeightOnlyLinear(Linear):
    """y = x w^T + b in float32, w stored as int8, and made float when ONNX Runtime loads it."""

    def real_weight(self) -> Tensor:
        """float32 (integers - zero_point) * scale."""
        # no DequantizeLinear: with MatMul, ONNX Runtime makes MatMulNBits of int8 activations of it
        centred = self.weight_integers.float() - self.weight_zero_point.float().reshape(-1, 1)
        return centred * self.weight_scale.reshape(-1, 1)

    @takes_halves
    def forward(self, x: Tensor) -> Tensor:
        """float32 (..., in_features) -> (..., out_features)."""
        return F.linear(x, self.real_weight(), self.bias_values)


def _layer(module: Any, weight: _Weight, path: str) -> nn.Module:
    """The layer of onnxq with this weight."""
    if isinstance(module, nn.Embedding) and weight.groups == 1:
        rows, width = module.weight.shape
        return Embedding(rows, width, module.padding_idx, _weight=weight.qtensor(), dtype="qint8")
    bias = None if module.bias is None else module.bias.detach().float()
    if isinstance(module, CONVS) and weight.groups == 1:
        made: nn.Module = getattr(conv, f"Conv{module.weight.ndim - 2}d")(**arguments_of(module))
        made.set_weight_bias(weight.qtensor(), bias)  # type: ignore[operator]  # of each of these
        return made
    if not isinstance(module, nn.Linear):
        raise UnsupportedError(
            f"'{path}' ({type(module).__name__}): torchao quantized it in {weight.groups} groups; "
            "linear layers have such a form, others one scale for each output. Give it PerAxis(0)."
        )
    sizes = (module.in_features, module.out_features, bias is not None)
    if weight.groups > 1 or weight.bits < _BYTE:
        return _in_blocks(module, weight, bias, path)
    if weight.input_scale is not None:
        static = StaticLinear(*sizes)
        static.set_weight_bias(weight.qtensor(), bias, weight.input_scale)
        static.output = None
        # int8 around 0 as uint8 around 128, which ONNX Runtime runs in integers on every machine
        limits = (64, 191) if weight.is_reduced else (None, None)
        rounding = Requantize(weight.input_scale, 1 << (_BYTE - 1), torch.quint8, *limits)
        return nn.Sequential(rounding, static)
    is_dynamic = weight.activations is Activations.DYNAMIC
    layer: Any = Linear(*sizes) if is_dynamic else WeightOnlyLinear(*sizes)
    layer.set_weight_bias(weight.qtensor(), bias)
    return layer  # type: ignore[no-any-return]  # one of the two


def _in_blocks(module: Any, weight: _Weight, bias: Tensor | None, path: str) -> nn.Module:
    """The layer with its weight in groups, of a size that ONNX Runtime has kernels for."""
    outputs, inputs = module.weight.shape
    of_group = inputs // weight.groups
    sizes = [size for size in GROUP_SIZES if weight.groups == 1 or of_group % size == 0]
    if not sizes:
        raise UnsupportedError(
            f"'{path}' (Linear): torchao quantized it in groups of {of_group}; MatMulNBits has "
            f"{', '.join(map(str, GROUP_SIZES))}. Give it PerGroup(32)."
        )
    size = max(sizes)
    bits = next(known for known in (2, 4, _BYTE) if weight.bits <= known)
    offset = 1 << (bits - 1)
    points = weight.zero_point.expand(outputs, -1) + offset
    is_whole, is_middle = bool((points == points.round()).all()), bool((points == offset).all())
    scheme = Scheme.SYMMETRIC if is_middle else Scheme.AFFINE if is_whole else Scheme.REAL
    group_of = torch.arange(-(-inputs // size)) * size // of_group
    found = GroupIntegers(
        GroupSpec(bits, size, scheme),
        (weight.integers.short() + offset).to(torch.uint8).numpy(),
        weight.scale.expand(outputs, -1)[:, group_of].numpy(),
        points[:, group_of].to(torch.uint8 if is_whole else torch.float32).numpy(),
    )
    return GroupwiseLinear(inputs, outputs, bits, size).take(found, bias)
