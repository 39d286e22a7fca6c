"""nn.MultiheadAttention taken apart, so that quantizers can sit in it.

    q, k, v = split(in_proj(x))                       query, key and value are one tensor
    q = q_proj(x), k, v = split(kv_proj(y))           key and value are
    q = q_proj(x), k = k_proj(y), v = v_proj(z)       none are, or kdim and vdim are given
    y = out_proj(softmax(q k^T / sqrt(d) + mask) v)   per head

These are the steps of torch.nn.functional.multi_head_attention_forward, in its order and shapes, so
that each tensor of the exported module has a node here. The weights are the module's own: in_proj
holds its in_proj_weight, kv_proj and the like rows of it. Which of the forms is taken, and what the
masks are, is seen in one call on the example inputs. (Just over 300 lines: one module's steps.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from onnxq.errors import UnsupportedError
from onnxq.pytorch.modules.places import exchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from onnxq.pytorch.arguments.bound_inputs import BoundInputs

BATCHED = 3  # rank of (length, batch, features)
MASK_PER_HEAD = 3  # rank of (batch * heads, length, length)


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """How a MultiheadAttention is called.

    Attributes:
        rank: of query.
        is_self: query, key and value are one tensor; torch makes three of one sequence alone.
        is_shared: key and value are.
        mask_rank: of attn_mask; None: there is none.
        bool_mask: whether attn_mask says what is left out; else it is added.
        bool_padding: the same of key_padding_mask.
    """

    rank: int
    is_self: bool
    is_shared: bool
    mask_rank: int | None
    bool_mask: bool
    bool_padding: bool

    @classmethod
    def of(
        cls,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,  # noqa: ARG003  # forward's arguments
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,  # noqa: ARG003  # torch's signature
        is_causal: bool = False,  # noqa: ARG003  # torch's signature
    ) -> AttentionCall:
        """The kind of call that these arguments of forward make."""
        mask, padding = attn_mask, key_padding_mask
        is_batched = query.ndim == BATCHED
        return cls(
            query.ndim,
            is_batched and query is key is value,
            is_batched and key is value,
            None if mask is None else mask.ndim,
            mask is not None and mask.dtype == torch.bool,
            padding is not None and padding.dtype == torch.bool,
        )


def taken_apart(model: nn.Module, inputs: BoundInputs) -> nn.Module:
    """The model with MultiheadAttention made OpenAttention; changed in place, but for itself.

    One that forward does not call, or that `why_whole` has a reason for, stays as it is.

    Args:
        model: in eval mode.
        inputs: of its forward.

    Raises:
        UnsupportedError: one is called in two ways.
    """
    calls = _calls(model, inputs)
    made: dict[nn.Module, nn.Module] = {}
    for name, module in list(model.named_modules()):
        seen = calls.get(module, ())
        if not seen or why_whole(module):
            continue
        if len(set(seen)) > 1:
            raise UnsupportedError(
                f"'{name}' (MultiheadAttention) is called with one tensor as query, key and value "
                "in one place and with several in another, or with other masks; its weights are "
                "quantized for one of these. Use a module of its own for each."
            )
        assert isinstance(module, nn.MultiheadAttention), "calls are of these"
        made[module] = OpenAttention(module, seen[0])
    return exchanged(model, made)


def why_whole(module: nn.Module | None) -> str:
    """Why a module that attends is not taken apart; empty for others."""
    if not isinstance(module, nn.MultiheadAttention):
        return ""
    if type(module) is not nn.MultiheadAttention:
        return f"{type(module).__name__} is a subclass of nn.MultiheadAttention, or parametrized"
    if module.bias_k is not None:
        return "add_bias_kv=True is not supported"
    return "add_zero_attn=True is not supported" if module.add_zero_attn else ""


def _calls(model: nn.Module, inputs: BoundInputs) -> dict[nn.Module, list[AttentionCall]]:
    seen: dict[nn.Module, list[AttentionCall]] = {}

    def note(module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        seen.setdefault(module, []).append(AttentionCall.of(*args, **kwargs))

    attending = [m for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    if not attending:
        return seen
    handles = [m.register_forward_pre_hook(note, with_kwargs=True) for m in attending]
    try:
        with torch.no_grad():
            model(*inputs.args, **inputs.kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return seen


class OpenAttention(nn.Module):
    """Attention in the steps at the head of this module, for torch.fx to trace.

    Args:
        source: its parameters become those of layers here; rows of packed weights are copied.
        call: how forward is called.
    """

    def __init__(self, source: nn.MultiheadAttention, call: AttentionCall) -> None:
        super().__init__()
        self.call, self.batch_first = call, source.batch_first
        self.heads, self.head_size = source.num_heads, source.head_dim
        size, weight, bias = source.embed_dim, source.in_proj_weight, source.in_proj_bias
        if weight is None:
            weights = [source.q_proj_weight, source.k_proj_weight, source.v_proj_weight]
            biases = [None] * 3 if bias is None else list(bias.chunk(3))
            self._set(("q_proj", "k_proj", "v_proj"), weights, biases)
        elif call.is_self:
            self._set(("in_proj",), [weight], [bias])
        else:
            names = ("q_proj", "kv_proj") if call.is_shared else ("q_proj", "k_proj", "v_proj")
            rows = [size, 2 * size] if call.is_shared else [size] * 3
            biases = [None] * 3 if bias is None else list(torch.split(bias, rows))
            self._set(names, torch.split(weight, rows), biases)
        self.out_proj = _linear(source.out_proj.weight, source.out_proj.bias)
        self.drop: nn.Module | None = nn.Dropout(source.dropout) if source.dropout else None
        self.train(source.training)

    def _set(
        self, names: Sequence[str], weights: Sequence[Tensor], biases: Sequence[Tensor | None]
    ) -> None:
        for name, weight, bias in zip(names, weights, biases, strict=False):
            self.add_module(name, _linear(weight, bias))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,  # noqa: ARG002  # torch's: a hint of what attn_mask is
    ) -> tuple[Tensor, Tensor | None]:
        """The results of nn.MultiheadAttention: (y, attention weights where they are asked for)."""
        q, k, v = self._projected(query, key, value)
        batch = q.size(1)
        q, k, v = (
            x.contiguous().reshape(x.size(0), batch * self.heads, self.head_size).transpose(0, 1)
            for x in (q, k, v)
        )
        mask = self._mask(attn_mask, key_padding_mask, batch, k.size(1))
        if need_weights:
            y, attn_weights = self._with_weights(q, k, v, mask)
            attn_weights = attn_weights.reshape(batch, self.heads, q.size(1), k.size(1))
            attn_weights = attn_weights.mean(dim=1) if average_attn_weights else attn_weights
        else:
            y, attn_weights = self._without_weights(q, k, v, mask, key_padding_mask is None), None
        y = self.out_proj(y).reshape(q.size(1), batch, self.heads * self.head_size)
        if self.call.rank != BATCHED:
            return y.squeeze(1), None if attn_weights is None else attn_weights.squeeze(0)
        return y.transpose(1, 0) if self.batch_first else y, attn_weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """(length, batch, features) of each."""
        layers = dict(self.named_children())
        if "in_proj" in layers:
            x = self._sequence_first(query)
            return _split(layers["in_proj"](x), 3)
        q = layers["q_proj"](self._sequence_first(query))
        if "kv_proj" in layers:
            return q, *_split(layers["kv_proj"](self._sequence_first(key)), 2)
        first = self._sequence_first(key)
        second = first if self.call.is_shared else self._sequence_first(value)
        return q, layers["k_proj"](first), layers["v_proj"](second)

    def _sequence_first(self, x: Tensor) -> Tensor:
        if self.call.rank != BATCHED:
            return x.unsqueeze(1)
        return x.transpose(1, 0) if self.batch_first else x

    def _mask(
        self, mask: Tensor | None, padding: Tensor | None, batch: int, length: int
    ) -> Tensor | None:
        """Summand of the scores: (1, L, S) or (batch * heads, L or 1, S)."""
        if mask is not None:
            mask = added_mask(mask) if self.call.bool_mask else mask
            mask = mask if self.call.mask_rank == MASK_PER_HEAD else mask.unsqueeze(0)
        if padding is None:
            return mask
        padding = added_mask(padding) if self.call.bool_padding else padding
        padding = padding.reshape(batch, 1, 1, length)
        padding = padding.expand(-1, self.heads, -1, -1).reshape(batch * self.heads, 1, length)
        return padding if mask is None else mask + padding

    def _with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """(length * batch, features), (batch * heads, L, S)."""
        scores = torch.bmm(q * math.sqrt(1 / self.head_size), k.transpose(-2, -1))
        if mask is not None:
            scores = scores + mask
        attn_weights = torch.softmax(scores, -1)
        attn_weights = attn_weights if self.drop is None else self.drop(attn_weights)
        y = torch.bmm(attn_weights, v).transpose(0, 1)
        return y.contiguous().reshape(-1, self.heads * self.head_size), attn_weights

    def _without_weights(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_unpadded: bool
    ) -> Tensor:
        """(length * batch, features)."""
        q, k, v = (x.reshape(-1, self.heads, x.size(1), self.head_size) for x in (q, k, v))
        if mask is not None:
            same = is_unpadded and self.call.mask_rank != MASK_PER_HEAD
            shape = (-1, self.heads, mask.size(1), mask.size(2))
            mask = mask.unsqueeze(0) if same else mask.reshape(shape)
        y = attended(q, k, v, mask, self.head_size**-0.25, self.heads, self.drop)
        return y.permute(2, 0, 1, 3).contiguous().reshape(-1, self.heads * self.head_size)


def attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    factor: float,
    heads: int,
    drop: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """The product softmax((factor q) (factor k)^T + mask) v, as the exporter writes it.

    Args:
        query: (batch, heads, L, size).
        key: (batch, heads, S, size).
        value: (batch, heads, S, size).
        mask: added to (batch, heads, L, S).
        factor: root of the scale.
        heads: number of heads of key.
        drop: what the attention weights go through in training.
    """
    columns = torch.unflatten(key.flatten(0, 1).transpose(1, 2), 0, (-1, heads))
    scores = torch.matmul(query * factor, columns * factor)
    if mask is not None:
        scores = scores + mask
    attn_weights = torch.softmax(scores, -1)
    return torch.matmul(attn_weights if drop is None else drop(attn_weights), value)


def _split(packed: Tensor, parts: int) -> tuple[Tensor, ...]:
    """(L, N, parts * features) -> as many of (L, N, features), by torch's steps."""
    stacked = torch.unflatten(packed, -1, (parts, -1)).unsqueeze(0).transpose(0, -2).squeeze(-2)
    return tuple(stacked[part] for part in range(parts))


def added_mask(mask: Tensor) -> Tensor:
    """float32, shape of the mask: -inf where it leaves out, else 0."""
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill(mask, -math.inf)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A Linear with these parameters; rows of a parameter become one of their own."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    made.weight = _parameter(weight)
    if bias is not None:
        made.bias = _parameter(bias)
    return made


def _parameter(x: Tensor) -> nn.Parameter:
    if isinstance(x, nn.Parameter):
        return x
    return nn.Parameter(x.detach().clone(), x.requires_grad)
