"""Embeddings that are fake-quantized while they are trained."""

from typing import Any

import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor, nn

from onnxq.pytorch.nn.qat.base import QatModule
from onnxq.pytorch.nn.triplets import given, signature_of


class Embedding(QatModule, nn.Embedding):
    """nn.Embedding with a fake-quantized weight; per channel: a scale for each row.

    Raises:
        QConfigError: no qconfig, or one that does not round weights.
    """

    float_type = nn.Embedding
    bias = None

    __signature__ = signature_of(nn.Embedding, "", qconfig=None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        arguments = given(self, args, kwargs)
        qconfig = arguments.pop("qconfig")
        super().__init__(**arguments)
        self.set_qconfig(qconfig)

    def forward(self, x: Tensor) -> Tensor:
        """fq(weight)[x]; x holds integers."""
        return F.embedding(
            x,
            self.deployed()[0],
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    @classmethod
    def arguments(cls, layer: Any) -> dict[str, Any]:
        """Sizes of the embedding, and what changes it or its gradient."""
        names = "num_embeddings embedding_dim padding_idx max_norm norm_type scale_grad_by_freq"
        return {name: getattr(layer, name) for name in (*names.split(), "sparse")}
