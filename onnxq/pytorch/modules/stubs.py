"""Where a model's quantized part begins and ends."""

from typing import Any

from torch import Tensor, nn

from onnxq.qconfig import QConfig


class _Stub(nn.Module):
    """A mark on a tensor, which it gives back as it is."""

    def __init__(self, qconfig: QConfig | None = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        """The input."""
        return x


class QuantStub(_Stub):
    """Start of a quantized part: its input, which `prepare` observes and `prepare_qat` rounds here.

    Args:
        qconfig: how; None: that of a module around it.
    """


class DeQuantStub(_Stub):
    """End of a quantized part: its input, unchanged; what follows stays in float.

    Args:
        qconfig: as that of QuantStub; there is nothing to quantize.
    """


class QuantWrapper(nn.Module):
    """A module between a QuantStub and a DeQuantStub.

    Args:
        module: takes one tensor or several, each quantized by the same stub, and returns one.
    """

    quant: QuantStub
    dequant: DeQuantStub
    module: nn.Module

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        qconfig: Any = getattr(module, "qconfig", None)
        self.add_module("quant", QuantStub(qconfig))
        self.add_module("dequant", DeQuantStub(qconfig))
        self.add_module("module", module)
        self.train(module.training)

    def forward(self, x: Tensor) -> Any:
        """dequant(module(quant(x)))."""
        return self.dequant(self.module(self.quant(x)))
