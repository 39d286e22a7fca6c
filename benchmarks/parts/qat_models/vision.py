"""Models of timm, with random weights, made beside a stub of what timm wants of torchvision."""

from __future__ import annotations

import contextlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

    Made = tuple[nn.Module, dict[str, torch.Tensor]]

_TORCHVISION = """
    torchvision torchvision.ops torchvision.ops.misc torchvision.models torchvision.transforms
    torchvision.models.feature_extraction torchvision.transforms.functional torchvision.datasets
"""
_ROWS = 4


class _Names(type):
    """The type of classes whose attributes are their own names, as those of an enum."""

    def __getattr__(cls, name: str) -> str:
        return name


class _Stub(ModuleType):
    """A module that has every name: a class that nobody calls."""

    __path__: list[str] = []  # noqa: RUF012  # a package's, as import reads it

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or _Names(name, (), {})


@contextlib.contextmanager
def _stub_of_torchvision() -> Iterator[None]:
    """While it lasts, torchvision can be imported; there is no wheel of it for this torch on CPUs.

    Gone afterwards: torch's exporter and transformers ask whether there is one.
    """
    names = [name for name in _TORCHVISION.split() if name not in sys.modules]
    try:
        for name in names:
            sys.modules[name] = _Stub(name)
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)


def _made(name: str, pixels: int, **options: Any) -> Made:
    with _stub_of_torchvision():
        import timm  # not without the stub

        model: nn.Module = timm.create_model(name, pretrained=False, num_classes=10, **options)
    return model, {"x": torch.randn(_ROWS, 3, pixels, pixels)}


def resnet18() -> Made:
    """Residual blocks, 11 million weights."""
    return _made("resnet18", 32)


def mobilenetv3() -> Made:
    """Depthwise blocks with hard swish and squeeze."""
    return _made("mobilenetv3_small_050", 32)


def efficientnet() -> Made:
    """Depthwise blocks with SiLU and squeeze."""
    return _made("efficientnet_b0", 32)


def vit_timm() -> Made:
    """Vision transformer."""
    options = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
    return _made("vit_tiny_patch16_224", 32, **options)


def swin() -> Made:
    """Windows that shift, merged patches."""
    options = {"img_size": 32, "patch_size": 2, "window_size": 4, "embed_dim": 16}
    return _made("swin_tiny_patch4_window7_224", 32, depths=(2, 2), num_heads=(2, 4), **options)


def convnext() -> Made:
    """Large depthwise kernels, layer norms, layer scale."""
    return _made("convnext_atto", 32)


def mobilenetv4() -> Made:
    """Universal inverted bottlenecks."""
    return _made("mobilenetv4_conv_small_050", 64)


def ghostnetv2() -> Made:
    """Halves of channels from cheap convolutions, gated by attention along rows and columns."""
    return _made("ghostnetv2_100", 64)


def densenet() -> Made:
    """Layers that read all layers ahead of them."""
    return _made("densenet121", 32, block_config=(2, 2, 2, 2))


def repvit() -> Made:
    """Depthwise blocks of branches that are summed."""
    return _made("repvit_m0_9", 32)


def edgenext() -> Made:
    """Convolutions of split channels, attention across channels."""
    return _made("edgenext_xx_small", 64)


def xcit() -> Made:
    """Attention across channels."""
    return _made("xcit_nano_12_p16_224", 64, depth=2, img_size=64)


def maxvit() -> Made:
    """Attention within windows, and along a grid."""
    options = {"img_size": 64, "depths": (1, 1), "embed_dim": (32, 64), "stem_width": 16}
    return _made("maxvit_pico_rw_256", 64, **options)


MODELS: dict[str, Callable[[], Made]] = {
    make.__name__: make
    for make in (
        *(resnet18, mobilenetv3, efficientnet, vit_timm, swin, convnext),
        *(mobilenetv4, ghostnetv2, densenet, repvit, edgenext, xcit, maxvit),
    )
}
"""Name -> model with random weights, example inputs by name."""
