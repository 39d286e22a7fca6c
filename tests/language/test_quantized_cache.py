"""Keys and values of a cache in int8."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from onnxq.errors import CalibrationError, ModelError, UnsupportedError
from onnxq.language.decoder import Decoder
from onnxq.language.token_run import TokenRun
from onnxq.metrics import as_samples
from onnxq.ort.runtime import open_session
from tests.dynamic_models import normal, parsed
from tests.tiny_decoder import TINY, tiny_decoder

if TYPE_CHECKING:
    import onnx_ir as ir

TEXTS = np.random.default_rng(0).integers(0, 256, (4, 24))


def small() -> tuple[ir.Model, ir.Model]:
    """A float decoder, and the same with its cache in int8."""
    source = tiny_decoder(dataclasses.replace(TINY, depth=2))
    return source, onnxq.quantize_cache(source, as_samples(source, TEXTS))


def test_the_cache_is_int8_and_scales_are_its_largest_magnitudes() -> None:
    source, made = small()
    decoder = Decoder.of(made)
    assert {str(x.dtype) for x in decoder.empty(1).values()} == {"int8"}
    feeds = Decoder.of(source).feeds(TEXTS, Decoder.of(source).empty(len(TEXTS)))
    with open_session(source, threads=1) as session:
        outputs = dict(zip(session.outputs, session.run(feeds), strict=True))
    for name in decoder.past.values():
        scale = made.graph.initializers[f"{name}_scale"].const_value
        assert scale is not None
        wanted = np.abs(outputs[name]).max(axis=(0, 2))[:, np.newaxis] / np.float32(127)
        np.testing.assert_allclose(scale.numpy(), wanted, rtol=1e-6)


def test_logits_step_by_step_are_near_those_of_float() -> None:
    source, made = small()
    with TokenRun(source, threads=1) as one, TokenRun(made, threads=1) as other:
        text = TEXTS[:1]  # of several rows, ONNX Runtime takes one token at a time
        exact, found = one.whole(text), np.concatenate([*other.in_steps(text, 5)], axis=1)
    # each key and value is off by at most half an LSB of 1 / 127: 40 dB and more below its reach
    assert np.square(found - exact).sum() < 1e-3 * np.square(exact).sum()


def test_weights_in_blocks_keep_theirs() -> None:
    source, _ = small()
    blocks = onnxq.quantize_weights(source, check=onnxq.Check.NONE)
    made = onnxq.quantize_cache(blocks, as_samples(blocks, TEXTS))
    products = [n.op_type for n in made.graph if n.op_type == "MatMulNBits"]
    assert len(products) == len([n for n in blocks.graph if n.op_type == "MatMulNBits"])


def test_what_has_no_such_cache_is_refused() -> None:
    _, made = small()
    with pytest.raises(ModelError, match="the cache is int8; wanted float32"):
        onnxq.quantize_cache(made, as_samples(made, TEXTS))
    plain = parsed("g (float[n, 4] x) => (float[n, 4] y) { y = Exp (x) }", {})
    with pytest.raises(ModelError, match="is no decoder"):
        onnxq.quantize_cache(plain, {"x": normal(2, 4)})


def test_attention_of_other_operators_is_refused() -> None:
    source, _ = small()
    for node in source.graph:
        if node.op_type == "GroupQueryAttention":
            node.op_type = "Attention"
    with pytest.raises(UnsupportedError, match="Attention reads the cache"):
        onnxq.quantize_cache(source, as_samples(source, TEXTS))


def test_samples_without_tokens_are_refused() -> None:
    source, _ = small()
    with pytest.raises(CalibrationError):
        onnxq.quantize_cache(source, [])


def test_tokens_of_another_vocabulary_are_named() -> None:
    source = tiny_decoder()
    with pytest.raises(CalibrationError, match="token 655 is not in the model's vocabulary of 256"):
        onnxq.quantize_cache(source, as_samples(source, TEXTS * 0 + 655))
