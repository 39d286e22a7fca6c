"""Convolutions whose weight is fake-quantized while they are trained, transposed ones too."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from onnxq.pytorch.modules.transposed import CONVS, TRANSPOSED, convolved, per_weight
from onnxq.pytorch.nn.qat.base import QatModule
from onnxq.pytorch.nn.triplets import given, names_of, signature_of, triplet


class _AnyConvolution(QatModule):
    """The arithmetic of a convolution, transposed or not, with 1, 2 or 3 spatial axes."""

    more: ClassVar[dict[str, Any]] = {"qconfig": None}
    """Arguments beside those of torch.nn's layer, and their defaults."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        arguments = given(self, args, kwargs)
        own = {name: arguments.pop(name) for name in self.more}
        super().__init__(**arguments)
        self.finish(**own)

    def finish(self, qconfig: object) -> None:
        """The end of the constructor, with the arguments beside."""
        self.set_qconfig(qconfig)

    def layer(self, x: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> Tensor:
        """The convolution with these parameters; `others`: output_size of a transposed one."""
        return convolved(self, x, weight, bias, *others)


class Convolution(_AnyConvolution):
    """Convolutions; the arguments are nn.Conv2d's and a qconfig."""

    def forward(self, x: Tensor) -> Tensor:
        """The layer with fq(weight) and fq32(bias), batch norm and ReLU where they are fused."""
        return self.activated(self.pre_activation(x))


class TransposedConvolution(_AnyConvolution):
    """Transposed convolutions; the arguments are nn.ConvTranspose2d's and a qconfig.

    Per channel, the weight has a scale for each output channel of a group; depthwise, for each
    channel. The ch_axis of the qconfig's observer does not count.
    """

    groups: int

    def per_weight(self, values: Tensor) -> Tensor:
        """A vector of output channels, shaped to broadcast with (in, out / groups, *kernel)."""
        return per_weight(values, self.weight, self.groups)

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The layer with fq(weight) and fq32(bias), batch norm and ReLU where they are fused."""
        return self.activated(self.pre_activation(x, output_size))


if not TYPE_CHECKING:  # which reads no list that is computed
    __all__ = names_of("Conv", "ConvTranspose")
Conv1d, Conv2d, Conv3d = triplet(
    __name__,
    "Conv",
    "nn.Conv{n}d with a fake-quantized weight.",
    Convolution,
    CONVS,
    float_type=lambda n: CONVS[n - 1],
    __signature__=lambda n: signature_of(CONVS[n - 1], "device", **_AnyConvolution.more),
)
ConvTranspose1d, ConvTranspose2d, ConvTranspose3d = triplet(
    __name__,
    "ConvTranspose",
    "nn.ConvTranspose{n}d with a fake-quantized weight.",
    TransposedConvolution,
    TRANSPOSED,
    float_type=lambda n: TRANSPOSED[n - 1],
    __signature__=lambda n: signature_of(TRANSPOSED[n - 1], "device", **_AnyConvolution.more),
)
