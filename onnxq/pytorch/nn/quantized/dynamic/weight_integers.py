"""Weights of float modules as integers, for dynamic quantization."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from onnxq.errors import QConfigError, UnsupportedError, kind_of
from onnxq.pytorch.numerics.fake_quantize import fake_quantize_module
from onnxq.qconfig import QConfigDynamic, onnxq_default_dynamic_qconfig
from onnxq.qtensor import QTensor

if TYPE_CHECKING:
    from torch import nn

    from onnxq.qconfig import Part


def is_float16(mod: nn.Module) -> bool:
    """Whether the module's QConfigDynamic stores its weights as float16."""
    qconfig = getattr(mod, "qconfig", None)
    return isinstance(qconfig, QConfigDynamic) and qconfig.weight_observer.name == "NoopObserver"


def weight_part(mod: nn.Module, wanted_by: str) -> Part:
    """How the module's weights are quantized: by its QConfigDynamic, else onnxq's default."""
    qconfig = getattr(mod, "qconfig", None) or onnxq_default_dynamic_qconfig
    if not isinstance(qconfig, QConfigDynamic):
        raise QConfigError(
            f"{wanted_by}.from_float: the {type(mod).__name__} has {kind_of(qconfig)}; "
            "wanted a QConfigDynamic, such as onnxq.qconfig.default_dynamic_qconfig."
        )
    if is_float16(mod):
        raise UnsupportedError(
            f"{wanted_by}.from_float: the qconfig stores weights as float16; this module holds "
            "int8. Use onnxq.pytorch.quantize_dynamic(model, dtype=torch.float16), which writes "
            "them to the ONNX model."
        )
    return qconfig.weight


def quantized(weight: torch.Tensor, part: Part) -> QTensor:
    """The integers of a float weight, channels along axis 0 where there are several scales."""
    fake = fake_quantize_module(part).to(weight.device)
    weight = weight.detach().to(torch.float32)
    fake.enable_observer()
    fake(weight)
    integers = fake.integers(weight)
    return QTensor(integers.cpu().numpy(), fake.qparams())
