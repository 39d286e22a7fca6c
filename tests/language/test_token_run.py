from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import CalibrationError
from onnxq.language.token_run import TokenRun
from tests.language.greedy_text import greedy
from tests.tiny_decoder import tiny_decoder

TEXT = np.frombuffer(b"It is a truth universally", np.uint8).astype(np.int64)


def test_steps_with_the_cache_give_the_logits_of_the_whole() -> None:
    with TokenRun(tiny_decoder(), threads=1) as run:
        whole = run.whole(TEXT[None])
        for step in (1, 7, 25):
            parts = np.concatenate(list(run.in_steps(TEXT[None], step)), 1)
            # float32 sums of 64 products in another order
            assert (
                np.abs(np.asarray(parts, np.float32) - np.asarray(whole, np.float32)).max() < 1e-4
            )


def test_greedy_tokens_are_the_likeliest_of_the_whole() -> None:
    found = greedy(tiny_decoder(), TEXT[:10], 8)
    with TokenRun(tiny_decoder(), threads=1) as run:
        logits = run.whole(np.concatenate([TEXT[:10], found])[None])[0]
    assert found.tolist() == logits[9:17].argmax(1).tolist()


def test_text_ends_where_the_positions_do() -> None:
    too_many = pytest.raises(CalibrationError, match="33 tokens are more than the 32 positions")
    with TokenRun(tiny_decoder(), threads=1) as run, too_many:
        list(run.in_steps(np.ones((1, 33), np.int64), 4))
