"""Parts of torch.ao that existing code holds, as onnxq's: stubs and fused float modules.

Told by their module and class names, so that torch.ao need not be there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.pytorch.modules.float_functional import FloatFunctional
from onnxq.pytorch.modules.hooks import carry_over
from onnxq.pytorch.modules.stubs import DeQuantStub, QuantStub
from onnxq.pytorch.modules.torch_qconfig import FOREIGN
from onnxq.pytorch.nn.intrinsic import FUSED

if TYPE_CHECKING:
    from torch import nn

_MODULES: dict[str, type[nn.Module]] = {
    kind.__name__: kind for kind in (QuantStub, DeQuantStub, FloatFunctional, *FUSED)
}


def own_module(mod: nn.Module) -> nn.Module:
    """The module of onnxq for torch.ao's stub, FloatFunctional or fused module; else itself."""
    kind = type(mod)
    own = _MODULES.get(kind.__name__)
    if own is None or not kind.__module__.startswith(FOREIGN) or hasattr(mod, "weight_fake_quant"):
        return mod
    made = own(*mod.children()) if own in FUSED else own()
    return carry_over(mod, made)
