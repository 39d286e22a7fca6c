"""The linear layer whose activations are quantized when it runs."""

from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # as everywhere

from onnxq.errors import UnsupportedError
from onnxq.pytorch.nn.qat.linear import GroupwiseLinear as Trained
from onnxq.pytorch.nn.quantized.dynamic.weights import DynamicWeights
from onnxq.pytorch.nn.quantized.stored import Stored
from onnxq.pytorch.nn.quantized.weighted import check_type, having_seen
from onnxq.pytorch.numerics.dynamic_ops import (
    dynamic_quantize_linear,
    matmul_integer,
    matmul_n_bits,
    real_weight,
)
from onnxq.pytorch.numerics.half_inputs import takes_halves
from onnxq.qparams.group_spec import GroupSpec, Scheme
from onnxq.qparams.groups import GroupIntegers


class Linear(DynamicWeights):
    """y = float32(sum (xq - x_zp) (wq - w_zp)) * (x_scale * w_scale) + b.

    xq, x_scale and x_zp are those of DynamicQuantizeLinear of the whole x, uint8. In the exported
    model DynamicQuantizeLinear and MatMulInteger, which ONNX Runtime fuses; equal to it bit for
    bit. With float16 weights it computes in float32, and no activation is rounded.

    Args:
        in_features: length of the last axis of x.
        out_features: of the result.
        bias_: whether there is one.
        dtype: torch.qint8, or torch.float16 for weights of that type.
    Attributes:
        bias_values: float32 (out_features,), or None.
    """

    float_type: ClassVar[type[nn.Module]] = nn.Linear

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias_: bool = True,
        dtype: torch.dtype = torch.qint8,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.make_buffers((out_features, in_features), out_features if bias_ else None)
        if dtype == torch.float16:
            self.weight_integers = self.weight_integers.half()
        self.refresh()

    @takes_halves
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float32 (..., in_features) -> (..., out_features)."""
        if self.is_half:
            return F.linear(x, self.weight_integers.to(x.dtype), self.bias_values)
        integers, scale, zero_point = dynamic_quantize_linear(x)
        w_zero_point = None if self._centred else self.weight_zero_point
        total = matmul_integer(integers, self.weight_integers.t(), zero_point, w_zero_point)
        y: torch.Tensor = total.to(torch.float32) * (scale * self.weight_scale)
        return y if self.bias_values is None else y + self.bias_values

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: object = False) -> Self:  # noqa: ARG003  # torch's
        """The module of a float one; its qconfig, a QConfigDynamic, says how weights are quantized.

        Raises:
            UnsupportedError: another type of module.
            QConfigError: a qconfig of another kind.
        """
        check_type(mod, cls.float_type, cls.__name__)
        linear: Any = mod
        return cls(linear.in_features, linear.out_features, linear.bias is not None).take(mod)

    def extra_repr(self) -> str:
        """Sizes and type of the integers."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        text = f"{sizes}, dtype={self.dtype_repr()}"
        return text if self.bias_values is not None else f"{text}, bias=False"


# --- The linear layer whose weight is stored in blocks: com.microsoft MatMulNBits.


class GroupwiseLinear(Stored):
    """y = x @ w.T + bias, w = (integers - zero_points) * scales; a scale for each block of inputs.

    In the exported model it is one MatMulNBits with accuracy_level 0: activations stay float32.

    Attributes:
        integers: uint8 (out_features, blocks, block_size * bits / 8), the first integer in the low
            bits.
        scales: float32 (out_features * blocks,).
        zero_points: uint8, packed as the integers of each output, flat; or float32, one for each
            scale; None: 2^(bits - 1).
        bias_values: float32 (out_features,), or None.
    """

    integers: Tensor
    scales: Tensor
    zero_points: Tensor | None
    bias_values: Tensor | None

    def __init__(self, in_features: int, out_features: int, bits: int, block_size: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.bits, self.block_size = bits, block_size
        blocks = -(-in_features // block_size)
        shape = (out_features, blocks, block_size * bits // 8)
        self.register_buffer("integers", torch.zeros(shape, dtype=torch.uint8))
        self.register_buffer("scales", torch.ones(out_features * blocks))
        self.register_buffer("zero_points", None)
        self.register_buffer("bias_values", None)

    @takes_halves
    def forward(self, x: Tensor) -> Tensor:
        """float32 (..., in_features) -> (..., out_features)."""
        sizes = (self.in_features, self.bits, self.block_size)
        weight = (self.integers, self.scales, self.zero_points)
        return matmul_n_bits(x, *weight, self.bias_values, *sizes)

    @property
    def qweight(self) -> Tensor:
        """The packed integers, by the name under which peft looks for a layer's device."""
        return self.integers

    def bias(self) -> Tensor | None:
        """The bias, float32."""
        return self.bias_values

    def real_weight(self) -> Tensor:
        """float32 (out_features, in_features)."""
        return real_weight(
            self.integers, self.scales, self.zero_points, self.in_features, self.bits
        )

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: object = False) -> Self:  # noqa: ARG003  # torch's
        """The module of a trained one, with the integers that its weight has now."""
        if not isinstance(mod, Trained):
            raise UnsupportedError(
                f"{cls.__name__}.from_float: got {type(mod).__name__}; wanted what prepare_qat "
                "makes of an nn.Linear whose qconfig has a block size."
            )
        found = block_integers(mod)
        spec = found.spec
        made = cls(mod.in_features, mod.out_features, spec.bits, spec.group_size)
        bias = None if mod.bias is None else mod.bias.detach().clone()
        return made.take(found, bias).to(mod.weight.device)

    def take(self, found: GroupIntegers, bias: Tensor | None) -> Self:
        """Stores a weight in groups, and a float bias."""
        for name, array in found.packed().arrays.items():
            setattr(self, name, torch.from_numpy(array.copy()))
        self.bias_values = bias
        return self

    def extra_repr(self) -> str:
        """Sizes, bits and blocks."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bits={self.bits}, block_size={self.block_size}"


def block_integers(trained: Trained) -> GroupIntegers:
    """The integers that a trained layer's weight has now."""
    fake = trained.weight_fake_quant
    if not fake.has_observed:
        fake = having_seen(fake, trained.rows())
    bits, qparams = fake.dtype.bits, fake.qparams()
    offset = 1 << (bits - 1) if fake.dtype.signed else 0
    with torch.no_grad():
        integers = fake.integers(trained.rows()).cpu().numpy().astype(np.int16) + offset
    outputs, inputs = trained.out_features, trained.in_features
    points = (qparams.zero_point.astype(np.int16) + offset).astype(np.uint8)
    scheme = Scheme.SYMMETRIC if (points == 1 << (bits - 1)).all() else Scheme.AFFINE
    return GroupIntegers(
        GroupSpec(bits, trained.block_size, scheme),
        integers.astype(np.uint8).reshape(outputs, -1)[:, :inputs],
        qparams.scale.reshape(outputs, -1),
        points.reshape(outputs, -1),
    )
