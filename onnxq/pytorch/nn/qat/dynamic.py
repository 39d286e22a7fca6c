"""torch.ao.nn.qat.dynamic's one name, refused with what to use."""

from typing import TYPE_CHECKING

from onnxq.pytorch.modules.refused_names import QAT_DYNAMIC, refusing

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, QAT_DYNAMIC)
