from __future__ import annotations

import dataclasses

import pytest
import torch

from models.decoder import Decoder
from onnxq.language.token_run import TokenRun
from tests.tiny_decoder import TINY, tiny_decoder, weights

TEXT = torch.frombuffer(bytearray(b"It is a truth universally"), dtype=torch.uint8).long()[None]


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
