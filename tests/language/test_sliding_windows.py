"""Decoders whose cache slides: layers that keep the keys of the last tokens alone."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import onnxq
from onnxq.language.decoder import Decoder
from onnxq.language.token_run import TokenRun
from onnxq.metrics import as_samples, bits_in_windows
from tests.tiny_decoder import tiny_decoder

WINDOW = 6
TEXTS = np.random.default_rng(4).integers(0, 256, (2, 24))


def sliding(layers: int | None = None) -> ir.Model:
    """The tiny decoder, its first layers' caches as onnxruntime-genai's builder writes gemma2's."""
    model = tiny_decoder()
    attentions = [node for node in model.graph if node.op_type == "GroupQueryAttention"]
    for node in attentions[:layers]:
        node.attributes.add(ir.AttrInt64("local_window_size", WINDOW))
        node.attributes.add(ir.AttrInt64("sliding_window_cache", 1))
        for value in (*node.inputs[3:5], *node.outputs[1:3]):
            assert value is not None
            assert value.shape is not None
            value.shape = ir.Shape([*value.shape[:2], "sliding_length", value.shape[3]])
    return model


@pytest.mark.parametrize("step", [1, 5])
@pytest.mark.parametrize("layers", [1, None], ids=["one layer", "every layer"])
def test_steps_give_the_logits_of_the_whole_text_past_the_window(
    layers: int | None, step: int
) -> None:
    with TokenRun(sliding(layers), 1) as run:
        whole = run.whole(TEXTS[:1]).astype(np.float32)
        steps = np.concatenate(list(run.in_steps(TEXTS[:1], step)), axis=1).astype(np.float32)
    np.testing.assert_allclose(steps, whole, atol=1e-4 * np.abs(whole).max())


def test_the_window_is_felt() -> None:
    with TokenRun(sliding(), 1) as short, TokenRun(tiny_decoder(), 1) as long:
        ours, theirs = (each.whole(TEXTS).astype(np.float32) for each in (short, long))
    np.testing.assert_allclose(ours[:, :WINDOW], theirs[:, :WINDOW], atol=1e-4)
    assert np.abs(ours[:, -1] - theirs[:, -1]).max() > 1e-3


def test_samples_have_a_cache_that_shows_every_token() -> None:
    model = sliding(1)
    decoder = Decoder.of(model)
    assert set(decoder.windows.values()) == {WINDOW}
    lengths = {n: x.shape[2] for n, x in as_samples(model, TEXTS).items() if n in decoder.past}
    assert {n for n, length in lengths.items() if length} == set(decoder.windows)
    assert {lengths[name] for name in decoder.windows} == {TEXTS.shape[1]}
    assert {x.shape[2] for n, x in decoder.empty(1).items() if n in decoder.windows} == {WINDOW}


def test_every_command_for_decoders_takes_them() -> None:
    model = sliding(1)
    samples = as_samples(model, TEXTS)
    made = [
        onnxq.quantize_weights(model, samples, check=onnxq.Check.NONE),
        onnxq.quantize_cache(model, samples),
        onnxq.quantize(model, samples, check=onnxq.Check.NONE),
    ]
    wanted = bits_in_windows(model, TEXTS).per_token
    for each in made:
        assert bits_in_windows(each, TEXTS).per_token == pytest.approx(wanted, rel=0.05)
