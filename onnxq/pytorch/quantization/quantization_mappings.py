"""Which module takes the place of which, as torch.quantization's functions say it."""

from typing import TYPE_CHECKING

from torch import nn

from onnxq.pytorch.eager.add_observer import COMPUTING
from onnxq.pytorch.modules.transposed import CONVOLUTIONS
from onnxq.pytorch.train.conversion import DYNAMIC_MAPPING, QAT_MAPPING, STATIC_MAPPING


def get_default_static_quant_module_mappings() -> dict[type[nn.Module], type[nn.Module]]:
    """{float or trained type: quantized type}: what `convert` puts in the place of what."""
    return dict(STATIC_MAPPING)


def get_default_dynamic_quant_module_mappings() -> dict[type[nn.Module], type[nn.Module]]:
    """{float type: dynamic type}: what `quantize_dynamic` puts in the place of what.

    Convolutions are not among them, as in torch: they are quantized dynamically where they are
    named.
    """
    return {kind: made for kind, made in DYNAMIC_MAPPING.items() if kind not in CONVOLUTIONS}


def get_default_qat_module_mappings() -> dict[type[nn.Module], type[nn.Module]]:
    """{float type: trained type}: what `prepare_qat` puts in the place of what."""
    return dict(QAT_MAPPING)


def get_default_qconfig_propagation_list() -> set[type[nn.Module]]:
    """Types whose result `prepare` observes."""
    return set(COMPUTING)


if not TYPE_CHECKING:  # which reads no list that is computed
    __all__ = sorted([name for name in vars() if name.startswith("get_default")])
