from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from models.decoder import Decoder
from models.genai_decoder import load_genai_decoder
from onnxq.language.token_run import TokenRun
from onnxq.metrics import bits_in_windows, bits_with_cache, bytes_of, windows
from tests.tiny_decoder import TINY, tiny_decoder, weights

TEXT = torch.frombuffer(bytearray(b"It is a truth universally"), dtype=torch.uint8).long()[None]
HELD_OUT = Path(__file__).resolve().parents[2] / "models" / "northanger_abbey.txt"


@pytest.mark.oracle
def test_logits_are_those_of_the_module() -> None:
    sizes = dataclasses.replace(TINY, depth=2)
    model = Decoder(sizes).eval()
    model.load_state_dict({name: torch.from_numpy(w) for name, w in weights(sizes).items()})
    with torch.no_grad(), TokenRun(tiny_decoder(sizes), threads=1) as run:
        expected, found = model(TEXT), torch.from_numpy(run.whole(TEXT.numpy()))
    # float32 sums of 64 products in another order
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_the_embedding_is_stored_once() -> None:
    stored = [v.shape.numpy() for v in tiny_decoder().graph.initializers.values() if v.shape]
    assert stored.count((256, TINY.width)) == 1
    assert (TINY.width, 256) not in stored


def test_the_trained_decoder_knows_text_that_it_never_saw() -> None:
    model, rows = load_genai_decoder(), windows(bytes_of(HELD_OUT), 512)[:2]
    whole = bits_in_windows(model, rows, threads=1).per_token
    assert whole < 2.3  # 2.05 over the whole file; the order of bytes alone gives 4.4
    assert (
        abs(
            bits_with_cache(model, rows[:, :64], 16, threads=1).per_token
            - bits_in_windows(model, rows[:, :64], threads=1).per_token
        )
        < 1e-4
    )
