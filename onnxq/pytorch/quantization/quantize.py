"""Verbs of eager quantization, by torch's name of their module."""

from typing import TYPE_CHECKING

from onnxq.pytorch.eager.add_observer import add_observer_, add_quant_dequant, get_observer_dict
from onnxq.pytorch.eager.convert import default_eval_fn, quantize, quantize_qat, swap_module
from onnxq.pytorch.eager.prepare import prepare_qat
from onnxq.pytorch.eager.propagation import propagate_qconfig_
from onnxq.pytorch.modules.refused_names import refusing
from onnxq.pytorch.quantization.refused import REFUSED
from onnxq.pytorch.quantization.workflow import convert, prepare, quantize_dynamic

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, REFUSED)

__all__ = [
    "add_observer_",
    "add_quant_dequant",
    "convert",
    "default_eval_fn",
    "get_observer_dict",
    "prepare",
    "prepare_qat",
    "propagate_qconfig_",
    "quantize",
    "quantize_dynamic",
    "quantize_qat",
    "swap_module",
]
