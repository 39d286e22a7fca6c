"""Embeddings that are fake-quantized while they are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor, nn

from onnxq.pytorch.nn.qat.base import QatModule

if TYPE_CHECKING:
    import torch

    from onnxq.qconfig import QConfig


class Embedding(QatModule, nn.Embedding):
    """nn.Embedding with a fake-quantized weight; per channel: a scale for each row.

    Raises:
        QConfigError: no qconfig, or one that does not round weights.
    """

    float_type = nn.Embedding
    bias = None

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        qconfig: QConfig | None = None,
    ) -> None:
        nn.Embedding.__init__(
            self,
            num_embeddings,
            embedding_dim,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight,
            device=device,
            dtype=dtype,
        )
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
