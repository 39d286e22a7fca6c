"""A decoder of bytes with one layer and random weights, in the form of genai's builder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from models.genai_decoder import genai_decoder
from models.sizes import Sizes

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx_ir as ir

TINY = Sizes(width=32, depth=1, heads=2, kv_heads=1, hidden=64, context=32)


def weights(sizes: Sizes = TINY, tokens: int = 256) -> dict[str, npt.NDArray[np.float32]]:
    """By the names of LlamaForCausalLM; large enough that the tokens matter."""
    rng = np.random.default_rng(3)
    kv = sizes.kv_heads * sizes.head
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens": (tokens, sizes.width)}
    for layer in range(sizes.depth):
        parts = {
            "input_layernorm": (sizes.width,),
            "self_attn.q_proj": (sizes.width, sizes.width),
            "self_attn.k_proj": (kv, sizes.width),
            "self_attn.v_proj": (kv, sizes.width),
            "self_attn.o_proj": (sizes.width, sizes.width),
            "post_attention_layernorm": (sizes.width,),
            "mlp.gate_proj": (sizes.hidden, sizes.width),
            "mlp.up_proj": (sizes.hidden, sizes.width),
            "mlp.down_proj": (sizes.width, sizes.hidden),
        }
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in parts.items()}
    shapes["norm"] = (sizes.width,)
    return {
        f"model.{name}.weight": rng.normal(0, 0.3, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def tiny_decoder(sizes: Sizes = TINY, tokens: int = 256) -> ir.Model:
    """The decoder."""
    return genai_decoder(weights(sizes, tokens), sizes)
