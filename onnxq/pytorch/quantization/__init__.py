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

from typing import TYPE_CHECKING

from onnxq.pytorch.modules.refused_names import refusing
from onnxq.pytorch.quantization.fake_quantize import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.quantization.fake_quantize import __all__ as _fake_quantize  # type: ignore[attr-defined]  # computed
from onnxq.pytorch.quantization.fuse_modules import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.quantization.fuse_modules import __all__ as _fuse_modules
from onnxq.pytorch.quantization.observer import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.quantization.observer import __all__ as _observer  # type: ignore[attr-defined]  # computed
from onnxq.pytorch.quantization.qconfig import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.quantization.qconfig import __all__ as _qconfig  # type: ignore[attr-defined]  # computed
from onnxq.pytorch.quantization.quantization_mappings import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.quantization.quantization_mappings import __all__ as _quantization_mappings  # type: ignore[attr-defined]  # computed
from onnxq.pytorch.quantization.quantize import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.quantization.quantize import __all__ as _quantize
from onnxq.pytorch.quantization.quantize_jit import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.quantization.quantize_jit import __all__ as _quantize_jit
from onnxq.pytorch.quantization.refused import REFUSED
from onnxq.pytorch.quantization.stubs import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.quantization.stubs import __all__ as _stubs

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, REFUSED)

__all__ = sorted(
    [
        *_fake_quantize,
        *_fuse_modules,
        *_observer,
        *_qconfig,
        *_quantization_mappings,
        *_quantize,
        *_quantize_jit,
        *_stubs,
    ]
)
