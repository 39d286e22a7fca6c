"""Linear layers whose weight is fake-quantized while they are trained."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor, nn

from onnxq.errors import QConfigError
from onnxq.pytorch.modules.torch_qconfig import own_entry
from onnxq.pytorch.nn.qat.base import QatModule
from onnxq.pytorch.numerics.fake_quantize import fake_quantize_module
from onnxq.qconfig import FakeQuantSpec, QConfig, QConfigDynamic
from onnxq.qparams.group_spec import BITS, GROUP_SIZES


class Linear(QatModule, nn.Linear):
    """nn.Linear with a fake-quantized weight.

    Raises:
        QConfigError: no qconfig, or one that does not round weights.
    """

    float_type: ClassVar[type[nn.Module]] = nn.Linear

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: QConfig | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        nn.Linear.__init__(self, in_features, out_features, bias, device, dtype)
        self.set_qconfig(qconfig)

    def layer(self, x: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> Tensor:  # noqa: ARG002  # some take others
        """The linear layer x @ weight.T + bias."""
        return F.linear(x, weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        """The linear layer x @ fq(weight).T + fq32(bias)."""
        return self.activated(self.pre_activation(x))


# --- Linear layer that is trained with a weight in blocks: what MatMulNBits will multiply with.
#
#     y = x @ fq(w).T + bias        one scale for each `block_size` inputs of each output
#
# Activations stay float, and so does the bias.


class GroupwiseLinear(Linear):
    """nn.Linear with a weight that is fake-quantized in groups of its inputs.

    The blocks are what `weight_fake_quant` sees as channels: rows of `block_size` numbers, the
    last one of an output filled up with zeros.

    Attributes:
        weight_fake_quant: rounds (outputs * blocks, block_size).
        block_size: how many inputs share a scale.
    """

    block_size: int

    def set_qconfig(self, qconfig: object) -> None:
        """Keeps the qconfig and makes the weight's FakeQuantize of it; part of the constructor."""
        where = type(self).__name__
        found = own_entry(qconfig, where)
        self.weight_fake_quant = fake_quantize_module(rounding_part(found, where))
        self.weight_fake_quant.to(self.weight.device)
        self.weight_fake_quant.is_replicated = True
        assert isinstance(found, QConfigDynamic), "rounding_part looked"
        assert found.block_size is not None, "likewise"
        self.qconfig, self.block_size = found, found.block_size

    def rows(self) -> Tensor:
        """The blocks of the weight, (outputs * blocks, block_size), with their gradient."""
        missing = -self.in_features % self.block_size
        return F.pad(self.weight, (0, missing)).reshape(-1, self.block_size)

    def deployed(self) -> tuple[Tensor, Tensor | None]:
        """(weight rounded in blocks, bias as it is)."""
        rounded = self.weight_fake_quant(self.rows())
        return rounded.reshape(self.out_features, -1)[:, : self.in_features], self.bias

    def extra_repr(self) -> str:
        """Sizes, and that of the blocks."""
        return f"{super().extra_repr()}, block_size={self.block_size}"


def rounding_part(entry: object, where: str) -> FakeQuantSpec:
    """The weight's part of a qconfig for training in blocks; its rows are channels."""
    if not isinstance(entry, QConfigDynamic) or entry.block_size not in GROUP_SIZES:
        raise QConfigError(
            f"{where}: got {entry!r}; wanted a QConfigDynamic with a block size of "
            f"{', '.join(map(str, GROUP_SIZES))}, such as onnxq.qconfig.groupwise_4bit_qat_qconfig."
        )
    part = entry.weight
    if not isinstance(part, FakeQuantSpec):
        raise QConfigError(
            f"{where}: the qconfig's weight is the observer {part}, which does not round; training "
            "wants a FakeQuantSpec. Use onnxq.qconfig.groupwise_4bit_qat_qconfig, or "
            "FakeQuantize.with_args(observer=...)."
        )
    observer = part.observer()
    if not observer.qscheme.per_channel or getattr(observer, "ch_axis", 0) != 0:
        raise QConfigError(
            f"{where}: {part.observer} has no scale for each row; blocks are rows, which have "
            "scales of their own. Use a PerChannelMinMaxObserver, or a StepSizeObserver."
        )
    if not observer.dtype.is_integer or observer.dtype.bits not in BITS:
        raise QConfigError(
            f"{where}: {part.observer} gives {observer.dtype}; MatMulNBits has 2, 4 or 8 bits. Say "
            "dtype='int4' or 'uint4'."
        )
    return part
