"""From PyTorch to onnxq: the only folder that imports torch (extra `torch`)."""

from onnxq.errors import UnsupportedError

try:
    import torch as _torch  # noqa: F401  # first, so that a missing torch is one clear message
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise UnsupportedError(
        "onnxq.pytorch needs torch, which is not installed. Run: pip install 'torch>=2.13' "
        "safetensors."
    ) from error

from onnxq.pytorch.arguments.bound_inputs import Inputs, feeds
from onnxq.pytorch.arguments.example_inputs import (
    example_inputs,
    nested_inputs,
    parse_axis,
    parse_input,
    read_inputs,
)
from onnxq.pytorch.eager.add_observer import add_observer_, add_quant_dequant, get_observer_dict
from onnxq.pytorch.eager.convert import (
    convert,
    default_eval_fn,
    quantize,
    quantize_,
    quantize_qat,
    swap_module,
)
from onnxq.pytorch.eager.fuse_modules import fuse_known_modules, fuse_modules, fuse_modules_qat
from onnxq.pytorch.eager.jit import quantize_dynamic_jit, quantize_jit
from onnxq.pytorch.eager.prepare import prepare, prepare_qat
from onnxq.pytorch.eager.propagation import propagate_qconfig_
from onnxq.pytorch.exporting.dynamic_export import quantize_dynamic
from onnxq.pytorch.exporting.exporter import export
from onnxq.pytorch.importers import ImportedModelWarning, import_quantized
from onnxq.pytorch.insertion.annotate import annotate
from onnxq.pytorch.modules.factory import load_factory, load_module, load_weights
from onnxq.pytorch.modules.float_functional import FloatFunctional
from onnxq.pytorch.modules.stubs import DeQuantStub, QuantStub, QuantWrapper
from onnxq.pytorch.numerics.all_observers import (
    check_observed_values,
    forget_left_out,
    synchronize_ranks,
)
from onnxq.pytorch.numerics.fake_quantize import (
    FakeQuantize,
    LearnableFakeQuantize,
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
    fake_quantize_module,
)

__all__ = [
    "DeQuantStub",
    "FakeQuantize",
    "FloatFunctional",
    "ImportedModelWarning",
    "Inputs",
    "LearnableFakeQuantize",
    "QuantStub",
    "QuantWrapper",
    "add_observer_",
    "add_quant_dequant",
    "annotate",
    "check_observed_values",
    "convert",
    "default_eval_fn",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "example_inputs",
    "export",
    "fake_quantize_module",
    "feeds",
    "forget_left_out",
    "fuse_known_modules",
    "fuse_modules",
    "fuse_modules_qat",
    "get_observer_dict",
    "import_quantized",
    "load_factory",
    "load_module",
    "load_weights",
    "nested_inputs",
    "parse_axis",
    "parse_input",
    "prepare",
    "prepare_qat",
    "propagate_qconfig_",
    "quantize",
    "quantize_",
    "quantize_dynamic",
    "quantize_dynamic_jit",
    "quantize_jit",
    "quantize_qat",
    "read_inputs",
    "swap_module",
    "synchronize_ranks",
]
