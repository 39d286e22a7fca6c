"""YAML of a qconfig: good files with wrong words, lines and bytes, and values made at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from onnxq.qconfig import QConfigMapping
from scripts._fuzz.case import Call, Case, Scratch, command
from scripts._fuzz.fields import mutated_bytes
from scripts._fuzz.seed_models import float_model

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

GOOD = (
    "global: default\nop_types:\n  Softmax: null\n  Gemm: fbgemm\nnodes:\n  '*1': dynamic\n",
    "global: null\nnodes:\n  '*': {activation: {observer: HistogramObserver, bins: 256},\n"
    "    weight: {observer: PerChannelMinMaxObserver, dtype: qint8, ch_axis: 0,\n"
    "             qscheme: per_channel_symmetric}}\ntensors:\n  x: {observer: MinMaxObserver}\n",
    "global: {dynamic: {weight: {observer: NarrowRangeObserver, dtype: int4, quant_max: 7},\n"
    "         precision: weight_only_groupwise, block_size: 32}}\n",
    "global: {activation: {fake_quantize: {observer: MovingAverageMinMaxObserver,\n"
    "  averaging_constant: 0.5}, scale: learned}, weight: NarrowRangeObserver}\n",
    "tensors:\n  y: {observer: PercentileObserver, percentile: 99.9, dtype: quint8}\n  x: float\n",
)
WORDS = (
    "!!python/object/apply:os.system ['touch x']", "!!set {a, b}", "!!binary x", "2021-99-99",
    "\ud800", "2021-01-01", "!!int x", "!!float x", "!!bool x", "!!timestamp x", "!!omap [a: 1]",
    "9" * 5000, "[" * 3000, "{" * 3000, "&a [*a]", "*b", "<<: *a", "? [a]\n: 1", "null", "true",
    ".nan", ".inf", "-1", "0", "1e-6", "1.0e-6", "1e400", "0x7fffffffffffffff", "'\\0'", "\t",
    "---", "...", "%YAML 9.9", "|", ">", "\"\\ud800\"", "\N{SNOWMAN}", "self: 1", "cls: 1",
    "state: 1",
    "observer: Observer", "observer: AmaxObserver", "amax: 1 2 3", "method: entropy", "int2",
    "observer: RecordingObserver", "byte_limit: -1", "observer: NoopObserver", "qscheme: x",
    "dtype: float16", "dtype: uint16", "dtype: int32", "quant_min: -300", "eps: 0", "bins: 1",
    "observer: LeastErrorObserver", "ch_axis: 9", "per_tensor_affine",
    "precision: weight_only_float16", "block_size: 0",
)  # fmt: skip
KEYS = (
    "global", "op_types", "nodes", "tensors", "Conv", "*", "x", "activation", "weight", "dynamic",
    "observer", "dtype", "fake_quantize", "scale", "precision", "block_size", "bins",
)  # fmt: skip
VALUES: tuple[object, ...] = (
    None, True, -1, 0, 1, 32, 2**70, 0.5, float("nan"), float("inf"), "", "float", "default",
    "dynamic", "qint8", "MinMaxObserver", "HistogramObserver", "learned", "blocks", "a" * 999,
)  # fmt: skip


def case(rng: np.random.Generator, scratch: Scratch) -> Case:
    """A qconfig that is wrong, or odd, for a good model; some are given by --set."""
    path, settings = scratch.inputs / "m.onnx", scratch.inputs / "q.yaml"
    path.write_bytes(float_model("cnn"))
    data, words = _text(rng)
    settings.write_bytes(data)
    out, text = scratch.outputs, data.decode("utf-8", "replace")
    value = yaml.safe_dump(_random(rng, 3), default_flow_style=True).strip().replace("\0", "")
    kind = str(rng.choice(["global", "op:Conv", "node:*", "tensor:x", "tensor:*", "x:y", ""]))
    calls = [
        command("inspect", path, "--qconfig", settings),
        command("inspect", path, "--dynamic", "--qconfig", settings),
        command("quantize-dynamic", path, "-o", out / "d.onnx", "--qconfig", settings),
        command("inspect", path, "--set", f"{kind}={value}"),
        Call("from_yaml(text)", lambda: QConfigMapping.from_yaml(text).to_yaml()),
    ]
    return Case(words, tuple(calls[i] for i in rng.permutation(len(calls))[:3]))


def _text(rng: np.random.Generator) -> tuple[bytes, str]:
    """(a file, what was made wrong)."""
    how = [_other_bytes, _other_words, _other_words, _other_lines, _random_values, _random_values]
    made = how[rng.integers(len(how))]
    good = GOOD[rng.integers(len(GOOD))]
    return made(good, rng), made.__name__.strip("_").replace("_", " ")


def _other_bytes(good: str, rng: np.random.Generator) -> bytes:
    return mutated_bytes(good.encode(), rng)[0]


def _other_words(good: str, rng: np.random.Generator) -> bytes:
    words = good.split(" ")
    for _ in range(int(rng.integers(1, 4))):
        words[rng.integers(len(words))] = WORDS[rng.integers(len(WORDS))]
    return " ".join(words).encode("utf-8", "surrogatepass")


def _other_lines(good: str, rng: np.random.Generator) -> bytes:
    lines = good.splitlines()
    changes: list[Callable[[int], object]] = [
        lambda i: lines.pop(i),
        lambda i: lines.insert(i, lines[i]),
        lambda i: lines.__setitem__(i, " " + lines[i]),
        lambda i: lines.__setitem__(i, lines[i].replace(":", "", 1)),
        lambda i: lines.insert(i, WORDS[rng.integers(len(WORDS))]),
    ]
    for _ in range(int(rng.integers(1, 3))):
        if lines:
            changes[rng.integers(len(changes))](int(rng.integers(len(lines))))
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _random_values(_good: str, rng: np.random.Generator) -> bytes:
    top = {str(key): _random(rng, 4) for key in rng.choice(KEYS[:4], int(rng.integers(1, 4)))}
    return yaml.safe_dump(top).encode("utf-8", "surrogatepass")


def _random(rng: np.random.Generator, depth: int) -> object:
    """A tree of keys and values of a qconfig, put together at random."""
    kind = rng.random()
    if depth and kind < 0.5:
        keys = rng.choice(len(KEYS), int(rng.integers(0, 4)))
        return {KEYS[key]: _random(rng, depth - 1) for key in keys}
    if depth and kind < 0.6:
        return [_random(rng, depth - 1) for _ in range(int(rng.integers(0, 3)))]
    return VALUES[rng.integers(len(VALUES))]
