"""Embeddings stored as integers: rows are looked up as integers, and dequantized then."""

from collections.abc import Callable
from typing import Self

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everywhere

from onnxq.dtypes import QDType
from onnxq.errors import QConfigError
from onnxq.pytorch.nn.mapped_module import MappedModule
from onnxq.pytorch.nn.quantized.observed import output_fake_quantize
from onnxq.pytorch.nn.quantized.output_qparams import OptionalOutput
from onnxq.pytorch.nn.quantized.requantize import Requantize
from onnxq.pytorch.nn.quantized.weighted import arguments_in, check_layer, float_weights
from onnxq.pytorch.numerics.integer_types import qdtype_of, torch_dtype
from onnxq.pytorch.numerics.rounding_ops import dequantize_linear
from onnxq.qtensor import QTensor

_REDUCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "max": torch.amax,
}


class _Embedding(OptionalOutput, MappedModule):
    """A quantized embedding, looked up by index."""

    def make_buffers(
        self, shape: tuple[int, int], weight: object, dtype: torch.dtype | QDType | str
    ) -> None:
        """Zeros at scale 1, or the given quantized weight."""
        self.register_weight(shape, torch_dtype(qdtype_of(dtype)))
        self.output = None
        self.refresh()
        if isinstance(weight, QTensor | torch.Tensor):
            self.set_weight(weight)

    def set_weight(self, w: QTensor | torch.Tensor) -> None:
        """Stores a quantized embedding."""
        self.store_weight(self.fitting(w))
        self.refresh()

    def rows(self, indices: torch.Tensor) -> torch.Tensor:
        """float32 (*indices.shape, embedding_dim): integers are looked up, then dequantized."""
        integers = F.embedding(indices, self.weight_integers)
        if self.weight_scale.ndim == 0:
            return dequantize_linear(integers, self.weight_scale, self.weight_zero_point, 0)
        centred = integers.to(torch.float32)
        if not self._centred:
            zero_point = F.embedding(indices, self.weight_zero_point[:, None])
            centred = centred - zero_point.to(torch.float32)
        return centred * F.embedding(indices, self.weight_scale[:, None])

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: object = False) -> Self:  # noqa: ARG003  # torch's
        """The embedding of a float or trained module with a qconfig."""
        check_layer(mod, cls.float_type, cls.__name__)
        return cls(**arguments_in(mod, cls)).take(mod)

    def take(self, mod: nn.Module) -> Self:
        """Fills the module with a prepared one's embedding and qparams."""
        source = float_weights(mod, type(self).__name__)
        weight = source.weight.detach().to(torch.float32)
        self.to(weight.device)
        integers, qparams = source.fake.integers(weight), source.fake.qparams()
        self.set_weight(QTensor(integers.cpu().numpy(), qparams))
        fake = output_fake_quantize(mod)
        self.output = None if fake is None else Requantize.from_float(fake)
        return self

    def extra_repr(self) -> str:
        """Sizes, and how the embedding is stored."""
        count, width = self.weight_integers.shape
        dtype = str(self.weight_integers.dtype).removeprefix("torch.")
        scales = "one scale" if self.weight_scale.ndim == 0 else "a scale per row"
        return f"{count}, {width}, dtype={dtype}, {scales}"


class Embedding(_Embedding):
    """weight[x], x integers; the arguments are torch.nn.quantized.Embedding's.

    Those that only training reads (max_norm, norm_type, scale_grad_by_freq, sparse) must be
    defaults or have no effect: max_norm changes the embedding at each look-up, and is refused.

    Raises:
        QConfigError: max_norm.
    """

    float_type = nn.Embedding

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,  # noqa: ARG002  # torch's signature
        scale_grad_by_freq: object = False,  # noqa: ARG002  # torch's signature
        sparse: object = False,  # noqa: ARG002  # torch's signature
        _weight: QTensor | torch.Tensor | None = None,
        dtype: torch.dtype | QDType | str = torch.uint8,
    ) -> None:
        super().__init__()
        _refuse_max_norm(max_norm)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.make_buffers((num_embeddings, embedding_dim), _weight, dtype)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """Integers of any shape -> float32 (*shape, embedding_dim)."""
        return self.requantized(self.rows(indices))


class EmbeddingBag(_Embedding):
    """Sums, means or maxima of bags of rows; the arguments are torch.nn.quantized.EmbeddingBag's.

    Raises:
        QConfigError: max_norm, or a mode that is not known.
    """

    float_type = nn.EmbeddingBag

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,  # noqa: ARG002  # torch's signature
        scale_grad_by_freq: object = False,  # noqa: ARG002  # torch's signature
        mode: str = "sum",
        sparse: object = False,  # noqa: ARG002  # torch's signature
        _weight: QTensor | torch.Tensor | None = None,
        include_last_offset: bool = False,
        dtype: torch.dtype | QDType | str = torch.uint8,
    ) -> None:
        super().__init__()
        _refuse_max_norm(max_norm)
        if mode not in _REDUCTIONS:
            raise QConfigError(f"EmbeddingBag: mode '{mode}'; wanted {', '.join(_REDUCTIONS)}.")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.mode, self.include_last_offset = mode, include_last_offset
        self.make_buffers((num_embeddings, embedding_dim), _weight, dtype)

    def forward(
        self,
        indices: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """One row per bag: bags are rows of a matrix of indices, or start at the offsets."""
        if indices.ndim == 2 and offsets is None:
            rows = self.rows(indices)
            if per_sample_weights is not None:
                rows = rows * per_sample_weights[..., None]
            return self.requantized(_REDUCTIONS[self.mode](rows, 1))
        bags = F.embedding_bag(
            indices,
            self.real_weight(),
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
        )
        return self.requantized(bags)


def _refuse_max_norm(max_norm: float | None) -> None:
    if max_norm is not None:
        raise QConfigError(
            "max_norm rescales rows of the embedding at each look-up, which stored integers cannot "
            "follow. Apply it to the float embedding once, and leave it out."
        )
