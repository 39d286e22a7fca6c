from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import onnxq.pytorch
from onnxq.pytorch import tensor_quant
from onnxq.pytorch.nn import intrinsic, qat, quantized
from onnxq.pytorch.nn.intrinsic import qat as intrinsic_qat
from onnxq.pytorch.nn.intrinsic import quantized as intrinsic_quantized
from onnxq.pytorch.nn.quantized import dynamic

if TYPE_CHECKING:
    from types import ModuleType

CONVS = "Conv1d Conv2d Conv3d"
FUSED = "ConvBn1d ConvBn2d ConvBnReLU1d ConvBnReLU2d ConvReLU1d ConvReLU2d ConvReLU3d LinearReLU"
NORMS = "BatchNorm2d BatchNorm3d GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm"
DOCUMENTED = {
    onnxq.pytorch: "prepare convert quantize quantize_dynamic prepare_qat quantize_qat "
    "fuse_modules propagate_qconfig_ add_observer_ swap_module add_quant_dequant get_observer_dict "
    "default_eval_fn quantize_jit quantize_dynamic_jit QuantStub DeQuantStub QuantWrapper "
    "FloatFunctional FakeQuantize",
    quantized: f"{CONVS} {NORMS} Linear ReLU ReLU6 ELU Hardswish MaxPool2d Quantize DeQuantize "
    "FloatFunctional QFunctional Embedding EmbeddingBag",
    dynamic: "Linear LSTM LSTMCell GRU GRUCell RNN RNNCell",
    intrinsic: FUSED,
    intrinsic_qat: FUSED,
    intrinsic_quantized: "ConvReLU1d ConvReLU2d ConvReLU3d LinearReLU",
    qat: f"{CONVS} Linear Embedding",
    tensor_quant: "QuantDescriptor ScaledQuantDescriptor TensorQuantFunction "
    "FakeTensorQuantFunction tensor_quant fake_tensor_quant TensorQuantizer",
}
"""Names of PyTorch's and pytorch_quantization's documents, and the modules that have them."""


@pytest.mark.parametrize("module", DOCUMENTED, ids=lambda module: module.__name__)
def test_every_documented_name_is_public(module: ModuleType) -> None:
    assert set(DOCUMENTED[module].split()) <= set(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)
