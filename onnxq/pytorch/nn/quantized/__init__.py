"""Layers that hold integers and compute in float what is deployed.

They take and return fake-quantized float32, scale * (q - zero_point); `onnxq.export` writes
the integers. Arguments and names are those of torch.nn.quantized.
"""

from typing import TYPE_CHECKING

from onnxq.pytorch.modules.float_functional import FloatFunctional as FloatFunctional
from onnxq.pytorch.modules.refused_names import QUANTIZED, refusing
from onnxq.pytorch.nn.quantized import activation, conv, normalization
from onnxq.pytorch.nn.quantized import functional as functional
from onnxq.pytorch.nn.quantized.activation import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.nn.quantized.conv import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.nn.quantized.embedding import Embedding as Embedding
from onnxq.pytorch.nn.quantized.embedding import EmbeddingBag as EmbeddingBag
from onnxq.pytorch.nn.quantized.linear import Linear as Linear
from onnxq.pytorch.nn.quantized.normalization import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.nn.quantized.output_qparams import QFunctional as QFunctional
from onnxq.pytorch.nn.quantized.requantize import DeQuantize as DeQuantize
from onnxq.pytorch.nn.quantized.requantize import Quantize as Quantize
from onnxq.pytorch.nn.quantized.requantize import Requantize as Requantize

__all__ = sorted(
    [
        *activation.__all__,
        *conv.__all__,  # type: ignore[attr-defined]  # computed
        *normalization.__all__,
        "DeQuantize",
        "Embedding",
        "EmbeddingBag",
        "FloatFunctional",
        "Linear",
        "QFunctional",
        "Quantize",
        "Requantize",
        "functional",
    ]
)

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, QUANTIZED)
