from __future__ import annotations

from torch import nn

from onnxq.pytorch.nn import qat, quantized
from onnxq.pytorch.nn.quantized import dynamic
from onnxq.pytorch.quantization import quantization_mappings as mappings


def test_a_layer_is_mapped_for_each_way() -> None:
    assert mappings.get_default_static_quant_module_mappings()[nn.Linear] is quantized.Linear
    assert mappings.get_default_dynamic_quant_module_mappings()[nn.Linear] is dynamic.Linear
    assert mappings.get_default_qat_module_mappings()[nn.Linear] is qat.Linear
    assert nn.Linear in mappings.get_default_qconfig_propagation_list()
