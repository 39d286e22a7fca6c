"""Module types and what takes their place, computed from the `float_type` of each mapped module.

float_type ------------> trained type -------------------------> quantized type
intrinsic.ConvBnReLU2d   intrinsic.qat.ConvBnReLU2d               intrinsic.quantized.ConvReLU2d
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxq.pytorch.nn import qat
from onnxq.pytorch.nn import quantized as nnq
from onnxq.pytorch.nn.intrinsic import qat as fused
from onnxq.pytorch.nn.intrinsic import quantized as nniq
from onnxq.pytorch.nn.qat.linear import LinearInBlocks as TrainedInBlocks
from onnxq.pytorch.nn.quantized import dynamic
from onnxq.pytorch.nn.quantized.dynamic.linear import LinearInBlocks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from torch import nn

    Types = Mapping[type[nn.Module], type[nn.Module]]


def _by_float_type(*modules: ModuleType) -> dict[type[nn.Module], Any]:
    """{float type: what stands for it} of the public classes of these modules."""
    kinds = [getattr(module, name) for module in modules for name in module.__all__]
    return {kind.float_type: kind for kind in kinds if hasattr(kind, "float_type")}


_QUANTIZED = _by_float_type(nnq, nniq)

QAT_MAPPING: Types = _by_float_type(qat, fused)
"""Trained types, which prepare_qat puts in the place of float modules with a qconfig."""

STATIC_MAPPING: Types = {
    **_QUANTIZED,
    **{kind: _QUANTIZED[kind.deployed_type()] for kind in _by_float_type(qat, fused).values()},
}
"""Quantized types for modules whose activations have been observed or trained."""

DYNAMIC_MAPPING: Types = {**_by_float_type(dynamic), TrainedInBlocks: LinearInBlocks}
"""Quantized types for modules whose qconfig is a QConfigDynamic: nothing needs to be observed."""
