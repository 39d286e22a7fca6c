"""A decoder with a KV cache, of any size: random weights, made as they are written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx.parser
import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.core.arrays import Singles
    from onnxq.samples.inputs import Batch

OUTLIERS = 16
"""One channel in so many of the hidden state is larger than the others, as in trained models."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a decoder.

    Attributes:
        vocabulary: of tokens.
        width: of the hidden state.
        hidden: inner width of the SwiGLU.
        depth: layers.
        heads: of the attention.
    """

    vocabulary: int = 64
    width: int = 32
    hidden: int = 64
    depth: int = 2
    heads: int = 2

    @property
    def head(self) -> int:
        """Numbers per head."""
        return self.width // self.heads

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all weights; of matrices (inputs, outputs)."""
        width, hidden = self.width, self.hidden
        found: dict[str, tuple[int, ...]] = {"table": (self.vocabulary, width)}
        for layer in range(self.depth):
            found |= {f"w{kind}{layer}": (width, width) for kind in "qkvo"}
            found |= {f"w{kind}{layer}": (width, hidden) for kind in "gu"}
            found[f"wd{layer}"] = (hidden, width)
        found["head"] = (width, self.vocabulary)
        return found | {f"n{i}": (width,) for i in range(2 * self.depth + 1)}


def decoder(sizes: Sizes, seed: int = 0) -> ir.Model:
    """The model: tokens (1, S) and a cache per layer -> logits, and the caches with S more."""
    model = ir.from_proto(onnx.parser.parse_model(_text(sizes)))
    fed = 1 + 2 * sizes.depth
    weights = list(model.graph.inputs[fed:])
    del model.graph.inputs[fed:]
    for number, value in enumerate(weights):
        value.const_value = _made(value, seed * 1000 + number)
        model.graph.register_initializer(value)
    return model


def tokens(sizes: Sizes, count: int, length: int, seed: int = 0) -> Iterator[Batch]:
    """Samples: random tokens, and empty caches."""
    rng = np.random.default_rng(seed)
    empty = np.zeros((1, sizes.heads, 0, sizes.head), np.float32)
    caches = {f"{kind}{i}": empty for i in range(sizes.depth) for kind in ("past_k", "past_v")}
    for _ in range(count):
        yield {"tokens": rng.integers(0, sizes.vocabulary, (1, length)), **caches}


def _made(value: ir.Value, seed: int) -> ir.TensorProtocol:
    """Random numbers in the place of a weight; matrices are made when they are read."""
    assert value.shape is not None
    name, shape = value.name, value.shape.numpy()
    if len(shape) == 1:
        return ir.tensor(_gains(seed, shape[0]), name=name)

    def values() -> ir.Tensor[Any]:
        array = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
        array *= np.float32(1 if name == "table" else 1 / math.sqrt(shape[0]))
        return ir.Tensor(array, name=name)

    return ir.LazyTensor(values, ir.DataType.FLOAT, ir.Shape(shape), name=name)


def _gains(seed: int, size: int) -> Singles:
    """Gains of a norm, a few of them large."""
    gains = np.random.default_rng(seed).uniform(0.5, 1.5, size).astype(np.float32)
    gains[::OUTLIERS] *= 6
    return gains


def _text(sizes: Sizes) -> str:
    caches = [f"{kind}{i}" for i in range(sizes.depth) for kind in ("k", "v")]
    of = f"float[1, {sizes.heads}, {{}}, {sizes.head}]"
    ins = ["int64[1, S] tokens", *(f"{of.format('P')} past_{c}" for c in caches)]
    ins += [f"float[{', '.join(map(str, n))}] {name}" for name, n in sizes.weights.items()]
    outs = [f"float[1, S, {sizes.vocabulary}] logits", *(f"{of.format('T')} {c}" for c in caches)]
    layers = "\n".join(_layer(i) for i in range(sizes.depth))
    return f"""<ir_version: 10, opset_import: ["" : 17]>
decoder ({", ".join(ins)}) => ({", ".join(outs)}) {{
    epsilon = Constant <value: tensor = float {{1e-5}}> ()
    scale = Constant <value: tensor = float {{{1 / math.sqrt(sizes.head)}}}> ()
    one = Constant <value: tensor = int64[1] {{1}}> ()
    low = Constant <value: tensor = float {{-1e9}}> ()
    zero = Constant <value: tensor = float {{0.0}}> ()
    split = Constant <value: tensor = int64[4] {{0, 0, {sizes.heads}, {sizes.head}}}> ()
    joined = Constant <value: tensor = int64[3] {{0, 0, {sizes.width}}}> ()
    steps = Shape <start = 1, end = 2> (tokens)
    before = Shape <start = 2, end = 3> (past_k0)
    total = Add (steps, before)
    square = Concat <axis = 0> (steps, total)
    ones = Expand (one, square)
    ahead = Squeeze (before)
    seen = Trilu <upper = 0> (ones, ahead)
    may = Cast <to = 9> (seen)
    mask = Where (may, zero, low)
    h0 = Gather (table, tokens)
{layers}
{_norm(f"h{2 * sizes.depth}", f"n{2 * sizes.depth}", "last")}
    logits = MatMul (last, head)
}}"""


def _layer(i: int) -> str:
    a, b = 2 * i, 2 * i + 1
    parts = [_norm(f"h{a}", f"n{a}", f"x{i}")]
    parts += [
        f"""    p{kind}{i} = MatMul (x{i}, w{kind}{i})
    r{kind}{i} = Reshape (p{kind}{i}, split)
    t{kind}{i} = Transpose <perm = [0, 2, 1, 3]> (r{kind}{i})"""
        for kind in "qkv"
    ]
    parts.append(f"""    k{i} = Concat <axis = 2> (past_k{i}, tk{i})
    v{i} = Concat <axis = 2> (past_v{i}, tv{i})
    kt{i} = Transpose <perm = [0, 1, 3, 2]> (k{i})
    s{i} = MatMul (tq{i}, kt{i})
    ss{i} = Mul (s{i}, scale)
    sm{i} = Add (ss{i}, mask)
    a{i} = Softmax (sm{i})
    c{i} = MatMul (a{i}, v{i})
    ct{i} = Transpose <perm = [0, 2, 1, 3]> (c{i})
    cj{i} = Reshape (ct{i}, joined)
    o{i} = MatMul (cj{i}, wo{i})
    h{b} = Add (h{a}, o{i})""")
    parts.append(_norm(f"h{b}", f"n{b}", f"z{i}"))
    parts.append(f"""    g{i} = MatMul (z{i}, wg{i})
    u{i} = MatMul (z{i}, wu{i})
    sg{i} = Sigmoid (g{i})
    si{i} = Mul (g{i}, sg{i})
    m{i} = Mul (si{i}, u{i})
    d{i} = MatMul (m{i}, wd{i})
    h{b + 1} = Add (h{b}, d{i})""")
    return "\n".join(parts)


def _norm(x: str, gain: str, y: str) -> str:
    """RMSNorm."""
    return f"""    {y}_2 = Mul ({x}, {x})
    {y}_m = ReduceMean <keepdims = 1, axes = [-1]> ({y}_2)
    {y}_e = Add ({y}_m, epsilon)
    {y}_r = Sqrt ({y}_e)
    {y}_n = Div ({x}, {y}_r)
    {y} = Mul ({y}_n, {gain})"""
