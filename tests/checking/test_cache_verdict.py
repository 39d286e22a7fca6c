"""Logits with the cache in int8 beside those with the float one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import onnxq
from onnxq.checking.cache_verdict import cache_verdict
from onnxq.language.decoder import Decoder
from onnxq.language.token_run import TokenRun
from onnxq.metrics import as_samples
from onnxq.ort.runtime import open_session
from tests.tiny_decoder import TINY, tiny_decoder

TEXTS = np.random.default_rng(0).integers(0, 256, (3, 20))


def test_decibels_are_those_of_both_runs_and_sizes_those_of_a_token() -> None:
    source = tiny_decoder(dataclasses.replace(TINY, depth=2))
    made = onnxq.quantize_cache(source, as_samples(source, TEXTS))
    found = cache_verdict(source, made, as_samples(source, TEXTS))
    with TokenRun(source, threads=1) as one, TokenRun(made, threads=1) as other:
        exact, quantized = (
            np.concatenate([run.whole(TEXTS[i : i + 1]) for i in range(3)]).astype(np.float64)
            for run in (one, other)
        )
    lost = np.square(exact).sum() / np.square(quantized - exact).sum()
    assert found.batches == 3
    assert found.logits.sqnr_db == pytest.approx(10 * np.log10(lost), rel=1e-6)
    heads, size = Decoder.of(source).cache
    assert (found.float_bytes, found.int8_bytes) == (4 * heads * size * 4, 4 * heads * size)


def test_keys_and_values_of_samples_are_taken_as_integers() -> None:
    source = tiny_decoder()
    decoder, first = Decoder.of(source), TEXTS[:1]
    with open_session(source, threads=1) as session:
        outputs = session.run(decoder.feeds(first[:, :8], decoder.empty(1)))
        behind = decoder.feeds(first[:, 8:], decoder.next_past(list(session.outputs), outputs))
    made = onnxq.quantize_cache(source, [behind])
    found = cache_verdict(source, made, [behind])
    assert found.logits.sqnr_db is not None
    assert found.logits.sqnr_db > 25
