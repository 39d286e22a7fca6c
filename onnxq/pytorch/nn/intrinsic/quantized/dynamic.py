"""torch.ao.nn.intrinsic.quantized.dynamic's one name, refused with what to use."""

from typing import TYPE_CHECKING

from onnxq.pytorch.modules.refused_names import INTRINSIC_DYNAMIC, refusing

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, INTRINSIC_DYNAMIC)
