"""nn.Transformer and its layers as torch computes them in training, without its shortcuts.

In eval mode torch's layers run as one fused function, or on nested tensors, and encoders look at a
mask's values to see whether it is causal. Neither can be traced, and no quantizer can sit inside.
These compute the same from the same submodules: attention, linear layers, norms, one by one. A mask
is applied as it is given; `is_causal` is the hint that torch says it is. What encoders on nested
tensors set to 0, results at padded positions, is computed here as in training.
"""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING

from torch import nn

from onnxq.pytorch.modules.places import exchanged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


class TransformerEncoderLayer(nn.TransformerEncoderLayer):
    """Attention and two linear layers, each with its residual connection and norm."""

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """The result of torch's module, in the way that it takes in training."""
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
        y: Tensor = self.norm2(x + self._ff_block(x))
        return y


class TransformerDecoderLayer(nn.TransformerDecoderLayer):
    """torch's, which has no shortcuts; traced through here."""


class TransformerEncoder(nn.TransformerEncoder):
    """Layers one after another."""

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """The result of torch's module, in the way that it takes in training."""
        y = src
        for layer in self.layers:
            y = layer(
                y,
                src_mask=mask,
                is_causal=bool(is_causal),
                src_key_padding_mask=src_key_padding_mask,
            )
        return y if self.norm is None else self.norm(y)


class TransformerDecoder(nn.TransformerDecoder):
    """Layers one after another."""

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The result of torch's module."""
        y = tgt
        for layer in self.layers:
            y = layer(
                y,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return y if self.norm is None else self.norm(y)


class Transformer(nn.Transformer):
    """Encoder and decoder."""

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The result of torch's module."""
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        y: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
        return y


_PLAIN: Mapping[type[nn.Module], type[nn.Module]] = {
    nn.TransformerEncoderLayer: TransformerEncoderLayer,
    nn.TransformerDecoderLayer: TransformerDecoderLayer,
    nn.TransformerEncoder: TransformerEncoder,
    nn.TransformerDecoder: TransformerDecoder,
    nn.Transformer: Transformer,
}


def holds_transformer(model: nn.Module) -> bool:
    """Whether one of torch's transformers, or of their layers, is in the model."""
    return any(type(module) in _PLAIN for module in model.modules())


def without_shortcuts(model: nn.Module) -> nn.Module:
    """The model where it holds no transformer; else a copy as above, with the same tensors.

    Subclasses stay as they are: they may compute something else.
    """
    if not holds_transformer(model):
        return model
    shared = {id(x): x for x in itertools.chain(model.parameters(), model.buffers())}
    made = copy.deepcopy(model, shared)
    return exchanged(made, {m: _plain(m) for m in made.modules() if type(m) in _PLAIN})


def zeroes_padding(model: nn.Module) -> bool:
    """Whether an encoder in the model sets results at padded positions to 0 in eval mode."""
    return any(
        isinstance(module, nn.TransformerEncoder) and module.use_nested_tensor
        for module in model.modules()
    )


def _plain(module: nn.Module) -> nn.Module:
    """A module with the same submodules, parameters and attributes."""
    made = copy.copy(module)
    made.__class__ = _PLAIN[type(module)]
    return made
