"""The decoder in the form that onnxruntime-genai's model builder writes, made without torch.

RotaryEmbedding, GroupQueryAttention and SkipSimplifiedLayerNormalization of com.microsoft, weights
as the right sides of MatMul, and the builder's names of inputs and outputs. The embedding is stored
once: the head is its transpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from models.sizes import Sizes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    Weights = Mapping[str, npt.NDArray[np.float32]]

OPSET = 21
IR_VERSION = 10
EMBEDDING = "model.embed_tokens.weight"
FLOAT, INT64, INT32 = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.INT32


@dataclass(slots=True)
class _Graph:
    """Nodes and constants written so far."""

    nodes: list[ir.Node] = field(default_factory=list)
    constants: list[ir.Value] = field(default_factory=list)

    def add(
        self,
        name: str,
        op: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, int | float | Sequence[int]] | None = None,
        outputs: int = 1,
    ) -> list[ir.Value]:
        """Outputs of a new node; "domain:Op" is of that domain."""
        domain, _, op_type = op.rpartition(":")
        node = ir.node(op_type, inputs, attributes or {}, domain=domain, num_outputs=outputs)
        node.name = name
        for index, value in enumerate(node.outputs):
            value.name = f"{name}/output_{index}"
        self.nodes.append(node)
        return list(node.outputs)

    def constant(self, name: str, array: npt.NDArray[np.generic]) -> ir.Value:
        """A new initializer."""
        tensor = ir.tensor(np.asarray(array, order="C"), name=name)
        value = ir.val(name, tensor.dtype, array.shape, const_value=tensor)
        self.constants.append(value)
        return value


@dataclass(frozen=True, slots=True)
class _Places:
    """Where in the text the tokens are, for every layer.

    Attributes:
        position_ids: of the tokens.
        last: index of each row's last token (seqlens_k), int32.
        total: positions with the cache (total_sequence_length), int32.
        cos: of the rotary angles, (context, head / 2).
        sin: the same.
    """

    position_ids: ir.Value
    last: ir.Value
    total: ir.Value
    cos: ir.Value
    sin: ir.Value


def genai_decoder(weights: Weights, sizes: Sizes) -> ir.Model:
    """The decoder in the builder's form.

    Args:
        weights: by the names of LlamaForCausalLM, float32.
        sizes: of the decoder; its context is the number of positions that the model knows.
    """
    graph = _Graph()
    ids = _value("input_ids", INT64, ["batch_size", "sequence_length"])
    mask = _value("attention_mask", INT64, ["batch_size", "total_sequence_length"])
    positions = _value("position_ids", INT64, ["batch_size", "sequence_length"])
    past = [
        _value(f"past_key_values.{layer}.{part}", FLOAT, _cache(sizes, "past_sequence_length"))
        for layer in range(sizes.depth)
        for part in ("key", "value")
    ]
    places = _places(graph, mask, positions, sizes)
    table = graph.constant(EMBEDDING, weights[EMBEDDING])
    (skip,) = graph.add("/model/embed_tokens/Gather", "Gather", [table, ids])
    x, present = skip, []
    norm = graph.constant(_weight(0, "input_layernorm"), weights[_weight(0, "input_layernorm")])
    (x,) = graph.add(
        "/model/layers.0/input_layernorm/LayerNorm",
        "SimplifiedLayerNormalization",
        [skip, norm],
        {"axis": -1, "epsilon": sizes.epsilon, "stash_type": 1},
    )
    for layer in range(sizes.depth):
        kept = past[2 * layer : 2 * layer + 2]
        y, *now = _attention(graph, layer, x, kept, places, weights, sizes)
        present += now
        place = f"/model/layers.{layer}/post_attention_layernorm"
        name = _weight(layer, "post_attention_layernorm")
        x, skip = _skip_norm(graph, place, (skip, y), (name, weights[name]), sizes)
        y = _mlp(graph, layer, x, weights)
        is_last = layer == sizes.depth - 1
        name = "model.norm.weight" if is_last else _weight(layer + 1, "input_layernorm")
        x, skip = _skip_norm(graph, f"/{name[:-7]}", (skip, y), (name, weights[name]), sizes)
    (head,) = graph.add("/lm_head/Transpose", "Transpose", [table], {"perm": [1, 0]})
    (logits,) = graph.add("/lm_head/MatMul", "MatMul", [x, head])
    logits.name, logits.dtype = "logits", FLOAT
    logits.shape = ir.Shape(["batch_size", "sequence_length", len(weights[EMBEDDING])])
    return ir.Model(
        ir.Graph(
            [ids, mask, positions, *past],
            [logits, *present],
            nodes=graph.nodes,
            initializers=graph.constants,
            opset_imports={"": OPSET, "com.microsoft": 1},
            name="main_graph",
        ),
        ir_version=IR_VERSION,
    )


def load_genai_decoder() -> ir.Model:
    """The trained decoder, from decoder.safetensors."""
    from safetensors.numpy import load_file  # of the dev extra

    stored = load_file(Path(__file__).with_name("decoder.safetensors"))
    return genai_decoder({name: w.astype(np.float32) for name, w in stored.items()}, Sizes())


def _value(name: str, dtype: ir.DataType, shape: Sequence[int | str]) -> ir.Value:
    return ir.val(name, dtype, shape)


def _cache(sizes: Sizes, length: str) -> list[int | str]:
    return ["batch_size", sizes.kv_heads, length, sizes.head]


def _weight(layer: int, part: str) -> str:
    return f"model.layers.{layer}.{part}.weight"


def _places(graph: _Graph, mask: ir.Value, positions: ir.Value, sizes: Sizes) -> _Places:
    """The counts that GroupQueryAttention wants, from the attention mask."""
    at = "/model/attn_mask_reformat"
    one = graph.constant(f"{at}/one", np.array([1], np.int64))
    index = graph.constant(f"{at}/index", np.array(1, np.int64))
    (count,) = graph.add(f"{at}/ReduceSum", "ReduceSum", [mask, one])
    (last,) = graph.add(f"{at}/Sub", "Sub", [count, one])
    (seqlens,) = graph.add(f"{at}/Sub/Cast", "Cast", [last], {"to": INT32.value})
    (shape,) = graph.add(f"{at}/Shape", "Shape", [mask])
    (length,) = graph.add(f"{at}/Gather", "Gather", [shape, index], {"axis": 0})
    (total,) = graph.add(f"{at}/Gather/Cast", "Cast", [length], {"to": INT32.value})
    steps = np.arange(0, sizes.head, 2, dtype=np.float32) / np.float32(sizes.head)
    angles = np.arange(sizes.context)[:, None] * (np.float32(sizes.theta) ** -steps)
    cos = graph.constant("cos_cache", np.cos(angles).astype(np.float32))
    sin = graph.constant("sin_cache", np.sin(angles).astype(np.float32))
    return _Places(positions, seqlens, total, cos, sin)


def _linear(graph: _Graph, name: str, x: ir.Value, weights: Weights) -> ir.Value:
    """X W' of the Linear whose weight has that name."""
    place = "/" + name.removesuffix(".weight").replace(".", "/").replace("layers/", "layers.")
    right = graph.constant(f"{place[1:].replace('/', '.')}.MatMul.weight", weights[name].T)
    return graph.add(f"{place}/MatMul", "MatMul", [x, right])[0]


