from __future__ import annotations

import numpy as np
import pytest
import torch

from models.decoder import Cached, Decoder, decoder
from models.sizes import Sizes
from tests.tiny_decoder import TINY, weights

pytestmark = pytest.mark.oracle

TEXT = torch.frombuffer(bytearray(b"It is a truth universally"), dtype=torch.uint8).long()[None]


def tiny() -> Decoder:
    model = Decoder(TINY).eval()
    model.load_state_dict({name: torch.from_numpy(w) for name, w in weights().items()})
    return model


def empty(sizes: Sizes) -> list[tuple[torch.Tensor, torch.Tensor]]:
    none = torch.zeros(1, sizes.kv_heads, 0, sizes.head)
    return [(none, none)] * sizes.depth


def test_three_million_parameters_and_a_tied_head() -> None:
    model = decoder()
    assert sum(p.numel() for p in model.parameters()) == 3_213_568
    assert "lm_head.weight" not in model.state_dict()


def test_a_byte_sees_none_behind_it() -> None:
    changed = TEXT.clone()
    changed[0, 10:] = 7
    with torch.no_grad():
        a, b = tiny()(TEXT), tiny()(changed)
    torch.testing.assert_close(a[:, :10], b[:, :10], rtol=0, atol=0)
    assert not torch.equal(a[:, 10:], b[:, 10:])


def test_the_cache_gives_the_logits_of_the_whole() -> None:
    run, past, parts = Cached(tiny()), empty(TINY), []
    with torch.no_grad():
        for start in range(0, TEXT.shape[1], 5):
            mask, places = torch.ones(1, start + 5).long(), torch.arange(start, start + 5)[None]
            logits, past = run(TEXT[:, start : start + 5], mask, places, past)
            parts.append(logits)
        # float32 sums of 64 products in another order
        torch.testing.assert_close(torch.cat(parts, 1), tiny()(TEXT), rtol=0, atol=1e-4)


def test_padding_on_the_left_changes_nothing() -> None:
    padded = torch.cat((torch.zeros(1, 3).long(), TEXT), 1)
    mask = torch.ones_like(padded)
    mask[:, :3] = 0
    places = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits, _ = Cached(tiny())(padded, mask, places, empty(TINY))
        torch.testing.assert_close(logits[:, 3:], tiny()(TEXT), rtol=0, atol=1e-4)


@pytest.mark.nightly
def test_transformers_loads_the_weights_and_computes_the_same() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=TINY.width,
        intermediate_size=TINY.hidden,
        num_hidden_layers=TINY.depth,
        num_attention_heads=TINY.heads,
        num_key_value_heads=TINY.kv_heads,
        max_position_embeddings=TINY.context,
        rms_norm_eps=TINY.epsilon,
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    given = {name: torch.from_numpy(w) for name, w in weights().items()}
    found = model.load_state_dict(given, strict=False)
    assert found.missing_keys == ["lm_head.weight"]
    assert not found.unexpected_keys
    with torch.no_grad():
        torch.testing.assert_close(model(TEXT).logits, tiny()(TEXT), rtol=0, atol=1e-4)


def test_sizes_give_numbers_per_head() -> None:
    assert (Sizes().head, TINY.head) == (64, 16)
    assert np.isfinite(tiny().angles.numpy()).all()
