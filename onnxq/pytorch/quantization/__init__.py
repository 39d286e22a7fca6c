"""torch.quantization's documented names in one namespace, with their documented meaning.

    import onnxq.pytorch.quantization as tq     # in place of: import torch.quantization as tq

    model.qconfig = tq.get_default_qconfig("fbgemm")
    prepared = tq.prepare(model.eval())
    prepared(batch)
    quantized = tq.convert(prepared)
    onnxq.export(quantized, batch, "model.onnx")

Names that have no counterpart can be imported; using one says what to use in its place.

Modules go in and modules come out. onnxq.pytorch has the same verbs for what torch does not
document: example inputs in place of stubs, and quantize_dynamic to ONNX in one step.
"""

import sys
from typing import TYPE_CHECKING

from onnxq.pytorch.modules.refused_names import QUANTIZATION, refusing
from onnxq.pytorch.quantization import fake_quantize as _fake_quantize
from onnxq.pytorch.quantization import observer as _observer
from onnxq.pytorch.quantization import qconfig as _qconfig
from onnxq.pytorch.quantization import quantization_mappings as _mappings
from onnxq.pytorch.quantization import workflow as _workflow
from onnxq.pytorch.quantization.fake_quantize import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.quantization.observer import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.quantization.qconfig import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.quantization.quantization_mappings import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.quantization.workflow import *  # noqa: F403  # its `__all__`

_PARTS = (_fake_quantize, _observer, _qconfig, _mappings, _workflow)
__all__ = sorted(name for part in _PARTS for name in vars(part)["__all__"])

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, QUANTIZATION)
for _part in _PARTS:
    vars(_part)["__getattr__"] = refusing(_part.__name__, QUANTIZATION)
# modules of torch's with nothing of their own here: import onnxq.pytorch.quantization.stubs
_OTHERS = ("fuse_modules", "qconfig_mapping", "quantize", "quantize_fx", "quantize_jit", "stubs")
sys.modules |= {f"{__name__}.{name}": sys.modules[__name__] for name in _OTHERS}
