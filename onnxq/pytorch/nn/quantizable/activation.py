"""Multi-head attention of layers and matrix products with a quantizer each."""

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from onnxq.errors import ModelError, QConfigError, UnsupportedError
from onnxq.pytorch.modules.float_functional import FloatFunctional

_LAYERS = ("linear_Q", "linear_K", "linear_V")


class MultiheadAttention(nn.Module):
    """y = out_proj(softmax(c q k^T + mask) v), q, k, v = linear_Q(query), ...; c = head_dim^-0.5.

    The arguments are nn.MultiheadAttention's. Quantized, q, k, v, the attention weights and their
    products with v have a scale each; scores are float between the product that makes them and the
    softmax, so that c costs no rounding and masks of -inf do no harm. prepare and prepare_qat put
    it in the place of an nn.MultiheadAttention that has a qconfig.

    Attributes:
        linear_Q: of query; linear_K, linear_V and out_proj are the others.
        attention: multiplies attention weights and v.
    Raises:
        UnsupportedError: add_bias_kv or add_zero_attn.
        QConfigError: embed_dim is no multiple of num_heads.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if add_bias_kv or add_zero_attn:
            raise UnsupportedError(
                "MultiheadAttention: add_bias_kv=True and add_zero_attn=True have no quantizable "
                "form. Leave both False, or the module in float (its qconfig None)."
            )
        if embed_dim % num_heads:
            raise QConfigError(
                f"MultiheadAttention: embed_dim {embed_dim} is no multiple of num_heads "
                f"{num_heads}."
            )
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.head_dim, self.batch_first = embed_dim // num_heads, batch_first
        for name, size in zip(_LAYERS, (embed_dim, self.kdim, self.vdim), strict=True):
            self.add_module(name, nn.Linear(size, embed_dim, bias, device, dtype))
        self.out_proj: Any = nn.Linear(embed_dim, embed_dim, bias, device, dtype)
        self.attention = FloatFunctional()
        self.softmax, self.drop = nn.Softmax(-1), nn.Dropout(dropout)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,  # torch's: a hint of what attn_mask is
    ) -> tuple[Tensor, Tensor | None]:
        """The results of nn.MultiheadAttention: (y, attention weights where they are asked for).

        Raises:
            ModelError: is_causal without a mask.
        """
        if is_causal and attn_mask is None:
            raise ModelError("MultiheadAttention: is_causal says what attn_mask is; give the mask.")
        is_batched = query.ndim == 3
        parts = [self._batch_first(x, is_batched) for x in (query, key, value)]
        q, k, v = (getattr(self, n)(x) for n, x in zip(_LAYERS, parts, strict=True))
        # (N, L, E) -> (N, heads, L, head_dim)
        sizes = (self.num_heads, self.head_dim)
        q, k, v = (x.reshape(*x.shape[:2], *sizes).transpose(1, 2) for x in (q, k, v))
        scores = torch.matmul(q, k.transpose(-2, -1)) * self.head_dim**-0.5
        for mask in self._masks(attn_mask, key_padding_mask, scores):
            scores = scores + mask
        attn_weights = self.drop(self.softmax(scores))
        y = self.attention.matmul(attn_weights, v).transpose(1, 2)
        y = self.out_proj(y.reshape(y.shape[0], y.shape[1], self.embed_dim))
        weights = None
        if need_weights:
            weights = attn_weights.mean(dim=1) if average_attn_weights else attn_weights
        if not is_batched:
            return y.squeeze(0), None if weights is None else weights.squeeze(0)
        return y if self.batch_first else y.transpose(0, 1), weights

    def _batch_first(self, x: Tensor, is_batched: bool) -> Tensor:
        if not is_batched:
            return x.unsqueeze(0)
        return x if self.batch_first else x.transpose(0, 1)

    def _masks(
        self, mask: Tensor | None, padding: Tensor | None, scores: Tensor
    ) -> Sequence[Tensor]:
        """Summand of the scores (N, heads, L, S)."""
        found = []
        if mask is not None:
            mask = _added_mask(mask) if mask.dtype == torch.bool else mask
            found.append(mask if mask.ndim == 2 else mask.reshape(scores.shape))
        if padding is not None:
            padding = _added_mask(padding) if padding.dtype == torch.bool else padding
            found.append(padding.reshape(scores.shape[0], 1, 1, scores.shape[3]))
        return found

    @classmethod
    def from_float(cls, other: nn.Module) -> Self:
        """The module with the weights of an nn.MultiheadAttention, and its qconfig.

        Raises:
            ModelError: another type of module.
            UnsupportedError: add_bias_kv or add_zero_attn.
        """
        if type(other) is not nn.MultiheadAttention:
            raise ModelError(
                f"{cls.__name__}.from_float: got {type(other).__name__}; wanted "
                f"nn.MultiheadAttention. {why_whole(other)}"
            )
        weight, bias = other.in_proj_weight, other.in_proj_bias
        made = cls(
            other.embed_dim,
            other.num_heads,
            other.dropout,
            bias is not None,
            other.bias_k is not None,
            other.add_zero_attn,
            other.kdim,
            other.vdim,
            other.batch_first,
        ).to(other.out_proj.weight.device)
        weights = (
            (other.q_proj_weight, other.k_proj_weight, other.v_proj_weight)
            if weight is None
            else weight.chunk(3)
        )
        biases = (None, None, None) if bias is None else bias.chunk(3)
        for name, w, b in zip(_LAYERS, weights, biases, strict=True):
            layer = getattr(made, name)
            layer.weight = nn.Parameter(w.detach().clone())
            layer.bias = None if b is None else nn.Parameter(b.detach().clone())
        made.out_proj.weight, made.out_proj.bias = other.out_proj.weight, other.out_proj.bias
        if hasattr(other, "qconfig"):
            made.qconfig = other.qconfig
        return made.train(other.training)

    def dequantize(self) -> nn.MultiheadAttention:
        """The float module, with the weights as they are now: trained, or dequantized."""
        parts = [_float_weights(getattr(self, name)) for name in _LAYERS]
        out_weight, out_bias = _float_weights(self.out_proj)
        made: Any = nn.MultiheadAttention(
            self.embed_dim,
            self.num_heads,
            self.dropout,
            parts[0][1] is not None,
            kdim=self.kdim,
            vdim=self.vdim,
            batch_first=self.batch_first,
            device=out_weight.device,
        )
        with torch.no_grad():
            weights = [weight for weight, _ in parts]
            if made.in_proj_weight is not None:
                made.in_proj_weight.copy_(torch.cat(weights))
            else:
                targets = (made.q_proj_weight, made.k_proj_weight, made.v_proj_weight)
                for target, weight in zip(targets, weights, strict=True):
                    target.copy_(weight)
            biases = [bias for _, bias in parts if bias is not None]
            if biases:
                made.in_proj_bias.copy_(torch.cat(biases))
            made.out_proj.weight.copy_(out_weight)
            if out_bias is not None:
                made.out_proj.bias.copy_(out_bias)
        return made.train(self.training)  # type: ignore[no-any-return]  # of an untyped call


def _float_weights(layer: Any) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a Linear in float: of a float one, in training, or quantized."""
    if hasattr(layer, "real_weight"):
        return layer.real_weight(), layer.bias()
    return layer.weight.detach(), None if layer.bias is None else layer.bias.detach()


def why_whole(module: nn.Module | None) -> str:
    """Why an nn.MultiheadAttention has no quantizable form; empty where it has, and of others."""
    if not isinstance(module, nn.MultiheadAttention):
        return ""
    if type(module) is not nn.MultiheadAttention:
        return f"{type(module).__name__} is a subclass of nn.MultiheadAttention, or parametrized"
    if module.bias_k is not None:
        return "add_bias_kv=True is not supported"
    return "add_zero_attn=True is not supported" if module.add_zero_attn else ""


def _added_mask(mask: Tensor) -> Tensor:
    """float32, shape of the mask: -inf where it leaves out, else 0."""
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill(mask, -math.inf)
