from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from onnxq.errors import CalibrationError, ModelError
from onnxq.language.decoder import Decoder
from tests.tiny_decoder import TINY, tiny_decoder

DECODER = Decoder.of(tiny_decoder())


def test_inputs_and_outputs_are_read_from_the_model() -> None:
    assert (DECODER.vocabulary, DECODER.context, DECODER.heads) == (256, 32, 2)
    assert (DECODER.layers, DECODER.cache, DECODER.shares) == (1, (1, 16), True)
    assert DECODER.past == {
        "past_key_values.0.key": "present.0.key",
        "past_key_values.0.value": "present.0.value",
    }


def test_feeds_are_what_the_model_takes_behind_its_cache() -> None:
    past = {name: np.zeros((2, 1, 5, 16), np.float32) for name in DECODER.past}
    feeds = DECODER.feeds(np.array([[1, 2], [3, 4]], np.uint8), past)
    assert list(feeds) == [spec.name for spec in DECODER.inputs]
    assert feeds["input_ids"].dtype == np.int64
    assert feeds["attention_mask"].shape == (2, 7)
    assert feeds["position_ids"].tolist() == [[5, 6], [5, 6]]
    assert DECODER.empty(3)["past_key_values.0.key"].shape == (3, 1, 0, 16)


@pytest.mark.parametrize("token", [256, -1])
def test_a_token_that_the_vocabulary_lacks_is_named(token: int) -> None:
    with pytest.raises(CalibrationError, match=f"token {token} is not in .* of 256 tokens"):
        DECODER.feeds(np.array([[1, token]]), {})


def test_tokens_are_integers_in_rows() -> None:
    with pytest.raises(CalibrationError, match=r"tokens are float64 of shape \(3,\); wanted int"):
        DECODER.check(np.ones(3))
    with pytest.raises(CalibrationError, match=r"tokens are a list; wanted one array .* stack"):
        DECODER.check([np.ones(3, np.int64)])  # type: ignore[arg-type]


def test_a_context_that_is_longer_than_the_model_knows_is_refused() -> None:
    past = {name: np.zeros((1, 1, 31, 16), np.float32) for name in DECODER.past}
    assert DECODER.feeds(np.array([[1]]), past)
    with pytest.raises(CalibrationError, match="33 tokens are more than the 32 positions"):
        DECODER.feeds(np.array([[1, 2]]), past)


def test_other_names_are_no_decoder_s() -> None:
    for name, value in (("words", 0), ("past_key_values.1.key", 3)):
        model = tiny_decoder()
        model.graph.inputs[value].name = name
        with pytest.raises(ModelError, match=f"is no decoder: it takes .*{name}"):
            Decoder.of(model)


def test_a_model_without_cache_says_so_where_one_is_wanted() -> None:
    plain = dataclasses.replace(DECODER, past={})
    assert plain.empty(1) == {}
    with pytest.raises(ModelError, match="has no cache whose sizes it says"):
        _ = plain.cache


def test_context_is_that_of_the_table() -> None:
    longer = dataclasses.replace(TINY, context=48)
    assert Decoder.of(tiny_decoder(longer)).context == 48