def _attention(
    graph: _Graph,
    layer: int,
    x: ir.Value,
    past: Sequence[ir.Value],
    places: _Places,
    weights: Weights,
    sizes: Sizes,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Attention of a layer, and its keys and values."""
    at = f"/model/layers.{layer}/attn"
    q, k, v = (
        _linear(graph, _weight(layer, f"self_attn.{part}_proj"), x, weights) for part in "qkv"
    )
    q, k = (
        graph.add(
            f"{at}/{part}_rotary/RotaryEmbedding",
            "com.microsoft:RotaryEmbedding",
            [value, places.position_ids, places.cos, places.sin],
            {"interleaved": 0, "num_heads": heads},
        )[0]
        for part, value, heads in (("q", q, sizes.heads), ("k", k, sizes.kv_heads))
    )
    y, key, value = graph.add(
        f"{at}/GroupQueryAttention",
        "com.microsoft:GroupQueryAttention",
        [q, k, v, *past, places.last, places.total],
        {
            "num_heads": sizes.heads,
            "kv_num_heads": sizes.kv_heads,
            "scale": sizes.head**-0.5,
            "do_rotary": 0,
            "rotary_interleaved": 0,
        },
        outputs=3,
    )
    for part, present in (("key", key), ("value", value)):
        present.name, present.dtype = f"present.{layer}.{part}", FLOAT
        present.shape = ir.Shape(_cache(sizes, "total_sequence_length"))
    return _linear(graph, _weight(layer, "self_attn.o_proj"), y, weights), key, value


def _skip_norm(
    graph: _Graph,
    place: str,
    added: tuple[ir.Value, ir.Value],
    norm: tuple[str, npt.NDArray[np.float32]],
    sizes: Sizes,
) -> tuple[ir.Value, ir.Value]:
    """The norm of a sum, and the sum."""
    y, _, _, total = graph.add(
        f"{place}/SkipLayerNorm",
        "com.microsoft:SkipSimplifiedLayerNormalization",
        [*added, graph.constant(*norm)],
        {"epsilon": sizes.epsilon},
        outputs=4,
    )
    return y, total


def _mlp(graph: _Graph, layer: int, x: ir.Value, weights: Weights) -> ir.Value:
    """down(silu(gate(x)) * up(x))."""
    gate, up = (
        _linear(graph, _weight(layer, f"mlp.{part}_proj"), x, weights) for part in ("gate", "up")
    )
    at = f"/model/layers.{layer}/mlp"
    (share,) = graph.add(f"{at}/act_fn/Sigmoid", "Sigmoid", [gate])
    (silu,) = graph.add(f"{at}/act_fn/Mul", "Mul", [gate, share])
    (y,) = graph.add(f"{at}/Mul", "Mul", [silu, up])
    return _linear(graph, _weight(layer, "mlp.down_proj"), y, weights)
